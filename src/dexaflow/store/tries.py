"""The tries of a task: one as the value that walks the line, and how the next follows it."""

from collections.abc import Callable

from dexaflow.base.steps import Step, reached
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.states import ENDED, TRANSITIONS, Event, State
from dexaflow.store.registering import spec_of
from dexaflow.store.schema import ATTEMPT_COLUMNS
from dexaflow.store.transaction import Row, Tx

__all__ = ["RetryRule", "attempt_of", "new_try", "retry_due_attempts"]

# (task, try_number, max_tries) -> seconds until the next try, or None: `scheduling.retries`, handed in
RetryRule = Callable[[TaskSpec, int, int], float | None]

_NOT_CARRIED = (
    "reason = '', hook = '', scheduled_at = NULL, queued_at = NULL, held_at = NULL, next_ask_at = NULL,"
    " next_ask_due = NULL, launched_at = NULL, started_at = NULL, ended_at = NULL, retry_at = NULL, retry_due = NULL,"
    " turn = 0, broken_seconds = 0, broken_since = NULL, launch_id = NULL, stop = NULL, host = '', pid = NULL,"
    " heartbeat_at = NULL, exit_code = NULL, placement = NULL, log_bytes = 0"
)

# The history has no try that goes on: what a person cleared has ended, as a cancel would have ended it.
_AS_ENDED = {
    State.SCHEDULED: State.SKIPPED, State.QUEUED: State.SKIPPED, State.HELD: State.SKIPPED,
    State.LAUNCHING: State.SKIPPED, State.RUNNING: State.FAILED, State.UP_FOR_RETRY: State.FAILED,
}  # fmt: skip


def attempt_of(tx: Tx, row: Row, spec: DagSpec | None = None) -> Attempt:
    """Return the value that walks the line, from a row with an attempt's ids, and its DAG where that is at hand."""
    return Attempt(
        id=row.attempt_id, tenant_id=row.tenant_id, dag_id=row.dag_id, run_id=row.run_id, task_id=row.task_id,
        try_number=row.try_number, task=(spec or spec_of(tx, row.version_id)).task(row.task_id),
    )  # fmt: skip


def retry_due_attempts(tx: Tx, limit: int = 200) -> int:
    """Begin the next try of every attempt whose retry is due. Returns how many."""
    rows = tx.all(
        "SELECT attempt_id FROM task_instances WHERE state = 'up_for_retry' AND retry_due <= :up"
        " ORDER BY retry_due LIMIT :limit",
        up=tx.up, limit=limit,
    )  # fmt: skip
    for row in rows:
        new_try(tx, row.attempt_id, Event.RETRY_DUE, State.UP_FOR_RETRY)
        reached(Step.RETRY_WRITTEN)
    return len(rows)


def new_try(tx: Tx, attempt_id: str, event: Event, *froms: State) -> str | None:
    """Keep this try in the history and begin the next one with nothing carried over. Returns its id, or None if moved.

    No admit, reason or slot of the old try is the new one's (R1.6, R6.3). A try that never came to be due (never
    scheduled) is not counted as one.
    """
    row = tx.one("SELECT * FROM task_instances WHERE attempt_id = :a", a=attempt_id)
    if row is None or State(row.state) not in froms:
        return None
    tried = row.scheduled_at is not None
    if tried:
        columns = ", ".join(ATTEMPT_COLUMNS)
        tx.run(
            f"INSERT INTO attempt_history ({columns}) SELECT {columns} FROM task_instances WHERE attempt_id = :a",
            a=attempt_id,
        )
        tx.run(
            "UPDATE attempt_history SET state = :state, reason = :reason, ended_at = COALESCE(ended_at, :now),"
            " held_at = NULL, next_ask_at = NULL, next_ask_due = NULL, retry_at = NULL, retry_due = NULL"
            " WHERE attempt_id = :a",
            a=attempt_id, now=tx.now_iso, state=str(_AS_ENDED.get(State(row.state), row.state)),
            reason=_why_ended(State(row.state), row.reason),
        )  # fmt: skip
    fresh = tx.new_id()
    # One guarded write moves the state and drops what belonged to the old try.
    target = TRANSITIONS[State(row.state), event]
    cleared = event is Event.CLEARED
    try_number = row.try_number + 1 if tried else row.try_number
    moved = tx.run(
        "UPDATE task_instances SET state = :target, attempt_id = :fresh, try_number = :n, max_tries = :m,"
        f" {_NOT_CARRIED}"
        " WHERE attempt_id = :a AND state = :was",
        target=str(target), fresh=fresh, n=try_number, a=attempt_id, was=row.state,
        m=try_number + spec_of(tx, row.version_id).task(row.task_id).retries if cleared else row.max_tries,
    )  # fmt: skip
    if not moved:
        return None
    tx.moved[target] += 1
    if target is State.SCHEDULED:
        tx.run("UPDATE task_instances SET scheduled_at = :now WHERE attempt_id = :a", now=tx.now_iso, a=fresh)
    tx.run("DELETE FROM results WHERE run_id = :r AND task_id = :t", r=row.run_id, t=row.task_id)
    if cleared:
        tx.run("UPDATE runs SET dirty = true WHERE run_id = :r", r=row.run_id)
    return fresh


def _why_ended(state: State, reason: str) -> str:
    if state in ENDED or state in (State.UP_FOR_RETRY, State.RUNNING):
        return reason
    return f"cleared; was {state}: {reason}" if reason else f"cleared; was {state}"
