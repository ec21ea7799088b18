"""Runs: made by schedule or by a person, and advanced as their tasks end."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dexaflow.base.errors import Conflict, UsageError, not_found
from dexaflow.base.steps import Step, reached
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import ENDED, Event, RunState, State
from dexaflow.store.registering import NextRun, spec_if_readable, spec_of
from dexaflow.store.transaction import Row, Tx, from_iso, iso, move

__all__ = [
    "Advance",
    "Advanced",
    "NewRun",
    "advance_runs",
    "create_run",
    "due_dags",
    "end_run",
    "make_no_runs",
    "next_due",
    "plan_next",
    "room_for_runs",
    "runs_timed_out",
]

# (dag, states by task) -> (moves, each with its reason; the end): `scheduling.progress`, handed in to keep rules pure
Advance = Callable[[DagSpec, Mapping[str, State]], tuple[tuple[tuple[str, Event, str], ...], RunState | None]]


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run about to be made."""

    run_id: str
    run_type: str  # scheduled | manual
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    conf: Mapping[str, Any]
    triggered_by: str
    note: str = ""


def create_run(tx: Tx, dag_id: str, new: NewRun) -> bool:
    """Make a run of the DAG's latest version with all its task instances, waiting.

    Returns False when the schedule made this very run before. Raises `NotFound`, `Conflict`, `UsageError`.
    """
    dag = tx.one("SELECT tenant_id, version_id, is_active FROM dags WHERE dag_id = :d", d=dag_id)
    if dag is None:
        raise not_found("DAG", dag_id)
    if not dag.is_active:
        raise Conflict(f"the file of DAG '{dag_id}' is gone; bring it back to run it")
    if tx.one("SELECT 1 FROM runs WHERE run_id = :r", r=new.run_id) is not None:
        raise Conflict(f"a run '{new.run_id}' exists already; choose another run id")
    try:
        logical = None if new.logical_date is None else iso(new.logical_date)
    except OverflowError:
        raise UsageError("the logical date lies outside the calendar in UTC; choose a later or earlier one") from None
    if logical is not None and tx.one(
        "SELECT 1 FROM runs WHERE dag_id = :d AND run_type = :t AND logical_date = :l",
        d=dag_id, t=new.run_type, l=logical,
    ) is not None:  # fmt: skip
        if new.run_type == "scheduled":
            return False
        raise Conflict(f"DAG '{dag_id}' has a run for {logical} already; choose another logical date")
    spec = spec_of(tx, dag.version_id)
    tx.run(
        "INSERT INTO runs (run_id, dag_id, tenant_id, version_id, run_type, state, logical_date, data_interval_start,"
        " data_interval_end, run_after, queued_at, conf, note, triggered_by, dirty)"
        " VALUES (:run_id, :dag_id, :tenant_id, :version_id, :run_type, 'queued', :logical, :start, :end, :now, :now,"
        " :conf, :note, :by, false)",
        run_id=new.run_id, dag_id=dag_id, tenant_id=dag.tenant_id, version_id=dag.version_id, run_type=new.run_type,
        logical=logical,
        start=None if new.data_interval_start is None else iso(new.data_interval_start),
        end=None if new.data_interval_end is None else iso(new.data_interval_end),
        now=tx.now_iso, conf=json.dumps(new.conf), note=new.note, by=new.triggered_by,
    )  # fmt: skip
    tx.many(
        "INSERT INTO task_instances (attempt_id, run_id, task_id, dag_id, tenant_id, version_id, try_number, max_tries,"
        " state, operator, pool, pool_slots) VALUES (:attempt_id, :run_id, :task_id, :dag_id, :tenant_id, :version_id,"
        " 1, :max_tries, 'none', :operator, :pool, :pool_slots)",
        [
            {
                "attempt_id": tx.new_id(), "run_id": new.run_id, "task_id": t.task_id, "dag_id": dag_id,
                "tenant_id": dag.tenant_id, "version_id": dag.version_id, "max_tries": t.retries + 1,
                "operator": t.operator, "pool": t.pool, "pool_slots": t.pool_slots,
            }
            for t in spec.tasks
        ],
    )  # fmt: skip
    reached(Step.RUN_WRITTEN)
    return True


