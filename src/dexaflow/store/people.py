"""What people ask for: cancel, clear, pause, pools, ask now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dexaflow.base.errors import Conflict, UsageError, not_found
from dexaflow.base.steps import Step, reached
from dexaflow.model.clearing import tasks_to_clear
from dexaflow.model.states import RUN_ENDED, Event, RunState, State
from dexaflow.store.registering import spec_of
from dexaflow.store.running import end_run
from dexaflow.store.transaction import Tx, move
from dexaflow.store.tries import new_try

__all__ = [
    "ToKill",
    "ask_now",
    "cancel_run",
    "clear_tasks",
    "delete_pool",
    "ensure_default_pool",
    "set_note",
    "set_paused",
    "set_pool",
]

DEFAULT_POOL = "default_pool"
DEFAULT_POOL_SLOTS = 128  # Airflow's


@dataclass(frozen=True, slots=True)
class ToKill:
    """Launches whose processes must end, and attempts that wait no longer."""

    launches: tuple[tuple[str, str], ...]  # (attempt_id, launch_id)
    unheld: tuple[str, ...]


_BEFORE_RUNNING = (
    State.NONE, State.SCHEDULED, State.QUEUED, State.HELD, State.LAUNCHING, State.UP_FOR_RETRY,
)  # fmt: skip


def cancel_run(tx: Tx, run_id: str, why: str) -> ToKill:
    """End a run: what has not begun to run is skipped at once, what runs is told to end and then fails (R6.3).

    Args:
        why: What is shown, with by whom: "cancelled by alice".

    Raises:
        NotFound: there is no such run.
        Conflict: it has ended.
    """
    run = tx.one("SELECT state, stop FROM runs WHERE run_id = :r", r=run_id)
    if run is None:
        raise not_found("run", run_id)
    if RunState(run.state) in RUN_ENDED:
        raise Conflict(f"run '{run_id}' has ended ({run.state}); there is nothing to cancel")
    launches: list[tuple[str, str]] = []
    unheld: list[str] = []
    runs_on = False
    for ti in tx.all("SELECT attempt_id, state, launch_id FROM task_instances WHERE run_id = :r", r=run_id):
        state = State(ti.state)
        if state is State.RUNNING:
            runs_on = True
            tx.run("UPDATE task_instances SET stop = :why WHERE attempt_id = :a AND state = 'running'",
                   why=why, a=ti.attempt_id)  # fmt: skip
            launches.append((ti.attempt_id, ti.launch_id))
        elif state in _BEFORE_RUNNING:
            columns: dict[str, Any] = {"next_ask_at": None, "next_ask_due": None, "held_at": None, "broken_since": None,
                                       "retry_at": None, "retry_due": None}  # fmt: skip
            if state is State.HELD:
                unheld.append(ti.attempt_id)
            if state is State.LAUNCHING:
                launches.append((ti.attempt_id, ti.launch_id))
            if state is not State.UP_FOR_RETRY:  # that try has ended when it failed
                columns["ended_at"] = tx.now_iso
            move(tx, ti.attempt_id, Event.CANCELLED, state, reason=why, **columns)
    if not run.stop:  # asked for twice it is noted once
        tx.run(
            "UPDATE runs SET stop = :why, note = CASE WHEN note = '' THEN :why ELSE note || '; ' || :why END,"
            " dirty = true, timeout_due = NULL WHERE run_id = :r",
            r=run_id, why=why,
        )  # fmt: skip
    if not runs_on:
        end_run(tx, run_id, RunState.FAILED)
    reached(Step.CANCEL_WRITTEN)
    return ToKill(tuple(launches), tuple(unheld))


def clear_tasks(
    tx: Tx, run_id: str, task_ids: Sequence[str] | None, *, downstream: bool, only_failed: bool
) -> tuple[tuple[str, ...], ToKill]:
    """Give tasks a new try with nothing carried over (R6.3); a hold ends at once. Returns the tasks cleared.

    What runs is told to end first: its new try begins when its processes are dead. A run that has ended begins anew,
    as Airflow's do: it waits for `max_active_runs`, and its `dagrun_timeout` counts from then.

    Args:
        task_ids: None for all tasks of the run.
        downstream: Also everything that depends on them.
        only_failed: Only those that failed, or failed upstream.

    Raises:
        NotFound: no such run or task.
    """
    run = tx.one("SELECT version_id, state, stop, note FROM runs WHERE run_id = :r", r=run_id)
    if run is None:
        raise not_found("run", run_id)
    spec = spec_of(tx, run.version_id)
    found = tx.all("SELECT attempt_id, task_id, state, launch_id FROM task_instances WHERE run_id = :r", r=run_id)
    by_task = {ti.task_id: ti for ti in found}
    states = {task_id: ti.state for task_id, ti in by_task.items()}
    cleared = tasks_to_clear(spec, states, task_ids, downstream=downstream, only_failed=only_failed)
    launches: list[tuple[str, str]] = []
    unheld: list[str] = []
    for ti in (by_task[task_id] for task_id in cleared):
        state = State(ti.state)
        if state is State.RUNNING:
            tx.run("UPDATE task_instances SET stop = 'cleared' WHERE attempt_id = :a AND state = 'running'",
                   a=ti.attempt_id)  # fmt: skip
            launches.append((ti.attempt_id, ti.launch_id))
        else:
            if state is State.LAUNCHING:
                launches.append((ti.attempt_id, ti.launch_id))
            if state is State.HELD:
                unheld.append(ti.attempt_id)
            new_try(tx, ti.attempt_id, Event.CLEARED, state)
    if cleared and run.stop:  # why it ended is true of its earlier tries alone, and stays with them
        note = run.note.removesuffix(run.stop).removesuffix("; ")
        tx.run("UPDATE runs SET note = :n WHERE run_id = :r", n=note, r=run_id)
    if cleared and RunState(run.state) in RUN_ENDED:
        tx.run(
            "UPDATE runs SET state = 'queued', stop = '', started_at = NULL, ended_at = NULL, timeout_due = NULL"
            " WHERE run_id = :r",
            r=run_id,
        )
    elif cleared and run.stop:  # it was about to end: what runs still fails, but the run goes on
        limit = spec.dagrun_timeout
        tx.run(
            "UPDATE runs SET stop = '', dirty = true, timeout_due = :due WHERE run_id = :r",
            r=run_id, due=None if limit is None else tx.up + limit,
        )  # fmt: skip
    reached(Step.CLEAR_WRITTEN)
    return cleared, ToKill(tuple(launches), tuple(unheld))


def set_paused(tx: Tx, dag_id: str, *, paused: bool, by: str = "") -> None:
    """Pause or unpause a DAG, noting since when and by whom; of one that is paused already the first stays noted.

    Raises `NotFound`.
    """
    if not tx.run(
        "UPDATE dags SET is_paused = :p, updated_at = :now,"
        " paused_by = CASE WHEN NOT :p THEN '' WHEN is_paused THEN paused_by ELSE :by END,"
        " paused_at = CASE WHEN NOT :p THEN NULL WHEN is_paused THEN paused_at ELSE :now END WHERE dag_id = :d",
        p=paused, d=dag_id, now=tx.now_iso, by=by,
    ):  # fmt: skip
        raise not_found("DAG", dag_id)


def set_note(tx: Tx, run_id: str, note: str) -> None:
    """Set a run's note. Raises `NotFound`."""
    if not tx.run("UPDATE runs SET note = :n WHERE run_id = :r", n=note, r=run_id):
        raise not_found("run", run_id)


