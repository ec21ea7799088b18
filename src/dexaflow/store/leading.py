"""Who may dispatch, how long control planes have been up, and what a new one finds."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from dexaflow.base.steps import Step, reached
from dexaflow.model.states import Event, State
from dexaflow.store.transaction import Tx, from_iso, move

__all__ = ["Found", "read_up", "recover", "take_lead", "tick"]


@dataclass(frozen=True, slots=True)
class Found:
    """What a new control plane found: attempts whose agents it must look for."""

    launching: tuple[tuple[str, str], ...]  # (attempt_id, launch_id)
    running: tuple[tuple[str, str], ...]
    requeued: int  # queued attempts sent back to be asked anew


def read_up(tx: Tx) -> float:
    """Return `up_seconds` as last kept; 0 for a new database."""
    row = tx.one("SELECT up_seconds FROM leader WHERE id = 1")
    return 0.0 if row is None else float(row.up_seconds)


def _last_up(tx: Tx) -> datetime | None:
    """Return when a control plane was last known to be up; None for a new database."""
    row = tx.one("SELECT ticked_at FROM leader WHERE id = 1")
    return None if row is None else from_iso(row.ticked_at)


def take_lead(tx: Tx) -> int:
    """Begin a new term and return it: from now on no earlier control plane can write (R1.7)."""
    row = tx.one("UPDATE leader SET term = term + 1 WHERE id = 1 RETURNING term")
    reached(Step.LEAD_WRITTEN)
    if row is not None:
        return int(row.term)
    tx.run("INSERT INTO leader (id, term, up_seconds, ticked_at) VALUES (1, 1, :up, :now)", up=tx.up, now=tx.now_iso)
    return 1


def tick(tx: Tx) -> None:
    """Keep how long control planes have been up, so that a crash costs at most the time since the last tick."""
    tx.run("UPDATE leader SET up_seconds = :up, ticked_at = :now WHERE id = 1", up=tx.up, now=tx.now_iso)


def recover(tx: Tx) -> Found:
    """Make what an earlier control plane left fit to go on (R10.3, R6.4).

    `queued` goes back to `scheduled` and is asked anew: no answer of an earlier term is used. Waits that ran out while
    nothing was up are due now; broken waiting is not counted for that time (R7.2).
    """
    seen = _last_up(tx)
    if seen is not None:
        away = (tx.now - seen) / timedelta(seconds=1)
        if away > 0:  # a clock that was set back meanwhile shortens nothing
            tx.run("UPDATE task_instances SET next_ask_due = next_ask_due - :away WHERE state = 'held'", away=away)
            tx.run("UPDATE task_instances SET retry_due = retry_due - :away WHERE state = 'up_for_retry'", away=away)
            tx.run("UPDATE runs SET timeout_due = timeout_due - :away WHERE timeout_due IS NOT NULL", away=away)
    requeued = 0
    for queued in tx.all("SELECT attempt_id FROM task_instances WHERE state = 'queued'"):
        if move(tx, queued.attempt_id, Event.REQUEUED, State.QUEUED, queued_at=None) is not None:
            requeued += 1
    launching = tx.all("SELECT attempt_id, launch_id FROM task_instances WHERE state = 'launching'")
    running = tx.all("SELECT attempt_id, launch_id FROM task_instances WHERE state = 'running'")
    tx.run("UPDATE runs SET dirty = true WHERE state = 'running'")
    tick(tx)
    reached(Step.RECOVERY_WRITTEN)
    return Found(
        tuple((r.attempt_id, r.launch_id) for r in launching),
        tuple((r.attempt_id, r.launch_id) for r in running),
        requeued,
    )
