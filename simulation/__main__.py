"""`python -m simulation --seeds 10000`: nights from seeds, side by side; `--seed n` is one of them, told in full."""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from simulation.night import live_through
from simulation.running import many, place, told

__all__ = ["main"]


def main() -> int:
    """Run what the command line asks for. Returns the exit status."""
    options = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    options.add_argument("--seeds", type=int, default=10_000)
    options.add_argument("--first", type=int, default=1)
    options.add_argument("--seed", type=int)
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = options.parse_args()
    if given.seed is not None:
        return _one(given.seed)
    began, failed, counts, done = time.monotonic(), 0, Counter[str](), 0
    for outcome in many(range(given.first, given.first + given.seeds), given.processes):
        done += 1
        counts.update(outcome.counts)
        if outcome.violations:
            failed += 1
            print(told(outcome), flush=True)
        if done % 500 == 0:
            print(f"{done} seeds, {failed} failed, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{done} seeds in {time.monotonic() - began:.0f} s, {failed} failed")
    for what, count in sorted(counts.items()):
        print(f"  {count:10,}  {what}")
    return 1 if failed else 0


def _one(seed: int) -> int:
    with tempfile.TemporaryDirectory(dir=place()) as folder:
        outcome = live_through(seed, Path(folder))
    print("\n".join(outcome.trace))
    print(f"{outcome.seconds:.0f} s of virtual time in {outcome.steps} steps")
    if outcome.violations:
        print(told(outcome))
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
