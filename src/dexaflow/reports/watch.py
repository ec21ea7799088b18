"""Looking after launched attempts: agents that died, fell silent, never started, or must stop.

A silent agent whose process lives is left alone; one whose process is gone fails its try, and only after its process
group is dead (R10.4). Silence is counted on the monotonic clock and while this control plane was up.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial

import structlog

from dexaflow.base.clock import Clock
from dexaflow.base.errors import TermLost
from dexaflow.base.steps import Step, reached
from dexaflow.executors.ports import Executor, Exit
from dexaflow.observe.troubles import Troubles
from dexaflow.store import reporting
from dexaflow.store.bridge import Store
from dexaflow.store.people import ToKill
from dexaflow.store.tries import RetryRule

__all__ = ["LAUNCH_SECONDS", "Watch"]

log = structlog.get_logger()
LAUNCH_SECONDS = 60.0  # a launch whose agent has not been heard by then is given up and asked anew
SWEEP_SECONDS = 1.0


class Watch:
    """Call `run()` inside a task group; tell it what is heard."""

    def __init__(
        self,
        store: Store,
        executor: Executor,
        *,
        clock: Clock,
        retry: RetryRule,
        silence: float,
        wake_scheduler: Callable[[], None],
    ) -> None:
        self._store = store
        self._executor = executor
        self._clock = clock
        self._retry = retry
        self._silence = silence
        self._wake_scheduler = wake_scheduler
        self._troubles = Troubles(__name__)
        self._heard: dict[str, float] = {}  # launch id -> monotonic seconds
        self._launching: dict[str, float] = {}
        self._busy: set[str] = set()
        self._undone: dict[str, Callable[[], Coroutine[None, None, None]]] = {}  # what failed on our side
        self._group: asyncio.TaskGroup | None = None
        self._early: list[tuple[str, Callable[[], Coroutine[None, None, None]]]] = []

    def heard(self, launch_id: str) -> None:
        """An agent spoke."""
        self._heard[launch_id] = self._clock.monotonic()

    def ended(self, launch_id: str) -> None:
        """An attempt ended by its own report."""
        self._heard.pop(launch_id, None)
        self._launching.pop(launch_id, None)

    def exited(self, exit_: Exit) -> None:
        """The executor saw an agent end; one that died has its attempt ended here.

        One that ended in order has reported, unless it was turned away by mistake: then its attempt is not forgotten.
        """
        if not exit_.in_order:
            self._start(exit_.launch_id, partial(self._end, exit_.launch_id, exit_.description))
        elif exit_.launch_id in self._heard:
            self._start(exit_.launch_id, partial(self._end, exit_.launch_id, "its agent ended without a report"))

    def gone(self, launch_id: str) -> None:
        """The agent of a launch that counts was not found."""
        self._start(launch_id, partial(self._end, launch_id, "its agent was gone when the server came back"))

    def never_started(self, launch_id: str) -> None:
        """A launch came to nothing: it is given up, and its attempt asked anew."""
        self._start(launch_id, partial(self._give_up, launch_id))

    def kill(self, kill: ToKill) -> None:
        """End the processes of attempts that were cancelled or cleared."""
        for _, launch_id in kill.launches:
            self.kill_launch(launch_id)

    def kill_launch(self, launch_id: str) -> None:
        """End whatever runs for a launch; an attempt that was told to stop ends with it."""
        self._start(launch_id, partial(self._end, launch_id, None))

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for launch_id, work in self._early:
                self._start(launch_id, work)
            self._early.clear()
            try:
                while True:
                    await asyncio.sleep(SWEEP_SECONDS)
                    try:
                        await self.sweep()
                    except TermLost:
                        raise
                    except Exception as error:  # noqa: BLE001 - a full disk passes; watching goes on
                        self._troubles.error("watch_failed", cause=f"{type(error).__name__}: {error}")
            finally:
                self._group = None

    async def sweep(self) -> None:
        """Look once at everything launched, and do again what failed."""
        now = self._clock.monotonic()
        for launch_id, work in list(self._undone.items()):
            self._start(launch_id, work)
        launching = dict(await self._store.do(reporting.launching_attempts))
        current = set(launching.values())
        self._launching = {launch: self._launching.get(launch, now) for launch in current}
        for launch_id, since in self._launching.items():
            if now - since >= LAUNCH_SECONDS:
                self.never_started(launch_id)
        running = await self._store.do(reporting.running_attempts)
        self._heard = {a.launch_id: self._heard.get(a.launch_id, now) for a in running}
        for attempt in running:
            if attempt.stop is not None:
                self.kill_launch(attempt.launch_id)
            elif now - self._heard[attempt.launch_id] >= self._silence:
                self._start(attempt.launch_id, partial(self._look_for, attempt))

    def _start(self, launch_id: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do something about a launch beside everything else: no launch that hangs keeps the others waiting."""
        if self._group is None:
            self._early.append((launch_id, work))
            return
        if launch_id in self._busy:
            return  # the next sweep comes back to what is left to do
        self._busy.add(launch_id)
        self._group.create_task(self._do(launch_id, work))

    async def _do(self, launch_id: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._undone.pop(launch_id, None)
        try:
            await work()
        except TermLost:
            raise
        except Exception as error:  # noqa: BLE001 - the next sweep tries again
            self._undone.setdefault(launch_id, work)
            self._troubles.error("ending_failed", cause=f"{type(error).__name__}: {error}", launch_id=launch_id)
        finally:
            self._busy.discard(launch_id)

    async def _look_for(self, attempt: reporting.RunningAttempt) -> None:
        """A silent agent whose process lives is left alone; one that is gone has its try failed."""
        if (await self._executor.find(attempt.launch_id)).alive:
            self._heard[attempt.launch_id] = self._clock.monotonic()  # looked at again later
            log.warning("agent_silent", launch_id=attempt.launch_id, **await self._ids(attempt.attempt_id))
        else:
            await self._end(attempt.launch_id, "its agent is gone")

    async def _ids(self, attempt_id: str) -> dict[str, str | int]:
        return await self._store.do(lambda tx: reporting.ids_of(tx, attempt_id))

    async def _give_up(self, launch_id: str) -> None:
        """Take a launch back whose agent was not heard in time (R1.7).

        In this order: once it is written that the launch does not count, its agent is turned away, however late it
        comes; so nothing is killed that has just begun to run, and nothing runs twice.
        """
        live = await self._store.do(lambda tx: reporting.live_launch(tx, launch_id))
        if live is not None and live.state == "running":
            return
        if live is not None and not await self._store.do(lambda tx: reporting.lost(tx, live.attempt_id, launch_id)):
            return  # it started between the two
        if live is not None:
            log.warning("launch_given_up", launch_id=launch_id, **await self._ids(live.attempt_id))
            self._wake_scheduler()
        await self._executor.kill(launch_id)

    async def _end(self, launch_id: str, why: str | None) -> None:
        """End a launch whose agent died (`why`), or whose attempt is to stop (None)."""
        live = await self._store.do(lambda tx: reporting.live_launch(tx, launch_id))
        if why is None and live is not None and live.stop is None:
            return  # nobody asked for that: it was cleared and launched anew meanwhile, or is not ours to end
        # Dead first, whatever the store thinks: an overlooked agent must not run beside a new try.
        await self._executor.kill(launch_id)
        reached(Step.KILLED)
        if live is None:
            return
        reason = why or live.stop or ""
        if live.state == "launching":
            await self._store.do(lambda tx: reporting.start_failed(tx, live.attempt_id, launch_id, reason, self._retry))
        ended = await self._store.do(
            lambda tx: reporting.attempt_ended(
                tx, live.attempt_id, launch_id, succeeded=False, reason=reason, exit_code=None, result=None,
                retry=self._retry,
            )
        )  # fmt: skip
        log.warning(
            "attempt_ended_without_report", launch_id=launch_id, reason=reason,
            state=None if ended is None else str(ended.state), **await self._ids(live.attempt_id),
        )  # fmt: skip
        self._wake_scheduler()
