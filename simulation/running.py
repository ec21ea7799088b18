"""Many nights, in processes side by side, and how a failed one is told."""

import gc
import multiprocessing
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from simulation.night import Outcome, live_through

__all__ = ["many", "place", "told"]

_LINES = 30  # of a failed night's trace: its end


def place() -> str | None:
    """Return a folder in memory, where there is one: nothing here outlives its night."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() else None


def many(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Live through the nights of all seeds, and give what came of each as it ends."""
    with tempfile.TemporaryDirectory(prefix="simulation", dir=place()) as folder:
        context = multiprocessing.get_context("spawn")
        with context.Pool(processes, _begin) as pool:
            yield from pool.imap_unordered(partial(_quietly, folder=Path(folder)), seeds, chunksize=4)


def _begin() -> None:
    gc.collect()
    gc.freeze()  # what was imported stays; then clearing away a night's rubbish costs little
    gc.disable()


def _quietly(seed: int, folder: Path) -> Outcome:
    outcome = live_through(seed, folder)
    gc.collect()
    return outcome


def told(outcome: Outcome) -> str:
    """Return what there is to say about a failed night: the promise, how to see it again, and the end of the story."""
    lines = [f"seed {outcome.seed}: a promise is broken"]
    for violation in outcome.violations[:3]:
        lines += [f"  promise: {violation.promise}", f"  found:   {violation.how}  ({violation.check})"]
    lines += [f"  again:   make simulate SEED={outcome.seed}", "  the end of its story:"]
    lines += [f"    {line}" for line in outcome.trace[-_LINES:]]
    return "\n".join(lines)
