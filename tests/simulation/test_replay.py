"""One seed is one run, and whoever sees a night fail can see it again."""

import os
import subprocess
import sys
from pathlib import Path

from simulation.check import Violation
from simulation.night import Outcome
from simulation.running import told

ROOT = Path(__file__).parents[2]
_NIGHTS = """
import sys, tempfile
from pathlib import Path
from simulation.night import live_through
from simulation.running import place
with tempfile.TemporaryDirectory(dir=place()) as folder:
    for seed in map(int, sys.argv[1:]):
        print(seed, *live_through(seed, Path(folder)).trace, sep="\\n")
"""


def _traces(hash_seed: str, seeds: list[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _NIGHTS, *seeds], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_seed_gives_the_same_story_in_every_process() -> None:
    """Neither ids, nor the order of sets, nor what was run before it make a difference."""
    seeds = ["3", "12", "19", "21", "26", "118"]

    first = _traces("1", seeds)

    assert len(first) > 500
    again = _traces("2", seeds[::-1])
    for seed in seeds:
        assert _of(seed, first, seeds) == _of(seed, again, seeds)


def _of(seed: str, lines: list[str], seeds: list[str]) -> list[str]:
    """Return one seed's part."""
    start = lines.index(seed)
    end = next((i for i in range(start + 1, len(lines)) if lines[i] in seeds), len(lines))
    return lines[start:end]


def test_a_failed_night_says_how_to_see_it_again_and_how_it_ended() -> None:
    broken = Violation("NothingTwice", "no attempt runs twice at once", "r.t#1 begins a second time")
    story = tuple(f"{i}  something happens" for i in range(100))

    said = told(Outcome(4711, (broken,), story, {}, 60.0, 1000))

    assert "make simulate SEED=4711" in said
    assert "no attempt runs twice at once" in said
    assert "r.t#1 begins a second time" in said
    assert "99  something happens" in said
    assert len(said.splitlines()) < 50
