"""The simulation can fail: every classic mistake, made in memory, is seen within a few nights."""

import multiprocessing
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from simulation.drawing import draw
from simulation.night import live_through
from simulation.running import place

from tests.simulation.mutations import MUTATIONS, Mutation

MOST_NIGHTS = 100  # of those in which the mistake can show at all


@dataclass(frozen=True, slots=True)
class Seen:
    """In how many nights a mistake was seen, and by which checks; by none: it was not."""

    nights: int
    seed: int
    checks: tuple[str, ...]
    how: str


def see(name: str) -> Seen:
    mutation = next(m for m in MUTATIONS if m.name == name)
    nights = 0
    with tempfile.TemporaryDirectory(prefix="simulation", dir=place()) as folder, mutation.make():
        for seed in count(1):
            if mutation.worlds(draw(seed)):
                nights += 1
                found = live_through(seed, Path(folder)).violations
                if found or nights == MOST_NIGHTS:
                    return Seen(nights, seed, tuple(v.check for v in found), found[0].how if found else "")
    raise AssertionError


@pytest.fixture(scope="module")
def seen() -> Mapping[str, Seen]:
    names = [m.name for m in MUTATIONS]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return dict(zip(names, pool.map(see, names, chunksize=1), strict=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_classic_mistake_is_seen(mutation: Mutation, seen: Mapping[str, Seen]) -> None:
    found = seen[mutation.name]

    assert found.checks, f"not seen in {found.nights} nights"
    assert set(found.checks) & set(mutation.seen_by), f"seed {found.seed}: seen by {found.checks} only: {found.how}"
