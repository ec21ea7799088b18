"""How sides are compared: each in a fresh process, A B B A, so that what drifts meanwhile falls on both alike."""

import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["ROOT", "Figures", "cpu", "fresh", "rounds"]

ROOT = Path(__file__).parents[1]
Figures = Mapping[str, float]


def cpu() -> float:
    """Return the CPU-seconds of this process so far, over all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def fresh(command: Sequence[str], *, stdin: bytes = b"") -> Figures:
    """Run a program and return the figures it prints as one JSON object. `bench.NAME` is a module of ours."""
    if command[0].startswith("bench."):
        command = [sys.executable, "-m", *command]
    done = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    found: Figures = json.loads(done.stdout)
    return found


def rounds(sides: Sequence[str], measure: Callable[[str], float], repeats: int) -> list[Figures]:
    """Return each side's figure by repeat, the mean of its two turns in it."""
    found: list[Figures] = []
    for _ in range(repeats):
        figures = [(side, measure(side)) for side in [*sides, *reversed(sides)]]
        found.append({side: statistics.fmean(f for s, f in figures if s == side) for side in sides})
    return found
