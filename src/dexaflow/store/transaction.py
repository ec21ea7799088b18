"""One short transaction: the connection, what time it is in it, and the guarded move.

Every verb of the store is a function whose first argument is a `Tx`; a batch of verbs shares one transaction.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Row, TextClause, text

from dexaflow.base.errors import TermLost
from dexaflow.model.states import ENDED, TRANSITIONS, Event, State

__all__ = ["Tx", "from_iso", "iso", "move", "require_term"]


def iso(moment: datetime) -> str:
    """Return an aware time as the text kept in the database: UTC, microseconds, sorts by time."""
    # Not strftime: it writes the year 999 with three digits, which neither sorts nor can be read again.
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def from_iso(value: str) -> datetime:
    """Return the aware UTC time of a kept text."""
    return datetime.fromisoformat(value)


@dataclass(frozen=True, slots=True)
class Tx:
    """What a verb works with.

    `now` is the wall clock, for people; `up` is seconds on the control plane's own clock (`leader.up_seconds`), for
    every wait: it never jumps. `new_id` draws a fresh id. `moved` counts the attempts that came into each state, to be
    told once the transaction is committed.
    """

    conn: Connection
    now: datetime
    up: float
    new_id: Callable[[], str]
    moved: Counter[State] = field(default_factory=Counter)

    @property
    def now_iso(self) -> str:
        return iso(self.now)

    def at(self, up: float) -> str:
        """Return the wall-clock text for a moment on the `up` clock."""
        return iso(self.now + timedelta(seconds=min(up - self.up, 3.2e8)))

    def all(self, sql: str, **values: Any) -> list[Row[Any]]:
        return list(self.conn.execute(_text(sql), values).all())

    def one(self, sql: str, **values: Any) -> Row[Any] | None:
        return self.conn.execute(_text(sql), values).first()

    def run(self, sql: str, **values: Any) -> int:
        """Execute and return the number of rows touched."""
        return self.conn.execute(_text(sql), values).rowcount

    def many(self, sql: str, rows: list[Mapping[str, Any]]) -> None:
        if rows:
            self.conn.execute(_text(sql), [dict(r) for r in rows])


@lru_cache(maxsize=512)
def _text(sql: str) -> TextClause:
    return text(sql)


def require_term(tx: Tx, term: int) -> None:
    """Check that the control plane of `term` still leads. Raises `TermLost` (every leader's write carries its term)."""
    row = tx.one("SELECT term FROM leader WHERE id = 1")
    if row is None or row.term != term:
        raise TermLost("another control plane has taken over this database; this one stops dispatching")


@lru_cache(maxsize=256)
def _move_sql(event: Event, froms: tuple[State, ...], columns: tuple[str, ...], where: str) -> str:
    targets = {TRANSITIONS[state, event] for state in froms}  # KeyError: the table forbids it
    if len(targets) != 1:
        raise ValueError(f"{event} leads to several states from {froms}")
    (target,) = targets
    sets = "".join(f", {c} = :{c}" for c in columns)
    names = ", ".join(f"'{s}'" for s in froms)
    return (
        f"UPDATE task_instances SET state = '{target}'{sets} WHERE attempt_id = :attempt_id AND state IN ({names})"
        f"{' AND ' + where if where else ''}"
        " RETURNING attempt_id, run_id, task_id, dag_id, tenant_id, try_number, max_tries, version_id, state"
    )


def move(
    tx: Tx,
    attempt_id: str,
    event: Event,
    *froms: State,
    where: str = "",
    params: Mapping[str, Any] | None = None,
    **columns: Any,
) -> Row[Any] | None:
    """Make one guarded move: the only way a task instance changes its state.

    Returns None when the attempt was not in one of `froms` (someone else moved it first), or `where` did not hold.
    An attempt that ends makes its run due for the scheduler, in the same transaction.

    Raises:
        KeyError: the state table forbids the move.
    """
    sql = _move_sql(event, froms, tuple(columns), where)
    row = tx.one(sql, attempt_id=attempt_id, **columns, **(params or {}))
    if row is not None:
        state = State(row.state)
        tx.moved[state] += 1
        if state in ENDED:
            tx.run("UPDATE runs SET dirty = true WHERE run_id = :run_id", run_id=row.run_id)
    return row
