"""`python -m tests.soak.held [SECONDS [ATTEMPTS]]`: ten thousand attempts held for ten minutes on a real server."""

import sys
import tempfile
from pathlib import Path

from tests.system.crowd import held


def main(seconds: int = 600, attempts: int = 10_000) -> None:
    """Print what was seen; fails with what was not as promised."""
    with tempfile.TemporaryDirectory() as folder:
        seen = held(Path(folder), attempts, seconds, recheck=60.0)
    print(seen)
    assert 0.9 <= seen.asks <= 1.1
    assert seen.memory_mb < 300


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
