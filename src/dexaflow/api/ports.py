"""What the API needs from the rest of the control plane, as protocols: it answers HTTP and dispatches nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from dexaflow.admission.breaker import BreakerState

__all__ = ["Commands", "Health", "HookStatus", "LogReader", "SleepingWatch", "Watch"]


@dataclass(frozen=True, slots=True)
class HookStatus:
    """One hook as an operator sees it, whose eyes alone its cause is for (R7.2); nothing in it is secret."""

    name: str
    breaker: BreakerState
    failures: int  # in a row
    next_probe_seconds: float | None  # until one attempt is tried; None unless open
    last_cause: str  # of its latest failure, fit for an operator; "" when it never failed
    last_failure_seconds: float | None  # since that failure; None when it never failed
    held: int  # attempts it holds now
    oldest_hold_seconds: float  # how long the one held longest has been held


@dataclass(frozen=True, slots=True)
class Health:
    """How the control plane is. `live` false: restart it. `ready` false: send it nothing yet; `why` says why."""

    live: bool
    ready: bool
    database: bool
    scheduler: bool  # this process leads and its loops run
    scheduler_heartbeat: datetime | None = None  # aware
    loader: bool | None = None  # it follows the DAG folders; None: this process loads no DAGs
    loader_heartbeat: datetime | None = None
    why: str = ""


class Commands(Protocol):
    """What people may ask for. Every method is done when it returns.

    Raises `NotFound`, `Conflict` or `UsageError` with a line for the person who asked, `StoreError` when the database
    cannot be used. `by` names who asked, as they said it.
    """

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
        """Make a manual run and return its id, a new time-ordered one when `run_id` is None."""
        ...

    async def cancel(self, run_id: str, *, by: str) -> None:
        """End a run and its holds at once (R6.3)."""
        ...

    async def clear(
        self, run_id: str, *, task_ids: Sequence[str] | None, downstream: bool, only_failed: bool, by: str
    ) -> Sequence[str]:
        """Give tasks (None: all) a new try with nothing carried over (R6.3). Returns the ids of the tasks cleared."""
        ...

    async def set_paused(self, dag_id: str, *, paused: bool, by: str) -> None:
        """Pause or unpause a DAG."""
        ...

    async def set_note(self, run_id: str, note: str) -> None:
        """Set a run's note."""
        ...

    async def set_pool(self, name: str, *, slots: int, description: str | None) -> None:
        """Make a pool or change it; None leaves the description as it is."""
        ...

    async def delete_pool(self, name: str) -> None:
        """Remove a pool."""
        ...

    async def ask_now(self, *, attempt_id: str | None, hook: str | None) -> int:
        """Have one held attempt, or all held by one hook, asked now (R6.3). Returns how many."""
        ...

    async def hooks_status(self) -> Sequence[HookStatus]:
        """Return the configured hooks in the order in which they are asked."""
        ...


class LogReader(Protocol):
    """Where the logs of tasks are. Synchronous; called in a thread."""

    def read(self, run_id: str, task_id: str, try_number: int, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes from byte `offset`; empty where there is nothing (yet)."""
        ...


class Watch(Protocol):
    """Tells when a run may have changed."""

    async def changed(self, run_id: str) -> None:
        """Return when the run may have changed, or after a short while in any case."""
        ...


class SleepingWatch:
    """A watch that knows nothing: look again every `seconds`."""

    def __init__(self, seconds: float = 0.3) -> None:
        self._seconds = seconds

    async def changed(self, run_id: str) -> None:
        await asyncio.sleep(self._seconds)
