"""The store's own thread: batches, what one bad verb spoils, a busy database, and the end."""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from dexaflow.base.errors import StoreError, TermLost
from dexaflow.model.states import Event, State
from dexaflow.store import engine as store_engine
from dexaflow.store import leading, people
from dexaflow.store.bridge import StoreThread
from dexaflow.store.engine import open_writer
from dexaflow.store.transaction import Tx, move
from tests.store.world import World, a_task, opened


class Bridge:
    """A store thread on a database of its own, which can be kept busy while verbs are handed in."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "dexaflow.db"
        self.world = World(opened("sqlite", folder)).lead()
        self.moved: Counter[str] = Counter()
        self.store = StoreThread(
            open_writer(self.path), clock=self.world, up=lambda: self.world.seconds, new_id=str, term=self.world.term,
            on_moved=self._count,
        )  # fmt: skip
        self.store.start()

    def _count(self, moved: Mapping[State, int]) -> None:
        for state, count in moved.items():
            self.moved[str(state)] += count

    async def busy(self) -> threading.Event:
        """Have the thread wait in a verb until the event is set: what is handed in meanwhile is one batch."""
        go, begun, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()

        def wait(tx: Tx) -> None:
            loop.call_soon_threadsafe(begun.set)
            go.wait(10)

        self._waiting = loop.create_task(self.store.do(wait))
        await begun.wait()
        return go


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[Bridge]:
    made = Bridge(tmp_path)
    yield made
    await made.store.aclose()
    made.world.engine.dispose()


async def test_what_is_handed_in_meanwhile_is_one_transaction(bridge: Bridge) -> None:
    go = await bridge.busy()
    verbs = [bridge.store.do(lambda tx: id(tx)) for _ in range(20)]
    tasks = [asyncio.create_task(verb) for verb in verbs]
    await asyncio.sleep(0)
    go.set()
    assert len(set(await asyncio.gather(*tasks))) == 1


async def test_a_verb_that_raises_spoils_only_itself(bridge: Bridge) -> None:
    go = await bridge.busy()

    def bad(tx: Tx) -> None:
        people.set_pool(tx, "bad", 1, None)
        raise ValueError("no")

    good = [asyncio.create_task(bridge.store.do(lambda tx, i=i: people.set_pool(tx, f"p{i}", i, None))) for i in (1, 2)]  # type: ignore[misc]
    spoiled = asyncio.create_task(bridge.store.do(bad))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*good)
    with pytest.raises(ValueError, match="no"):
        await spoiled
    rows = bridge.world.rows("SELECT pool FROM pools ORDER BY pool")
    assert [r.pool for r in rows] == ["default_pool", "p1", "p2"]


async def test_moves_are_told_once_each_and_only_when_committed(bridge: Bridge) -> None:
    """R9.1: also when the batch was rolled back and done again one by one."""
    attempt = bridge.world.queued(a_task(retries=1))
    go = await bridge.busy()

    def bad(tx: Tx) -> None:
        raise ValueError("no")

    moved = asyncio.create_task(
        bridge.store.do(lambda tx: move(tx, attempt.id, Event.REQUEUED, State.QUEUED, queued_at=None))
    )
    spoiled = asyncio.create_task(bridge.store.do(bad))
    await asyncio.sleep(0)
    go.set()
    await moved
    with pytest.raises(ValueError, match="no"):
        await spoiled
    await bridge.store.do(leading.tick)
    assert bridge.moved == {"scheduled": 1}


async def test_a_caller_that_goes_away_has_its_verb_done_all_the_same(bridge: Bridge) -> None:
    go = await bridge.busy()
    task = asyncio.create_task(bridge.store.do(lambda tx: people.set_pool(tx, "p", 1, None)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await bridge.store.do(leading.tick)
    assert [r.pool for r in bridge.world.rows("SELECT pool FROM pools WHERE pool = 'p'")] == ["p"]


async def test_closing_finishes_what_was_handed_in_and_takes_no_more(bridge: Bridge) -> None:
    go = await bridge.busy()
    task = asyncio.create_task(bridge.store.do(lambda tx: people.set_pool(tx, "p", 1, None)))
    await asyncio.sleep(0)
    closing = asyncio.create_task(bridge.store.aclose())
    await asyncio.sleep(0)
    with pytest.raises(StoreError, match="closed"):
        await bridge.store.do(leading.tick)
    go.set()
    await closing
    await task
    assert len(bridge.world.rows("SELECT pool FROM pools WHERE pool = 'p'")) == 1


async def test_a_lost_term_is_told_to_everyone_and_nothing_is_written(bridge: Bridge) -> None:
    go = await bridge.busy()
    tasks = [asyncio.create_task(bridge.store.do(lambda tx: people.set_pool(tx, "p", 1, None))) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*tasks)
    bridge.world.do(leading.take_lead)
    bridge.world.term = None
    for _ in range(2):
        with pytest.raises(TermLost, match="another control plane"):
            await bridge.store.do(lambda tx: people.set_pool(tx, "q", 1, None))
    assert bridge.world.rows("SELECT pool FROM pools WHERE pool = 'q'") == []


async def test_a_busy_database_is_waited_for_once_a_batch_and_then_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that holds the lock for long fails what is asked meanwhile, with one wait for all, and harms no more."""
    monkeypatch.setattr(
        store_engine,
        "_WRITER_PRAGMAS",
        tuple(p.replace(str(store_engine.BUSY_TIMEOUT_MS), "200") for p in store_engine._WRITER_PRAGMAS),
    )
    bridge = Bridge(tmp_path)
    try:
        other = sqlite3.connect(bridge.path)
        other.execute("BEGIN IMMEDIATE")
        loop = asyncio.get_running_loop()
        began = loop.time()
        failed = await asyncio.gather(*(bridge.store.do(leading.tick) for _ in range(30)), return_exceptions=True)
        assert all(isinstance(f, StoreError) and "locked" in str(f) for f in failed)
        assert loop.time() - began < 30 * 0.2  # not one wait for each
        other.rollback()
        other.close()
        await bridge.store.do(leading.tick)
    finally:
        await bridge.store.aclose()
        bridge.world.engine.dispose()
