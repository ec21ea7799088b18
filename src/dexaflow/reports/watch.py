"""Looking after launched attempts: agents that died, fell silent, never started, or must stop.

A silent agent whose process lives is left alone; one whose process is gone fails its try, and only after its process
group is dead (R10.4). Silence is counted on the monotonic clock and while this control plane was up.
"""

import asyncio
from collections.abc import Callable

import structlog

from dexaflow.base.clock import Clock
from dexaflow.base.errors import TermLost
from dexaflow.executors.ports import Executor, Exit
from dexaflow.store import reporting
from dexaflow.store.bridge import Store
from dexaflow.store.people import ToKill
from dexaflow.store.running import RetryRule

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
        self._heard: dict[str, float] = {}  # launch id -> monotonic seconds
        self._launching: dict[str, float] = {}
        self._ending: set[str] = set()
        self._group: asyncio.TaskGroup | None = None
        self._early: list[tuple[str, str | None]] = []

    def heard(self, launch_id: str) -> None:
        """An agent spoke."""
        self._heard[launch_id] = self._clock.monotonic()

    def ended(self, launch_id: str) -> None:
        """An attempt ended by its own report."""
        self._heard.pop(launch_id, None)
        self._launching.pop(launch_id, None)

    def exited(self, exit_: Exit) -> None:
        """The executor saw an agent end; one that died has its attempt ended here."""
        if not exit_.in_order:
            self._start_ending(exit_.launch_id, exit_.description)

    def gone(self, launch_id: str) -> None:
        """The agent of a launch that counts was not found."""
        self._start_ending(launch_id, "its agent was gone when the server came back")

    def kill(self, kill: ToKill) -> None:
        """End the processes of attempts that were cancelled or cleared."""
        for _, launch_id in kill.launches:
            self._start_ending(launch_id, None)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for launch_id, why in self._early:
                self._start_ending(launch_id, why)
            self._early.clear()
            try:
                while True:
                    await asyncio.sleep(SWEEP_SECONDS)
                    try:
                        await self.sweep()
                    except TermLost:
                        raise
                    except Exception as error:  # noqa: BLE001 - a full disk passes; watching goes on
                        log.error("watch_failed", cause=f"{type(error).__name__}: {error}")
            finally:
                self._group = None

    async def sweep(self) -> None:
        """Look once at everything launched."""
        now = self._clock.monotonic()
        launching = dict(await self._store.do(reporting.old_launches))
        current = set(launching.values())
        self._launching = {launch: self._launching.get(launch, now) for launch in current}
        for launch_id, since in self._launching.items():
            if now - since >= LAUNCH_SECONDS:
                self._start_ending(launch_id, None)
        running = await self._store.do(reporting.silent_attempts)
        self._heard = {a.launch_id: self._heard.get(a.launch_id, now) for a in running}
        for attempt in running:
            if attempt.stop is not None:
                self._start_ending(attempt.launch_id, None)
            elif now - self._heard[attempt.launch_id] >= self._silence:
                if (await self._executor.find(attempt.launch_id)).alive:
                    self._heard[attempt.launch_id] = now  # it lives: left alone, looked at again later
                    log.warning("agent_silent", launch_id=attempt.launch_id, attempt=attempt.attempt_id)
                else:
                    self._start_ending(attempt.launch_id, "its agent is gone")

    def _start_ending(self, launch_id: str, why: str | None) -> None:
        if self._group is None:
            self._early.append((launch_id, why))
            return
        if launch_id in self._ending:
            return
        self._ending.add(launch_id)
        self._group.create_task(self._end(launch_id, why))

    async def _end(self, launch_id: str, why: str | None) -> None:
        try:
            live = await self._store.do(lambda tx: reporting.live_launch(tx, launch_id))
            # Dead first, whatever the store thinks: an overlooked agent must not run beside a new try.
            await self._executor.kill(launch_id)
            if live is None:
                return
            reason = why or "its agent did not start in time"
            if live.state == "launching":
                if why is None:
                    await self._store.do(lambda tx: reporting.lost(tx, live.attempt_id, launch_id))
                else:
                    await self._store.do(
                        lambda tx: reporting.start_failed(tx, live.attempt_id, launch_id, reason, self._retry)
                    )
            else:
                ended = await self._store.do(
                    lambda tx: reporting.attempt_ended(
                        tx, live.attempt_id, launch_id, succeeded=False, reason=reason, exit_code=None, result=None,
                        retry=self._retry,
                    )
                )  # fmt: skip
                log.warning("attempt_ended_without_report", launch_id=launch_id, reason=reason,
                            state=None if ended is None else str(ended.state))  # fmt: skip
            self._wake_scheduler()
        except TermLost:
            raise
        except Exception as error:  # noqa: BLE001 - the next sweep tries again
            log.error("ending_failed", launch_id=launch_id, cause=f"{type(error).__name__}: {error}")
        finally:
            self._ending.discard(launch_id)
