"""An event loop on which waiting costs nothing, one step at a time, so that a run can be cut between any two."""

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["SimulatedClock", "SteppedLoop"]

_STEP_SECONDS = 1e-6  # a step takes time too: a wait that is shorter than the clock can tell ends at last
_LOOK_AFTER = 20_000  # steps; if time has not once jumped meanwhile, something spins


class SteppedLoop(asyncio.BaseEventLoop):
    """Runs one callback a step; when none is ready, time jumps to the next timer. No sockets, no threads.

    `after_step` is called between any two steps: what it raises ends the run.
    """

    _ready: Any  # of the base class, which declares neither
    _scheduled: Any

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1_000.0
        self.steps = 0
        self.after_step: Callable[[], None] = lambda: None
        self._jumped = True

    def time(self) -> float:
        return self.seconds

    def _run_once(self) -> None:
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not self._ready:
            if not scheduled:
                raise RuntimeError("everything waits, and no timer will ever end it")
            if scheduled[0]._when > self.seconds:
                self.seconds = scheduled[0]._when
                self._jumped = True
        while scheduled and scheduled[0]._when <= self.seconds:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            self._ready.append(handle)
        self.seconds += _STEP_SECONDS
        self.steps += 1
        if self.steps % _LOOK_AFTER == 0:
            if not self._jumped:
                raise RuntimeError(f"something spins: {_LOOK_AFTER} steps without a pause")
            self._jumped = False
        handle = self._ready.popleft()
        if not handle._cancelled:
            handle._run()
        self.after_step()

    def _process_events(self, event_list: Any) -> None:
        """There are no events besides callbacks and timers."""

    def _write_to_self(self) -> None:
        """Nobody else could wake it."""


class SimulatedClock:
    """Both clocks of `base.clock.Clock`; the wall clock can be set by hand."""

    def __init__(self, loop: SteppedLoop) -> None:
        self._loop = loop
        self._wall = datetime(2026, 11, 29, 12, 0, tzinfo=UTC) - timedelta(seconds=loop.seconds)

    def monotonic(self) -> float:
        return self._loop.seconds

    def now(self) -> datetime:
        return self._wall + timedelta(seconds=self._loop.seconds)

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does."""
        self._wall += timedelta(seconds=seconds)
