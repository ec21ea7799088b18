"""`python -m tests.soak.crowd [ATTEMPTS]`: ten thousand attempts due at once, twice, at two endpoints."""

import sys
import tempfile
from pathlib import Path

from tests.system.crowd import crowd


def main(attempts: int = 10_000) -> None:
    """Print what was seen; fails with what was not as promised."""
    for takes in (0.0, 0.05):
        with tempfile.TemporaryDirectory() as folder:
            print(f"endpoint takes {takes} s: {crowd(Path(folder), attempts, takes)}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