def due_dags(tx: Tx, limit: int = 50) -> list[Row]:
    """Return active, unpaused DAGs whose schedule is due, with what it takes to plan their next run."""
    return tx.all(
        "SELECT dag_id, version_id, last_logical_date, registered_at FROM dags"
        " WHERE is_active AND NOT is_paused AND next_run_at IS NOT NULL AND next_run_at <= :now"
        " ORDER BY next_run_at LIMIT :limit",
        now=tx.now_iso, limit=limit,
    )  # fmt: skip


def plan_next(tx: Tx, dag_id: str, last: datetime | None, next_run: NextRun) -> None:
    """Note when the schedule makes the DAG's next run, after the one of logical date `last`."""
    row = tx.one("SELECT version_id, registered_at, last_logical_date FROM dags WHERE dag_id = :d", d=dag_id)
    if row is None:
        return
    if last is None and row.last_logical_date is not None:
        last = from_iso(row.last_logical_date)
    spec = spec_if_readable(tx, row.version_id)
    due = None if spec is None else next_run(spec, last, from_iso(row.registered_at))
    tx.run(
        "UPDATE dags SET last_logical_date = :last, next_run_at = :due WHERE dag_id = :d",
        d=dag_id, last=None if last is None else iso(last), due=None if due is None else iso(due),
    )  # fmt: skip


def _start_queued_runs(tx: Tx) -> None:
    """Let queued runs begin where `max_active_runs` allows and the DAG is not paused; the oldest first."""
    dag_id = ""
    while True:  # one probe of the index a DAG, however many of its runs wait
        found = tx.one(
            "SELECT MIN(dag_id) AS dag_id FROM runs WHERE state = 'queued' AND dag_id > :after", after=dag_id
        )
        if found is None or found.dag_id is None:
            return
        dag_id = found.dag_id
        row = tx.one("SELECT version_id FROM dags WHERE dag_id = :d AND NOT is_paused", d=dag_id)
        if row is not None:
            _start_runs_of(tx, dag_id, row.version_id)


def _start_runs_of(tx: Tx, dag_id: str, version_id: int) -> None:
    spec = spec_if_readable(tx, version_id)
    if spec is None:
        return
    active = tx.one("SELECT COUNT(*) AS n FROM runs WHERE dag_id = :d AND state = 'running'", d=dag_id)
    room = spec.max_active_runs - (0 if active is None else active.n)
    if room <= 0:
        return
    for run in tx.all(
        "SELECT run_id, version_id FROM runs WHERE dag_id = :d AND state = 'queued'"
        " ORDER BY queued_at, run_id LIMIT :n",
        d=dag_id, n=room,
    ):  # fmt: skip
        own = spec_if_readable(tx, run.version_id)
        timeout = None if own is None else own.dagrun_timeout
        tx.run(
            "UPDATE runs SET state = 'running', started_at = :now, dirty = true, timeout_due = :due"
            " WHERE run_id = :r AND state = 'queued'",
            r=run.run_id, now=tx.now_iso, due=None if timeout is None else tx.up + timeout,
        )  # fmt: skip


def room_for_runs(tx: Tx, dag_id: str, spec: DagSpec) -> bool:
    """Whether the schedule may make one more run: those that have not ended count, as Airflow counts them.

    So a long catchup makes its runs as they come to run, and not a million at once.
    """
    unended = tx.all(
        "SELECT 1 FROM runs WHERE dag_id = :d AND state IN ('queued', 'running') LIMIT :n",
        d=dag_id, n=spec.max_active_runs,
    )  # fmt: skip
    return len(unended) < spec.max_active_runs


def make_no_runs(tx: Tx, dag_id: str) -> None:
    """The schedule makes no run of this DAG before one of its runs has ended (see `end_run`), or its file changed."""
    tx.run("UPDATE dags SET next_run_at = NULL WHERE dag_id = :d", d=dag_id)


def end_run(tx: Tx, run_id: str, state: RunState) -> None:
    """A run has ended; if its DAG's schedule waits for that, it is looked at again."""
    row = tx.one(
        "UPDATE runs SET state = :state, ended_at = :now, timeout_due = NULL, dirty = false"
        " WHERE run_id = :r AND state IN ('queued', 'running') RETURNING dag_id",
        r=run_id, state=str(state), now=tx.now_iso,
    )  # fmt: skip
    reached(Step.RUN_ENDED)
    dag = None if row is None else tx.one(
        "SELECT dag_id, version_id FROM dags WHERE dag_id = :d AND is_active AND next_run_at IS NULL", d=row.dag_id
    )  # fmt: skip
    spec = None if dag is None else spec_if_readable(tx, dag.version_id)
    if dag is not None and spec is not None and spec.schedule is not None:
        tx.run("UPDATE dags SET next_run_at = :now WHERE dag_id = :d", d=dag.dag_id, now=tx.now_iso)


