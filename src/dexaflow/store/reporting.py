"""What agents and executors say, as guarded moves that name the launch they belong to (R1.7)."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dexaflow.base.steps import Step, reached
from dexaflow.model.dags import TaskSpec
from dexaflow.model.states import ENDED, Event, State
from dexaflow.store.registering import spec_of, version_row
from dexaflow.store.transaction import Row, Tx, from_iso, move
from dexaflow.store.tries import RetryRule, new_try

__all__ = [
    "Beat",
    "Ended",
    "LogPlace",
    "RunningAttempt",
    "Work",
    "append_log",
    "attempt_ended",
    "heartbeat",
    "ids_of",
    "launching_attempts",
    "live_launch",
    "lost",
    "running_attempts",
    "start_failed",
    "started",
]

_OF_LAUNCH = "launch_id = :launch"


@dataclass(frozen=True, slots=True)
class Work:
    """What a started agent is to do."""

    tenant_id: str
    dag_id: str
    run_id: str
    task_id: str
    try_number: int
    task: TaskSpec
    snapshot: str
    file: str
    conf: dict[str, Any]
    logical_date: str | None
    data_interval_start: str | None
    data_interval_end: str | None
    results: dict[str, Any]


def started(tx: Tx, attempt_id: str, launch_id: str, host: str, pid: int) -> Work | None:
    """Accept an agent's `started`, or None: it is not the launch that counts (any more) and must run nothing.

    Said again by the same agent it is accepted again: the first answer may have been lost.
    """
    row = move(
        tx, attempt_id, Event.STARTED, State.LAUNCHING, where=_OF_LAUNCH, params={"launch": launch_id},
        started_at=tx.now_iso, heartbeat_at=tx.now_iso, host=host, pid=pid,
    )  # fmt: skip
    if row is None:
        row = tx.one(
            "SELECT attempt_id, run_id, task_id, dag_id, tenant_id, try_number, version_id FROM task_instances"
            " WHERE attempt_id = :a AND state = 'running' AND launch_id = :l AND host = :host AND pid = :pid",
            a=attempt_id, l=launch_id, host=host, pid=pid,
        )  # fmt: skip
        if row is None:
            return None
    reached(Step.START_WRITTEN)
    return _work(tx, row)


def _work(tx: Tx, row: Row) -> Work:
    version = version_row(tx, row.version_id)
    task = version.spec.task(row.task_id)
    run = tx.one(
        "SELECT conf, logical_date, data_interval_start, data_interval_end FROM runs WHERE run_id = :r", r=row.run_id
    )
    assert run is not None
    results = {
        r.task_id: json.loads(r.value)
        for r in tx.all("SELECT task_id, value FROM results WHERE run_id = :r", r=row.run_id)
        if r.task_id in task.results_from
    } if task.results_from else {}  # fmt: skip
    return Work(
        row.tenant_id, row.dag_id, row.run_id, row.task_id, row.try_number, task, version.snapshot, version.file,
        json.loads(run.conf), run.logical_date, run.data_interval_start, run.data_interval_end, results,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beat:
    """The launch is the one that counts; `stop` says that it is to end, and why."""

    stop: str | None


def heartbeat(tx: Tx, attempt_id: str, launch_id: str) -> Beat | None:
    """Note that an agent lives. None: its launch does not count any more; it must end."""
    row = tx.one(
        "UPDATE task_instances SET heartbeat_at = :now WHERE attempt_id = :a AND launch_id = :l AND state = 'running'"
        " RETURNING stop",
        a=attempt_id, l=launch_id, now=tx.now_iso,
    )  # fmt: skip
    return None if row is None else Beat(row.stop)


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where an attempt's log goes."""

    run_id: str
    task_id: str
    try_number: int


def append_log(tx: Tx, attempt_id: str, launch_id: str, append: Callable[[LogPlace], int]) -> int | None:
    """Keep a piece of a running launch's log and return how much there is; None: the launch does not count."""
    row = tx.one(
        "SELECT run_id, task_id, try_number FROM task_instances"
        " WHERE attempt_id = :a AND launch_id = :l AND state = 'running'",
        a=attempt_id, l=launch_id,
    )  # fmt: skip
    if row is None:
        return None
    size = append(LogPlace(row.run_id, row.task_id, row.try_number))
    tx.run(
        "UPDATE task_instances SET log_bytes = :size, heartbeat_at = :now WHERE attempt_id = :a",
        a=attempt_id, size=size, now=tx.now_iso,
    )  # fmt: skip
    return size


@dataclass(frozen=True, slots=True)
class Ended:
    """How a try ended."""

    state: State
    tenant_id: str
    dag_id: str
    run_id: str
    task_id: str
    try_number: int


