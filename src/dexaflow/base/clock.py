"""Time as something that is passed in."""

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Two readings of time: one that never jumps, for durations; one that people read."""

    def monotonic(self) -> float:
        """Seconds on a clock that only goes forward; its zero means nothing."""
        ...

    def now(self) -> datetime:
        """The aware UTC wall-clock time; may jump either way."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)
