"""What people ask of the control plane through the API: one transaction each, then whoever must know is told."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dexaflow.admission.gate import Gate
from dexaflow.api.ports import HookStatus
from dexaflow.base.clock import Clock
from dexaflow.base.steps import Step, reached
from dexaflow.dispatch.dispatcher import Dispatcher, hold_counts
from dexaflow.reports.watch import Watch
from dexaflow.scheduling.loop import Scheduler
from dexaflow.store import people, running
from dexaflow.store.bridge import Store
from dexaflow.store.transaction import Tx

__all__ = ["ServerCommands"]


class ServerCommands:
    """`api.ports.Commands` over the store and the loops of this process."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        dispatcher: Dispatcher,
        scheduler: Scheduler,
        watch: Watch,
        *,
        clock: Clock,
    ) -> None:
        self._store = store
        self._gate = gate
        self._dispatcher = dispatcher
        self._scheduler = scheduler
        self._watch = watch
        self._clock = clock

    async def trigger(
        self,
        dag_id: str,
        *,
        run_id: str | None,
        conf: Mapping[str, Any],
        logical_date: datetime | None,
        by: str,
        note: str,
    ) -> str:
        """Make a manual run of the DAG's latest version. Raises `NotFound`, `Conflict`."""

        def make(tx: Tx) -> str:
            chosen = run_id or tx.new_id()
            new = running.NewRun(chosen, "manual", logical_date, logical_date, logical_date, conf, by, note)
            running.create_run(tx, dag_id, new)
            return chosen

        chosen = await self._store.do(make)
        reached(Step.RUN_CREATED)
        self._scheduler.wake()
        return chosen

    async def cancel(self, run_id: str, *, by: str) -> None:
        """End a run: holds end at once, what runs is killed (R6.3). Raises `NotFound`, `Conflict`."""
        kill = await self._store.do(lambda tx: people.cancel_run(tx, run_id, f"cancelled by {by}"))
        reached(Step.CANCELLED)
        self.ended(kill)

    async def clear(
        self, run_id: str, *, task_ids: Sequence[str] | None, downstream: bool, only_failed: bool, by: str
    ) -> Sequence[str]:
        """Give tasks a new try with nothing carried over (R6.3). Raises `NotFound`."""
        cleared, kill = await self._store.do(
            lambda tx: people.clear_tasks(tx, run_id, task_ids, downstream=downstream, only_failed=only_failed)
        )
        reached(Step.CLEARED)
        self.ended(kill)
        return cleared

    def ended(self, kill: people.ToKill) -> None:
        """Tell whoever must know that attempts were cancelled or cleared."""
        for attempt_id in kill.unheld:
            self._dispatcher.unheld(attempt_id)
        self._watch.kill(kill)
        self._scheduler.wake()

    async def set_paused(self, dag_id: str, *, paused: bool, by: str) -> None:
        """Pause or unpause. Raises `NotFound`."""
        await self._store.do(lambda tx: people.set_paused(tx, dag_id, paused=paused, by=by))
        self._scheduler.wake()

    async def set_note(self, run_id: str, note: str) -> None:
        """Set a run's note. Raises `NotFound`."""
        await self._store.do(lambda tx: people.set_note(tx, run_id, note))

    async def set_pool(self, name: str, *, slots: int, description: str | None) -> None:
        """Make a pool or change it. Raises `UsageError`."""
        await self._store.do(lambda tx: people.set_pool(tx, name, slots, description))
        self._scheduler.wake()

    async def delete_pool(self, name: str) -> None:
        """Remove a pool. Raises `NotFound`, `Conflict`."""
        await self._store.do(lambda tx: people.delete_pool(tx, name))

    async def ask_now(self, *, attempt_id: str | None, hook: str | None) -> int:
        """Have held attempts asked now (R6.3). Returns how many."""
        count = await self._store.do(lambda tx: people.ask_now(tx, attempt_id=attempt_id, hook=hook))
        self._dispatcher.wake()
        return count

    async def hooks_status(self) -> Sequence[HookStatus]:
        """Return the hooks in the order in which they are asked."""
        holds = {c.hook: c for c in hold_counts(self._dispatcher.held(), self._clock.now())}
        return [
            HookStatus(
                name=s.name,
                breaker=s.state,
                failures=s.failures,
                next_probe_seconds=s.retry_in,
                last_cause=s.last_cause,
                last_failure_seconds=s.failed_ago,
                held=holds[s.name].held if s.name in holds else 0,
                oldest_hold_seconds=holds[s.name].oldest_seconds if s.name in holds else 0.0,
            )
            for s in self._gate.status()
        ]
