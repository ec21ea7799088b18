"""Opening the database: SQLite for Lite.

SQLite runs in WAL mode: readers never wait for the writer. A write transaction begins IMMEDIATE, so that what it read
at its start is still true at its end. `synchronous=NORMAL` survives a killed process; after a power cut the last
moments may be missing, and with them the processes they started.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool, StaticPool

from dexaflow.base.errors import StoreError, TermLost

__all__ = ["cause_and_fix", "open_reader", "open_writer", "store_errors"]

BUSY_TIMEOUT_MS = 5_000
_WRITER_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
    "PRAGMA cache_size=-8000",
    "PRAGMA temp_store=MEMORY",
)


@contextlib.contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turn the database's own errors, and ours about it, into one line that begins with `what`. Raises `StoreError`."""
    try:
        yield
    except TermLost:
        raise
    except StoreError as error:
        raise StoreError(f"{what}: {error}") from error
    except (DBAPIError, sqlite3.Error, OSError) as error:
        raise StoreError(f"{what}: {cause_and_fix(error)}") from error


def cause_and_fix(error: Exception) -> str:
    """Return what the database says in one line, and what to do about it."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(cause, "sqlite_errorcode", None)
    match None if code is None else code & 0xFF:  # the rest of it says more than anybody can use
        case sqlite3.SQLITE_NOTADB:
            return "the file is no database; put a backup in its place, or move it away to begin with an empty one"
        case sqlite3.SQLITE_CORRUPT:
            return f"the database is damaged ({cause}); put a backup in its place, or move it away to begin anew"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"{cause}; another program has it open: end that, then try again"
        case sqlite3.SQLITE_FULL:
            return f"{cause}; make room on that disk"
        case sqlite3.SQLITE_READONLY:
            return f"{cause}; make the data folder and the files in it writable"
        case _:
            return f"{cause}; check that the data folder is writable and not full"


def open_writer(path: Path) -> Engine:
    """Open the one connection that writes; transactions begin IMMEDIATE. Creates the file, mode 0600 (R10.4)."""
    with store_errors(f"cannot open {path.name}"):
        path.touch(mode=0o600, exist_ok=True)
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=StaticPool,
        paramstyle="named",  # see `Tx`: values go to the driver by name, whichever it is
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in _WRITER_PRAGMAS:
            connection.execute(pragma)

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def open_reader(path: Path) -> Engine:
    """Open connections that only read, each a consistent snapshot."""
    engine = create_engine(
        f"sqlite:///{path}",
        poolclass=QueuePool,
        paramstyle="named",
        pool_size=2,
        max_overflow=2,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA query_only=ON")
        connection.execute("PRAGMA cache_size=-4000")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine
