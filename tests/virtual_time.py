"""An event loop on which waiting costs nothing: when nothing is ready, time jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

__all__ = ["VirtualClock", "VirtualLoop", "run_virtually"]

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    """Does not wait: moves the loop's time forward instead."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("everything waits, and no timer will ever end it")
            self.loop.seconds += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` is virtual seconds."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.seconds


class VirtualClock:
    """Both clocks of `base.clock.Clock` on a virtual loop; the wall clock can be set by hand."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._start = loop.seconds
        self.wall_at_start = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

    def monotonic(self) -> float:
        return self._loop.seconds

    def now(self) -> datetime:
        return self.wall_at_start + timedelta(seconds=self._loop.seconds - self._start)

    def set_wall(self, by: timedelta) -> None:
        """Step the wall clock, as an administrator or NTP does."""
        self.wall_at_start += by


def run_virtually(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function to its end on a virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(test())