def attempt_ended(
    tx: Tx,
    attempt_id: str,
    launch_id: str,
    *,
    succeeded: bool,
    reason: str,
    exit_code: int | None,
    result: bytes | None,
    retry: RetryRule,
    keep_log: Callable[[LogPlace], int] | None = None,
) -> Ended | None:
    """End a running attempt as its agent reported, or as was found when the agent died.

    A stop that was asked for wins over what the agent says (R1.7). Returns None when the launch does not count; the
    same report said again returns the end it had. `keep_log` keeps the last piece of the log; it may be called twice.
    """
    row = tx.one(
        "SELECT attempt_id, tenant_id, dag_id, run_id, task_id, try_number, max_tries, version_id, state, stop"
        " FROM task_instances WHERE attempt_id = :a AND launch_id = :l",
        a=attempt_id, l=launch_id,
    )  # fmt: skip
    if row is None:
        old = tx.one(
            "SELECT tenant_id, dag_id, run_id, task_id, try_number, state FROM attempt_history"
            " WHERE attempt_id = :a AND launch_id = :l",
            a=attempt_id, l=launch_id,
        )  # fmt: skip
        return None if old is None else _ended(State(old.state), old)
    state = State(row.state)
    if state in ENDED or state is State.UP_FOR_RETRY:
        return _ended(state, row)
    if state is not State.RUNNING:
        return None
    columns: dict[str, Any] = {"exit_code": exit_code, "ended_at": tx.now_iso}
    if keep_log is not None:
        columns["log_bytes"] = keep_log(LogPlace(row.run_id, row.task_id, row.try_number))
    if row.stop == "cleared":
        tx.run("UPDATE task_instances SET exit_code = :e, ended_at = :now, reason = 'cleared' WHERE attempt_id = :a",
               e=exit_code, now=tx.now_iso, a=attempt_id)  # fmt: skip
        new_try(tx, attempt_id, Event.CLEARED, State.RUNNING)
        return _ended(State.NONE, row)
    if row.stop is not None:
        moved = move(tx, attempt_id, Event.CANCELLED, State.RUNNING, reason=row.stop, **columns)
    elif succeeded:
        moved = move(tx, attempt_id, Event.SUCCEEDED, State.RUNNING, reason="", **columns)
        if moved is not None and result is not None:
            tx.run("DELETE FROM results WHERE run_id = :r AND task_id = :t", r=row.run_id, t=row.task_id)
            tx.run(
                "INSERT INTO results (run_id, task_id, value) VALUES (:r, :t, :v)",
                r=row.run_id, t=row.task_id, v=result,
            )  # fmt: skip
    else:
        moved = _failed(tx, row, State.RUNNING, Event.FAILED, reason, retry, columns)
    reached(Step.REPORT_WRITTEN)
    return None if moved is None else _ended(State(moved.state), row)


def _ended(state: State, row: Row) -> Ended:
    return Ended(state, row.tenant_id, row.dag_id, row.run_id, row.task_id, row.try_number)


def _failed(
    tx: Tx, row: Row, state: State, event: Event, reason: str, retry: RetryRule, columns: dict[str, Any]
) -> Row | None:
    task = spec_of(tx, row.version_id).task(row.task_id)
    wait = retry(task, row.try_number, row.max_tries)
    if wait is None:
        return move(tx, row.attempt_id, event, state, reason=reason, **columns)
    due = tx.up + wait
    return move(
        tx, row.attempt_id, Event.FAILED_RETRY, state, reason=reason, retry_due=due, retry_at=tx.at(due), **columns
    )


def start_failed(tx: Tx, attempt_id: str, launch_id: str, reason: str, retry: RetryRule) -> bool:
    """The executor could not start it: a failed try; the task's retries apply."""
    row = tx.one(
        "SELECT attempt_id, run_id, task_id, try_number, max_tries, version_id FROM task_instances"
        " WHERE attempt_id = :a AND launch_id = :l AND state = 'launching'",
        a=attempt_id, l=launch_id,
    )  # fmt: skip
    if row is None:
        return False
    return _failed(tx, row, State.LAUNCHING, Event.START_FAILED, reason, retry, {"ended_at": tx.now_iso}) is not None


def lost(tx: Tx, attempt_id: str, launch_id: str) -> bool:
    """Nothing came of a launch: scheduled again, asked anew; the old launch id is worth nothing from now on (R1.7)."""
    return (
        move(
            tx, attempt_id, Event.LOST, State.LAUNCHING, where=_OF_LAUNCH, params={"launch": launch_id},
            launch_id=None, launched_at=None, queued_at=None,
        )
        is not None
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that runs, and when its agent was last heard."""

    attempt_id: str
    launch_id: str
    heard_at: datetime
    stop: str | None


def running_attempts(tx: Tx) -> list[RunningAttempt]:
    """Return every attempt that runs."""
    return [
        RunningAttempt(r.attempt_id, r.launch_id, from_iso(r.heartbeat_at), r.stop)
        for r in tx.all("SELECT attempt_id, launch_id, heartbeat_at, stop FROM task_instances WHERE state = 'running'")
    ]


def launching_attempts(tx: Tx) -> list[tuple[str, str]]:
    """Return (attempt_id, launch_id) of every attempt that is launching."""
    return [
        (r.attempt_id, r.launch_id)
        for r in tx.all("SELECT attempt_id, launch_id FROM task_instances WHERE state = 'launching'")
    ]


def ids_of(tx: Tx, attempt_id: str) -> dict[str, str | int]:
    """Return what a log line about an attempt carries: tenant, DAG, run, task and try; empty when it is not kept."""
    for table in ("task_instances", "attempt_history"):
        row = tx.one(
            f"SELECT tenant_id, dag_id, run_id, task_id, try_number FROM {table} WHERE attempt_id = :a", a=attempt_id
        )
        if row is not None:
            found: dict[str, str | int] = row._asdict()
            return found
    return {}


@dataclass(frozen=True, slots=True)
class LiveLaunch:
    """A launch that counts."""

    attempt_id: str
    state: str  # launching | running
    stop: str | None


def live_launch(tx: Tx, launch_id: str) -> LiveLaunch | None:
    """Return the attempt of a launch that has not ended, or None."""
    row = tx.one(
        "SELECT attempt_id, state, stop FROM task_instances WHERE launch_id = :l AND state IN ('launching', 'running')",
        l=launch_id,
    )
    return None if row is None else LiveLaunch(row.attempt_id, row.state, row.stop)
