"""One short transaction: the connection, what time it is in it, and the guarded move.

Every verb of the store is a function whose first argument is a `Tx`; a batch of verbs shares one transaction.
"""

from collections import Counter, namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import Connection, Dialect, text

from dexaflow.base.errors import TermLost
from dexaflow.model.states import ENDED, TRANSITIONS, Event, State

__all__ = ["Row", "Tx", "from_iso", "iso", "move", "require_term"]


Row: TypeAlias = Any  # a named tuple: its fields are the columns, of whatever type the statement gives them


@lru_cache(maxsize=8)  # a batch writes one moment hundreds of times
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
    every wait: it never jumps. `new_id` draws a fresh id, in production one that sorts behind those before it (R3.1).
    `moved` counts the attempts that came into each state, to be told once the transaction is committed.
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

    def all(self, sql: str, **values: Any) -> list[Row]:
        statement, cursor = self._done(sql, values)
        try:
            return statement.rows(cursor)
        finally:
            cursor.close()

    def one(self, sql: str, **values: Any) -> Row | None:
        """Return the first row, or None."""
        statement, cursor = self._done(sql, values)
        try:
            return statement.row(cursor)
        finally:
            cursor.close()

    def run(self, sql: str, **values: Any) -> int:
        """Execute and return the number of rows touched."""
        _, cursor = self._done(sql, values)
        try:
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def many(self, sql: str, rows: list[Mapping[str, Any]]) -> None:
        if rows:
            cursor = self._driver().cursor()
            try:
                cursor.executemany(_statement(sql, self.conn.dialect).sql, [dict(r) for r in rows])
            finally:
                cursor.close()

    def _done(self, sql: str, values: dict[str, Any]) -> tuple["_Statement", Any]:
        """Execute, and return the statement with the driver's cursor."""
        # Not `conn.execute`: what SQLAlchemy does around one statement takes ten times as long as SQLite's part of it.
        statement = _statement(sql, self.conn.dialect)
        cursor = self._driver().cursor()
        try:
            cursor.execute(statement.sql, values)
        except BaseException:
            cursor.close()
            raise
        return statement, cursor

    def _driver(self) -> Any:
        return self.conn.connection.dbapi_connection


class _Statement:
    """One statement as the driver wants it, and how its rows are called."""

    __slots__ = ("_make", "sql")

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self._make: Callable[[Any], Row] | None = None

    def rows(self, cursor: Any) -> list[Row]:
        make = self._make or self._named(cursor)
        return [make(row) for row in cursor.fetchall()]

    def row(self, cursor: Any) -> Row | None:
        row = cursor.fetchone()
        return None if row is None else (self._make or self._named(cursor))(row)

    def _named(self, cursor: Any) -> Callable[[Any], Row]:
        columns = [column[0] for column in cursor.description]
        kind: Any = namedtuple("Row", columns, rename=True)  # type: ignore[misc]  # a class made at run time
        made: Callable[[Any], Row] = kind._make
        self._make = made
        return made


@lru_cache(maxsize=1024)
def _statement(sql: str, dialect: Dialect) -> _Statement:
    return _Statement(str(text(sql).compile(dialect=dialect)))


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
) -> Row | None:
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
