"""What is old enough to go (`history.retention`): runs with all that belongs to them, and versions nobody needs."""

from collections.abc import Sequence

from dexaflow.store.transaction import Tx

__all__ = ["old_runs", "remove_runs", "remove_unused_versions", "snapshots_in_use"]

REMOVED_AT_ONCE = 1_000  # rows; some tens of milliseconds


def old_runs(tx: Tx, ended_before: str, limit: int = 20) -> list[str]:
    """Return runs that ended before a moment (`history.retention`); their logs go first, then they."""
    rows = [
        *tx.all("SELECT run_id FROM runs WHERE state = 'success' AND ended_at < :before ORDER BY ended_at LIMIT :limit",
                before=ended_before, limit=limit),
        *tx.all("SELECT run_id FROM runs WHERE state = 'failed' AND ended_at < :before ORDER BY ended_at LIMIT :limit",
                before=ended_before, limit=limit),
    ]  # fmt: skip
    return [r.run_id for r in rows]


def remove_runs(tx: Tx, run_ids: Sequence[str], ended_before: str, *, at_most: int = REMOVED_AT_ONCE) -> bool:
    """Remove runs with their tries, reviews and results, unless they were cleared meanwhile and run again.

    Stops after `at_most` rows, since the loops wait for the transaction; a run's task instances go with it in one, so
    that nobody finds half of them. Returns whether something may be left to remove.
    """
    removed = 0
    for run_id in run_ids:
        ended = "SELECT 1 FROM runs WHERE run_id = :r AND state IN ('success', 'failed') AND ended_at < :before"
        if tx.one(ended, r=run_id, before=ended_before) is None:
            continue
        for table, key in (("reviews", "id"), ("results", "run_id, task_id"), ("attempt_history", "attempt_id")):
            removed += tx.run(
                f"DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE run_id = :r LIMIT :n)",
                r=run_id, n=at_most - removed,
            )  # fmt: skip
            if removed >= at_most:
                return True
        for table in ("task_instances", "runs"):
            removed += tx.run(f"DELETE FROM {table} WHERE run_id = :r", r=run_id)
        if removed >= at_most:
            return True
    return False


def remove_unused_versions(tx: Tx) -> int:
    """Remove the versions that neither are a DAG's latest nor have a run that is kept. Returns how many."""
    return tx.run(
        "DELETE FROM dag_versions WHERE id NOT IN (SELECT version_id FROM dags)"
        " AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.version_id = dag_versions.id)"
    )


def snapshots_in_use(tx: Tx) -> set[str]:
    """Return the snapshots that a DAG's latest version or a kept run needs."""
    rows = tx.all(
        "SELECT DISTINCT snapshot FROM dag_versions v WHERE id IN (SELECT version_id FROM dags)"
        " OR EXISTS (SELECT 1 FROM runs r WHERE r.version_id = v.id)"
    )
    return {r.snapshot for r in rows}
