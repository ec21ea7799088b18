"""The database as an outsider reads it: on a connection of its own, with statements of its own."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENDED", "IN_USE", "Outside", "ReviewRow", "Row", "Seen", "seen_on"]

ENDED = frozenset({"success", "failed", "upstream_failed", "skipped"})
IN_USE = frozenset({"queued", "launching", "running"})  # what takes slots
_COLUMNS = (
    "attempt_id", "run_id", "task_id", "dag_id", "tenant_id", "try_number", "state", "pool", "pool_slots", "reason",
    "hook", "next_ask_due", "turn", "broken_since", "launch_id", "launched_at", "stop", "retry_due",
)  # fmt: skip
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM task_instances"


@dataclass(frozen=True, slots=True)
class Row:
    """The present try of one task instance."""

    attempt_id: str
    run_id: str
    task_id: str
    dag_id: str
    tenant_id: str
    try_number: int
    state: str
    pool: str
    pool_slots: int
    reason: str
    hook: str
    next_ask_due: float | None
    turn: int
    broken_since: float | None
    launch_id: str | None
    launched_at: str | None
    stop: str | None
    retry_due: float | None

    @property
    def tried(self) -> tuple[str, str, int]:
        return self.run_id, self.task_id, self.try_number


@dataclass(frozen=True, slots=True)
class ReviewRow:
    """One entry of the record of reviews."""

    run_id: str
    task_id: str
    try_number: int
    attempt_id: str
    hook: str
    outcome: str
    reason: str
    changes: str
    uid: str
    incident: str
    last_at: str
    count: int


@dataclass(frozen=True, slots=True)
class Seen:
    """All task instances and pools at one moment, and which DAGs are paused."""

    rows: Mapping[str, Row]  # by attempt id
    pools: Mapping[str, int]
    paused: frozenset[str] = frozenset()


_known: dict[tuple[object, ...], Row] = {}  # equal rows are one object: most of them are as they were
_MANY = 20_000


def seen_on(connection: sqlite3.Connection) -> Seen:
    """Read all there is now."""
    if len(_known) > _MANY:
        _known.clear()
    rows = {}
    for values in connection.execute(_SELECT):
        row = _known.get(values)
        if row is None:
            row = _known[values] = Row(*values)
        rows[row.attempt_id] = row
    paused = frozenset(dag_id for (dag_id,) in connection.execute("SELECT dag_id FROM dags WHERE is_paused"))
    return Seen(rows, dict(connection.execute("SELECT pool, slots FROM pools")), paused)


class Outside:
    """Reads one database."""

    def __init__(self, database: Path) -> None:
        self._connection = sqlite3.connect(database, isolation_level=None)

    def close(self) -> None:
        self._connection.close()

    def seen(self) -> Seen:
        return seen_on(self._connection)

    def placement(self, attempt_id: str) -> str | None:
        found = self._connection.execute(
            "SELECT placement FROM task_instances WHERE attempt_id = ?", (attempt_id,)
        ).fetchone()
        return None if found is None else found[0]

    def reviews(self, attempt_id: str | None = None) -> list[ReviewRow]:
        where = "" if attempt_id is None else " WHERE attempt_id = ?"
        return [
            ReviewRow(*values)
            for values in self._connection.execute(
                "SELECT run_id, task_id, try_number, attempt_id, hook, outcome, reason, changes, uid, incident,"
                f" last_at, count FROM reviews{where} ORDER BY id",
                () if attempt_id is None else (attempt_id,),
            )
        ]

    def history(self) -> dict[str, tuple[str, str, int, str]]:
        """Return run, task, try number and state of every earlier try, by attempt."""
        return {
            a: (r, t, n, s)
            for a, r, t, n, s in self._connection.execute(
                "SELECT attempt_id, run_id, task_id, try_number, state FROM attempt_history"
            )
        }

    def runs(self) -> dict[str, tuple[str, str]]:
        """Return state and DAG of every run."""
        return {r: (s, d) for r, s, d in self._connection.execute("SELECT run_id, state, dag_id FROM runs")}
