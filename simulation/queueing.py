"""The store's thread, without a thread: verbs are done in order, in batches, each after a while, and may fail.

Between a commit and the news of it something can happen, a crash too, as with the real thread.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Engine

from dexaflow.base.clock import Clock
from dexaflow.base.errors import StoreError, TermLost
from dexaflow.store import leading
from dexaflow.store.bridge import run_alone
from dexaflow.store.transaction import Tx
from simulation.reading import Seen, seen_on

__all__ = ["FULL", "QueueingStore"]

T = TypeVar("T")
FULL = "the database refused a write: database or disk is full"


class QueueingStore:
    """One control plane's `Store`. `pace` draws the seconds before a batch is done and before its end is heard."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        up: Callable[[], float],
        new_id: Callable[[], str],
        term: int,
        pace: Callable[[], tuple[float, float]],
        failing: Callable[[], bool],
        committed: Callable[[list[Seen], bool], None],
        failed: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._connection: Any = engine.raw_connection().driver_connection  # the one there is
        self._how: dict[str, Any] = {"clock": clock, "up": up, "new_id": new_id, "term": term}
        self._pace = pace
        self._failing = failing
        self._committed = committed
        self._failed = failed
        self._waiting: deque[tuple[Callable[[Tx], Any], asyncio.Future[Any]]] = deque()
        self._heard_from = 0.0  # when the latest news is heard: none overtakes another
        self._ready = False
        self.dead = False

    async def do(self, verb: Callable[[Tx], T]) -> T:
        """See `Store.do`."""
        if self.dead:
            raise asyncio.CancelledError  # a process that is gone does nothing
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append((verb, future))
        if not self._ready:
            self._plan(loop)
        return await future

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ready = True
        before, after = self._pace()
        loop.call_later(before, self._work, loop, after)

    def _work(self, loop: asyncio.AbstractEventLoop, after: float) -> None:
        self._ready = False
        if self.dead:
            return
        batch = list(self._waiting)
        self._waiting.clear()
        ends = self._do([verb for verb, _ in batch])
        settled = [(future, *end) for (_, future), end in zip(batch, ends, strict=True)]
        if after == 0.0 and self._heard_from < loop.time():
            loop.call_soon(_settle, settled)
        else:
            self._heard_from = max(self._heard_from + 1e-9, loop.time() + after)
            loop.call_at(self._heard_from, _settle, settled)

    def _do(self, verbs: list[Callable[[Tx], Any]]) -> list[tuple[Any, Exception | None]]:
        if self._failing():
            self._failed()
            return [(None, StoreError(FULL))] * len(verbs)
        on_the_way: list[Seen] = []  # what each verb of a batch left to the next

        def in_order(tx: Tx) -> list[Any]:
            results = []
            for verb in verbs:
                results.append(verb(tx))
                if len(results) < len(verbs):
                    on_the_way.append(seen_on(self._connection))
            return results

        changes = self._connection.total_changes
        try:
            results = run_alone(self._engine, in_order, **self._how)
        except TermLost as error:
            return [(None, error)] * len(verbs)
        except Exception as error:  # noqa: BLE001 - as the bridge: whatever a verb raises belongs to its caller
            if len(verbs) == 1:
                return [(None, error)]
            return [end for verb in verbs for end in self._do([verb])]
        ticks = sum(verb is leading.tick for verb in verbs)
        self._committed(on_the_way, self._connection.total_changes - changes > ticks)
        return [(result, None) for result in results]


def _settle(settled: list[tuple[asyncio.Future[Any], Any, Exception | None]]) -> None:
    for future, result, error in settled:
        if future.done():
            continue  # whoever asked was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
