"""How much is measured: enough for a figure, or just enough to see that the measurement runs."""

from dataclasses import dataclass

__all__ = ["FULL", "TINY", "Scale"]


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of all measurements."""

    repeats: int  # of each comparison; the figure is the median
    questions: int  # to the endpoint, in each process
    attempts: int  # through Lite
    chain: int  # tasks one after the other
    idle_seconds: float


FULL = Scale(repeats=5, questions=1500, attempts=500, chain=20, idle_seconds=10.0)
TINY = Scale(repeats=1, questions=20, attempts=4, chain=2, idle_seconds=0.2)