@dataclass(frozen=True, slots=True)
class Advanced:
    """What `advance_runs` did."""

    looked_at: int
    ended: int  # so that runs that wait for `max_active_runs` may begin


def advance_runs(tx: Tx, advance: Advance, limit: int) -> Advanced:
    """Start queued runs, and look at every run in which something ended.

    Runs of a paused DAG wait as they are, as Airflow's do.
    """
    _start_queued_runs(tx)
    rows = tx.all(
        "SELECT r.run_id, r.dag_id, r.version_id, r.stop FROM runs r JOIN dags d ON d.dag_id = r.dag_id"
        " WHERE r.dirty AND r.state = 'running' AND (NOT d.is_paused OR r.stop <> '') ORDER BY r.run_id LIMIT :limit",
        limit=limit,
    )
    ended = sum(_advance_run(tx, row, advance) for row in rows)
    return Advanced(len(rows), ended)


def _advance_run(tx: Tx, run: Row, advance: Advance) -> bool:
    if not _anything_follows(tx, run.run_id):
        tx.run("UPDATE runs SET dirty = false WHERE run_id = :r", r=run.run_id)
        return False
    states: dict[str, State] = {}
    attempts: dict[str, str] = {}
    rows = tx.all("SELECT task_id, attempt_id, state FROM task_instances WHERE run_id = :r", r=run.run_id)
    for task_id, attempt_id, state in map(tuple, rows):  # by position and by table: a run may have thousands
        states[task_id] = _STATES[state]
        attempts[task_id] = attempt_id
    if run.stop:
        moves: tuple[tuple[str, Event, str], ...] = ()
        end = RunState.FAILED if all(s in ENDED for s in states.values()) else None
    else:
        spec = spec_if_readable(tx, run.version_id)
        if spec is None:
            tx.run("UPDATE runs SET dirty = false, note = :n WHERE run_id = :r", r=run.run_id, n=_UNREADABLE)
            return False
        moves, end = advance(spec, states)
    for task_id, event, why in moves:
        columns: dict[str, Any] = (
            {"scheduled_at": tx.now_iso} if event is Event.DUE else {"ended_at": tx.now_iso, "reason": why}
        )
        move(tx, attempts[task_id], event, State.NONE, **columns)
        reached(Step.SCHEDULED_WRITTEN)
    tx.run("UPDATE runs SET dirty = false WHERE run_id = :r", r=run.run_id)
    if end is not None:
        end_run(tx, run.run_id, end)
    return end is not None


def _anything_follows(tx: Tx, run_id: str) -> bool:
    """Whether what ended can matter to the run: a task waits for others, or none is left."""
    found = {row.state for row in tx.all("SELECT DISTINCT state FROM task_instances WHERE run_id = :r", r=run_id)}
    return State.NONE in found or found <= ENDED


_STATES = {str(state): state for state in State}
_UNREADABLE = "cannot go on: its version of the DAG was written by another Dexaflow; cancel it and trigger a new run"


def runs_timed_out(tx: Tx) -> list[str]:
    """Return the runs whose dagrun_timeout has passed."""
    rows = tx.all(
        "SELECT run_id FROM runs WHERE timeout_due IS NOT NULL AND timeout_due <= :up AND state = 'running'", up=tx.up
    )
    return [r.run_id for r in rows]


@dataclass(frozen=True, slots=True)
class NextDue:
    """When the scheduler has something to do next without being told."""

    schedule_at: datetime | None  # wall clock
    wait_due: float | None  # on the `up` clock: a retry or a run's timeout


def next_due(tx: Tx) -> NextDue:
    """Return the next moments at which time alone makes something due."""
    schedule = tx.one("SELECT MIN(next_run_at) AS at FROM dags WHERE is_active AND NOT is_paused")
    retry = tx.one("SELECT MIN(retry_due) AS due FROM task_instances WHERE state = 'up_for_retry'")
    timeout = tx.one("SELECT MIN(timeout_due) AS due FROM runs WHERE timeout_due IS NOT NULL")
    dues = [float(r.due) for r in (retry, timeout) if r is not None and r.due is not None]
    at = None if schedule is None or schedule.at is None else from_iso(schedule.at)
    return NextDue(at, min(dues) if dues else None)
