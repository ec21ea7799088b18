"""The database that a server leads: brought up to date, taken over from whoever led it before, and read."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine

from dexaflow.base.clock import Clock
from dexaflow.base.steps import Step, reached
from dexaflow.store import leading, people
from dexaflow.store.bridge import UpClock, run_alone
from dexaflow.store.engine import open_reader, open_writer, store_errors
from dexaflow.store.migrating import migrate
from dexaflow.store.transaction import Tx

__all__ = ["Database", "lead"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Database:
    """A database and this server's term on it; `found` is what an earlier server left."""

    writer: Engine
    reader: Engine
    clock: Clock
    up: Callable[[], float]
    new_id: Callable[[], str]
    term: int
    found: leading.Found

    def read(self, verb: Callable[[Tx], T]) -> T:
        """Return what a verb reads, from any thread."""
        return run_alone(self.reader, verb, clock=self.clock, up=self.up, new_id=self.new_id, term=None)


def lead(path: Path, clock: Clock, new_id: Callable[[], str], closing: contextlib.AsyncExitStack) -> Database:
    """Open a database and take the lead of it; what was queued goes back to be asked anew (R6.4, R10.3).

    Args:
        closing: Closes it.

    Raises:
        StoreError: it cannot be used; one line says why.
    """
    with store_errors(f"cannot use {path}"):
        writer = open_writer(path)
        closing.callback(writer.dispose)
        migrate(writer)
        do = partial(run_alone, writer, clock=clock, new_id=new_id)
        up = UpClock(clock, do(leading.read_up, up=lambda: 0.0, term=None)).up
        term = do(leading.take_lead, up=up, term=None)
        reached(Step.LEAD_TAKEN)
        found = do(leading.recover, up=up, term=term)
        do(people.ensure_default_pool, up=up, term=term)
        reached(Step.RECOVERED)
        reader = open_reader(path)
        closing.callback(reader.dispose)
    return Database(writer, reader, clock, up, new_id, term, found)
