"""`python -m tests.soak.held [SECONDS [ATTEMPTS]]`: ten thousand attempts held for ten minutes on a real server."""

import sys
import tempfile
from pathlib import Path

from tests.system.crowd import held

RECHECK = 120.0  # seconds at most: ten thousand make some eighty asks a second


def main(seconds: int = 600, attempts: int = 10_000) -> None:
    """Print what was seen; fails with what was not as promised."""
    recheck = min(RECHECK, seconds / 4)  # each attempt is asked several times
    with tempfile.TemporaryDirectory() as folder:
        seen = held(Path(folder), attempts, seconds, recheck=recheck)
    print(seen)
    assert seen.shortest_gap >= recheck - 0.1
    assert seen.median_gap <= recheck * 1.1 + 1.0  # else the machine had no time for it
    assert seen.memory_mb < 300


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