def ensure_default_pool(tx: Tx) -> None:
    """Make `default_pool` if there is none."""
    if tx.one("SELECT 1 FROM pools WHERE pool = :p", p=DEFAULT_POOL) is None:
        set_pool(tx, DEFAULT_POOL, DEFAULT_POOL_SLOTS, "Where tasks go that name no pool")


def set_pool(tx: Tx, name: str, slots: int, description: str | None) -> None:
    """Make a pool or change it; slots in use beyond a smaller size stay until their attempts end."""
    if slots < 0:
        raise UsageError(f"pool '{name}': {slots} slots; give 0 or more")
    if tx.run("UPDATE pools SET slots = :s, description = COALESCE(:d, description) WHERE pool = :p",
              s=slots, d=description, p=name):  # fmt: skip
        return
    tx.run("INSERT INTO pools (pool, slots, description) VALUES (:p, :s, :d)", p=name, s=slots, d=description or "")


def delete_pool(tx: Tx, name: str) -> None:
    """Remove a pool. Raises `NotFound`, `Conflict` (the default pool stays; so does one in use)."""
    if name == DEFAULT_POOL:
        raise Conflict(f"{DEFAULT_POOL} cannot be deleted; set its slots instead")
    if tx.one(
        "SELECT 1 FROM task_instances WHERE pool = :p AND state IN ('queued', 'launching', 'running') LIMIT 1", p=name
    ):
        raise Conflict(f"pool '{name}' is in use; wait for its tasks to end, or set its slots to 0")
    if not tx.run("DELETE FROM pools WHERE pool = :p", p=name):
        raise not_found("pool", name)


def ask_now(tx: Tx, *, attempt_id: str | None, hook: str | None) -> int:
    """Make one held attempt, or all held by a hook, due to be asked now (R6.3). Returns how many."""
    if attempt_id is not None:
        return tx.run(
            "UPDATE task_instances SET next_ask_due = :up, next_ask_at = :now WHERE attempt_id = :a AND state = 'held'",
            up=tx.up, now=tx.now_iso, a=attempt_id,
        )  # fmt: skip
    return tx.run(
        "UPDATE task_instances SET next_ask_due = :up, next_ask_at = :now WHERE hook = :h AND state = 'held'",
        up=tx.up, now=tx.now_iso, h=hook,
    )  # fmt: skip
