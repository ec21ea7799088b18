"""How much is measured: enough for a figure, or just enough to see that the measurement runs."""

from dataclasses import dataclass

__all__ = ["FULL", "TINY", "Scale"]


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of all measurements."""

    repeats: int  # of each comparison; the figure is the median
    questions: int  # to the endpoint, in each process
    batches: int  # of a hundred attempts, through the database
    crowd: int  # attempts at once
    attempts: int  # through Lite
    chain: int  # tasks one after the other
    idle_seconds: float
    held: int  # attempts
    recheck: float  # seconds
    past_runs: int  # of ten tasks, finished
    past_work: int  # runs of a hundred tasks, scheduled beside them
    past_pages: int  # of each list


FULL = Scale(
    repeats=7,
    questions=5000,
    batches=10,
    crowd=1000,
    attempts=500,
    chain=10,
    idle_seconds=3.0,
    held=10_000,
    recheck=15.0,
    past_runs=100_000,
    past_work=3,
    past_pages=20,
)
TINY = Scale(
    repeats=1,
    questions=20,
    batches=1,
    crowd=40,
    attempts=4,
    chain=2,
    idle_seconds=0.2,
    held=20,
    recheck=1.0,
    past_runs=20,
    past_work=1,
    past_pages=2,
)
