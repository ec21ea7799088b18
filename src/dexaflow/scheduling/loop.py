"""The scheduler: woken by what ends and by the clock, with a sweep as safety net.

One pass is one transaction: runs that are due begin, retries come due, runs in which something ended are advanced,
slots are taken. What it queued goes to whoever dispatches.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from dexaflow.base.clock import Clock
from dexaflow.base.errors import TermLost, UsageError
from dexaflow.base.steps import Step, reached
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import Event, RunState, State
from dexaflow.observe.troubles import Troubles
from dexaflow.scheduling.progress import advance, reasons
from dexaflow.scheduling.timetable import ScheduledRun, Timetable
from dexaflow.store import people, registering, running, slots, tries
from dexaflow.store.bridge import Store
from dexaflow.store.transaction import Tx, from_iso

__all__ = ["SWEEP_SECONDS", "Pass", "Scheduler", "one_pass", "planner"]

SWEEP_SECONDS = 5.0  # the longest the scheduler sleeps: what an event missed is found by then
ADVANCED_AT_ONCE = 200  # runs looked at in one transaction
_BEHIND = 0.05  # between passes when there is more to do


def next_scheduled_run(spec: DagSpec, last: datetime | None, since: datetime, now: datetime) -> ScheduledRun | None:
    """Return the DAG's next scheduled run after the one of logical date `last`."""
    timetable = Timetable(spec.schedule, spec.timezone, spec.start_date, spec.catchup, since=since)
    return timetable.next_run(last, now)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did."""

    queued: tuple[Attempt, ...]
    timed_out: tuple[people.ToKill, ...]
    more: bool  # it stopped at a limit: another pass has work
    schedule_at: datetime | None
    wait_due: float | None


def _advance(dag: DagSpec, states: Mapping[str, State]) -> tuple[tuple[tuple[str, Event, str], ...], RunState | None]:
    progress = advance(dag, states)
    why = reasons(dag, states, progress)
    return tuple((task_id, event, why.get(task_id, "")) for task_id, event in progress.moves), progress.end


def one_pass(tx: Tx, parallelism: int) -> Pass:
    """Do all that is due, in one transaction."""
    more = False
    for dag in running.due_dags(tx):
        more = True
        spec = registering.spec_if_readable(tx, dag.version_id)
        if spec is None:
            running.make_no_runs(tx, dag.dag_id)
            continue
        last = None if dag.last_logical_date is None else from_iso(dag.last_logical_date)
        if not running.room_for_runs(tx, dag.dag_id, spec):
            running.make_no_runs(tx, dag.dag_id)  # until one of its runs has ended
            continue
        due = next_scheduled_run(spec, last, from_iso(dag.registered_at), tx.now)
        if due is not None and due.run_after <= tx.now:
            new = running.NewRun(
                tx.new_id(), "scheduled", due.logical_date, due.data_interval_start, due.data_interval_end, {},
                "schedule",
            )  # fmt: skip
            running.create_run(tx, dag.dag_id, new)
            last = due.logical_date
        running.plan_next(tx, dag.dag_id, last, planner(tx))
    timed_out = []
    for run_id in running.runs_timed_out(tx):
        try:
            timed_out.append(people.cancel_run(tx, run_id, "dagrun_timeout passed"))
        except UsageError:  # it ended in this very transaction
            continue
    more |= tries.retry_due_attempts(tx) > 0
    advanced = running.advance_runs(tx, _advance, ADVANCED_AT_ONCE)
    more |= advanced.looked_at >= ADVANCED_AT_ONCE or advanced.ended > 0
    queued = slots.take_slots(tx, parallelism)
    then = running.next_due(tx)
    return Pass(tuple(queued), tuple(timed_out), more, then.schedule_at, then.wait_due)


def planner(tx: Tx) -> registering.NextRun:
    """Return the rule by which a DAG's next run is planned, at the time of this transaction."""

    def plan(spec: DagSpec, last: datetime | None, registered: datetime) -> datetime | None:
        due = next_scheduled_run(spec, last, registered, tx.now)
        return None if due is None else due.run_after

    return plan


class Scheduler:
    """Runs passes for as long as `run()` runs; `wake()` asks for one now."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        up: Callable[[], float],
        parallelism: int,
        on_queued: Callable[[Attempt], None],
        on_kill: Callable[[people.ToKill], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._up = up
        self._parallelism = parallelism
        self._on_queued = on_queued
        self._on_kill = on_kill
        self._troubles = Troubles(__name__)
        self._woken = asyncio.Event()
        self.passed_at: tuple[float, datetime] | None = None  # when a pass last succeeded, on both clocks

    def wake(self) -> None:
        """Something ended, came, or made room: look now."""
        self._woken.set()

    async def run(self) -> None:
        """Schedule until cancelled. Raises `TermLost` when another control plane leads."""
        while True:
            self._woken.clear()
            try:
                done = await self._store.do(self._pass)
            except TermLost:
                raise
            except Exception as error:  # noqa: BLE001 - a full disk passes; the scheduler must be there when it has
                self._troubles.error("schedule_pass_failed", cause=str(error))
                await asyncio.sleep(1.0)
                continue
            self.passed_at = self._clock.monotonic(), self._clock.now()
            for attempt in done.queued:
                reached(Step.QUEUED)
                self._on_queued(attempt)
            for kill in done.timed_out:
                self._on_kill(kill)
            if done.more:
                continue
            await self._sleep(done)

    def _pass(self, tx: Tx) -> Pass:
        return one_pass(tx, self._parallelism)

    async def _sleep(self, done: Pass) -> None:
        wait = SWEEP_SECONDS
        if done.schedule_at is not None:
            wait = min(wait, (done.schedule_at - self._clock.now()) / timedelta(seconds=1))
        if done.wait_due is not None:
            wait = min(wait, done.wait_due - self._up())
        if wait <= 0:
            wait = _BEHIND
        try:
            async with asyncio.timeout(wait):
                await self._woken.wait()
        except TimeoutError:
            return
