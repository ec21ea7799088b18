"""What readers get: one frozen value for each kind of row, times as the ISO 8601 text that is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from dexaflow.model.dags import DagSpec

__all__ = [
    "AttemptRow",
    "DagErrorRow",
    "DagRow",
    "Page",
    "PoolRow",
    "ResultRow",
    "ReviewRow",
    "RunRow",
    "VersionRow",
    "WatchedTask",
]

T = TypeVar("T")


def _seconds_between(start: str | None, end: str | None) -> float | None:
    if start is None or end is None:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some rows of a list, and how many there are in all."""

    rows: Sequence[T]
    total: int


@dataclass(frozen=True, slots=True)
class DagRow:
    """One DAG with its latest version."""

    dag_id: str
    tenant_id: str
    file: str
    is_paused: bool
    paused_at: str | None
    paused_by: str
    is_active: bool
    registered_at: str
    updated_at: str
    next_run_at: str | None
    last_logical_date: str | None
    version_id: int
    version_number: int
    version_created_at: str
    has_errors: bool  # something is wrong with its file now
    spec: DagSpec


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of a DAG."""

    id: int
    dag_id: str
    number: int
    created_at: str


@dataclass(frozen=True, slots=True)
class DagErrorRow:
    """One thing that is wrong with a DAG file now (R2.2)."""

    id: int
    tenant_id: str
    file: str
    line: int
    cause: str
    seen_at: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One DAG run. `conf` is JSON text; `stop` says why it was told to end, "" when it was not.

    `waits_because` says why it begins nothing: its DAG is paused, or its turn has not come; "" when neither is so.
    """

    run_id: str
    dag_id: str
    tenant_id: str
    version_id: int
    version_number: int
    version_created_at: str
    run_type: str
    state: str
    logical_date: str | None
    data_interval_start: str | None
    data_interval_end: str | None
    run_after: str
    queued_at: str
    started_at: str | None
    ended_at: str | None
    conf: str
    note: str
    triggered_by: str
    stop: str
    waits_because: str

    @property
    def seconds(self) -> float | None:
        """How long it ran, None until it has ended."""
        return _seconds_between(self.started_at, self.ended_at)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One try of a task instance, the present one or an earlier one, with what its run and version say.

    `placement` is JSON text (R9.2), None before own checks have passed.
    """

    attempt_id: str
    run_id: str
    task_id: str
    dag_id: str
    tenant_id: str
    version_id: int
    version_number: int
    version_created_at: str
    try_number: int
    max_tries: int
    state: str
    operator: str
    pool: str
    pool_slots: int
    reason: str
    hook: str
    scheduled_at: str | None
    queued_at: str | None
    held_at: str | None
    next_ask_at: str | None
    launched_at: str | None
    started_at: str | None
    ended_at: str | None
    retry_at: str | None
    broken_seconds: float
    broken_since: float | None
    launch_id: str | None
    stop: str | None
    host: str
    pid: int | None
    heartbeat_at: str | None
    exit_code: int | None
    placement: str | None
    log_bytes: int
    logical_date: str | None
    run_after: str

    @property
    def seconds(self) -> float | None:
        """How long it ran, None until it has ended."""
        return _seconds_between(self.started_at, self.ended_at)


@dataclass(frozen=True, slots=True)
class WatchedTask:
    """What changes about a task instance while someone watches its run."""

    task_id: str
    try_number: int
    state: str
    reason: str
    hook: str
    next_ask_at: str | None
    retry_at: str | None


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """One hook's answers to one attempt; equal answers in a row are one entry (R9.2). `changes` is JSON text."""

    id: int
    attempt_id: str
    run_id: str
    task_id: str
    try_number: int
    hook: str
    outcome: str
    reason: str
    changes: str
    uid: str
    incident: str
    seconds: float
    first_at: str
    last_at: str
    count: int


@dataclass(frozen=True, slots=True)
class PoolRow:
    """One pool and what its slots are doing now. Held attempts occupy none (R6.1)."""

    pool: str
    slots: int
    description: str
    running: int  # slots of running attempts
    queued: int  # slots of attempts that are queued or launching
    scheduled: int  # slots that scheduled attempts wait for


@dataclass(frozen=True, slots=True)
class ResultRow:
    """What a task returned: JSON, as bytes."""

    task_id: str
    value: bytes
    ended_at: str | None
    logical_date: str | None
    run_after: str
    dag_id: str
    run_id: str
