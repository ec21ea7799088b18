"""The small bridge between the loops and the synchronous store.

One thread owns the writing connection. What the loops ask for meanwhile is done together in one transaction: a batch
costs one commit. A verb that raises spoils only itself: the batch is rolled back and each verb is run alone.
"""

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from dexaflow.base.clock import Clock
from dexaflow.base.errors import StoreError, TermLost
from dexaflow.model.states import State
from dexaflow.store.engine import cause_and_fix
from dexaflow.store.transaction import Tx, require_term

__all__ = ["Store", "StoreThread", "UpClock", "run_alone"]

T = TypeVar("T")
log = structlog.get_logger()
MAX_BATCH = 100
_CLOSE_SECONDS = 15.0  # for what was handed in before the end; a disk that hangs does not keep the server from stopping


class Store(Protocol):
    """What the loops need of the store: verbs, done in short transactions by whoever leads."""

    async def do(self, verb: Callable[[Tx], T]) -> T:
        """Do one verb; it is committed when this returns. Raises `StoreError`, `TermLost`, or what the verb raises."""
        ...


class UpClock:
    """Seconds this database's control planes have been up: goes on from where the last one stopped, never jumps."""

    def __init__(self, clock: Clock, base: float) -> None:
        self._clock = clock
        self._base = base
        self._started = clock.monotonic()

    def up(self) -> float:
        return self._base + (self._clock.monotonic() - self._started)


def run_alone(
    engine: Engine,
    verb: Callable[[Tx], T],
    *,
    clock: Clock,
    up: Callable[[], float],
    new_id: Callable[[], str],
    term: int | None,
) -> T:
    """Do one verb in a transaction of its own, synchronously."""
    (result,), _ = _run(engine, [verb], clock=clock, up=up, new_id=new_id, term=term)
    return result  # type: ignore[no-any-return]


class _NotBegun(StoreError):  # noqa: N818 - what happened
    """No transaction could be begun: nothing was done, and doing it in parts would fail as well."""


def _run(
    engine: Engine,
    verbs: list[Callable[[Tx], Any]],
    *,
    clock: Clock,
    up: Callable[[], float],
    new_id: Callable[[], str],
    term: int | None,
) -> tuple[list[Any], Counter[State]]:
    """Do the verbs in one transaction; return what each returned, and how many attempts came into each state."""
    try:
        with ExitStack() as stack:
            try:
                conn = stack.enter_context(engine.begin())
            except DBAPIError as error:
                raise _NotBegun(_line(error)) from error
            tx = Tx(conn, clock.now(), up(), new_id)
            if term is not None:
                require_term(tx, term)
            return [verb(tx) for verb in verbs], tx.moved
    except (DBAPIError, engine.dialect.loaded_dbapi.Error) as error:
        raise StoreError(_line(error)) from error


def _line(error: Exception) -> str:
    return f"the database refused a write: {cause_and_fix(error)}"


@dataclass(slots=True)
class _Wanted:
    verb: Callable[[Tx], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


class StoreThread:
    """The store's own thread. Start with `start()`, end with `aclose()`; verbs handed in before are done."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        up: Callable[[], float],
        new_id: Callable[[], str],
        term: int | None,
        on_moved: Callable[[Mapping[State, int]], None] = lambda moved: None,
    ) -> None:
        """Args: `on_moved` is told, from this thread, how many attempts a committed transaction brought into states."""
        self._engine = engine
        self._on_moved = on_moved
        self._how: dict[str, Any] = {"clock": clock, "up": up, "new_id": new_id, "term": term}
        self._queue: queue.SimpleQueue[_Wanted | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="dexaflow-store", daemon=True)
        self._closed = False

    def start(self) -> None:
        self._thread.start()

    async def do(self, verb: Callable[[Tx], T]) -> T:
        """See `Store.do`. A caller that is cancelled has its verb done all the same."""
        if self._closed:
            raise StoreError("the store is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Wanted(verb, future, loop))
        return await future

    async def aclose(self) -> None:
        """Finish what was handed in, then close the database; what takes too long is left to the process's end."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)
        if self._thread.is_alive():
            log.error("store_hangs", meaning="the database did not finish; the next start finds what was committed")
            return
        self._engine.dispose()

    def _work(self) -> None:
        while True:
            batch: list[_Wanted] = []
            ended = False
            wanted = self._queue.get()
            while True:
                if wanted is None:
                    ended = True
                    break
                batch.append(wanted)
                if len(batch) >= MAX_BATCH:
                    break
                try:
                    wanted = self._queue.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._do(batch)
            if ended:
                return

    def _do(self, batch: list[_Wanted]) -> None:
        try:
            results, moved = _run(self._engine, [w.verb for w in batch], **self._how)
        except (TermLost, _NotBegun) as error:  # all of them alike; a busy database is not waited for once a verb
            _settle(batch, [(None, error)] * len(batch))
            return
        except Exception as error:  # noqa: BLE001 - whatever a verb raises belongs to its caller
            if len(batch) == 1:
                _settle(batch, [(None, error)])
                return
            for wanted in batch:  # one of them spoiled the batch: each alone
                self._do([wanted])
            return
        _settle(batch, [(r, None) for r in results])
        if moved:
            self._on_moved(moved)


def _settle(batch: list[_Wanted], ends: list[tuple[Any, Exception | None]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, Exception | None]]] = {}
    for wanted, (result, error) in zip(batch, ends, strict=True):
        by_loop.setdefault(wanted.loop, []).append((wanted.future, result, error))
    for loop, settled in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, settled)
        except RuntimeError:  # that loop is closed: nobody waits any more
            continue


def _resolve(settled: list[tuple[asyncio.Future[Any], Any, Exception | None]]) -> None:
    for future, result, error in settled:
        if future.done():
            continue  # its caller was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
