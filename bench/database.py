"""A real database of Lite in a folder, led by whoever measures."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dexaflow.base.clock import SystemClock
from dexaflow.base.ids import TimeOrderedIds
from dexaflow.store import leading, people
from dexaflow.store.bridge import StoreThread, UpClock, run_alone
from dexaflow.store.engine import open_writer
from dexaflow.store.migrating import migrate
from dexaflow.store.transaction import Tx

__all__ = ["Database", "new_id"]

T = TypeVar("T")


new_id = TimeOrderedIds(lambda: time.time_ns() // 1_000_000, os.urandom)  # as the server draws them


class Database:
    """The tables, the default pool and a term."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "dexaflow.db"
        self.engine = open_writer(self.path)
        migrate(self.engine)
        self._clock = SystemClock()
        self._up = UpClock(self._clock, 0.0).up
        self._term: int | None = None
        self._term = self.do(leading.take_lead)
        self.do(people.ensure_default_pool)

    def do(self, verb: Callable[[Tx], T]) -> T:
        """Do one verb in a transaction of its own."""
        return run_alone(self.engine, verb, clock=self._clock, up=self._up, new_id=new_id, term=self._term)

    def store(self) -> StoreThread:
        """Return the store's own thread over it, not started; it closes the database."""
        return StoreThread(self.engine, clock=self._clock, up=self._up, new_id=new_id, term=self._term)
