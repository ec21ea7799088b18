"""What a server does beside the line: `history.retention`, and what it takes up (R9.2, R10.3)."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dexaflow.loading.versions import remove_unused
from dexaflow.model.dags import DagSpec
from dexaflow.reports.logs import LogFiles
from dexaflow.reports.watch import Watch
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.server import upkeep
from dexaflow.server.upkeep import remove_what_is_old, take_up
from dexaflow.store import registering
from dexaflow.store.bridge import StoreThread
from dexaflow.store.engine import open_writer
from dexaflow.store.leading import Found
from tests.store.world import World, a_task, opened

DAY = 86_400.0


class Kept:
    """A database with its thread, logs and versions, as in a data folder."""

    def __init__(self, root: Path) -> None:
        self.world = World(opened("sqlite", root)).lead()
        self.logs = LogFiles(root / "logs")
        self.versions = root / "versions"
        self.versions.mkdir()
        self.store = StoreThread(
            open_writer(root / "dexaflow.db"), clock=self.world, up=lambda: self.world.seconds, new_id=str,
            term=self.world.term,
        )  # fmt: skip
        self.store.start()

    def version(self, name: str, *, days_old: float) -> str:
        """Make a snapshot of some age."""
        snapshot = name * 64
        folder = self.versions / snapshot
        folder.mkdir()
        then = (self.world.wall - timedelta(days=days_old)).timestamp()
        os.utime(folder, (then, then))
        return snapshot

    def register(self, dag_id: str, snapshot: str) -> None:
        loaded = registering.DagFile("acme", f"{dag_id}.py", snapshot, (DagSpec(dag_id, (a_task(),)),))
        assert self.world.do(lambda tx: registering.register_file(tx, loaded, (), lambda *_: None))[0] == ()

    async def one_round(self, retention_seconds: float) -> None:
        """Let the retention do its work once; versions are the last of it."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def remove_versions(*arguments: Any, **named: Any) -> object:
            try:
                return remove_unused(*arguments, **named)
            finally:
                loop.call_soon_threadsafe(done.set)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(upkeep, "remove_unused", remove_versions)
            begun = asyncio.create_task(
                remove_what_is_old(self.store, self.logs, self.versions, retention_seconds, self.world)
            )  # fmt: skip
            await done.wait()
        begun.cancel()
        await asyncio.gather(begun, return_exceptions=True)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    made = Kept(tmp_path)
    yield made
    await made.store.aclose()
    made.world.engine.dispose()


def run(kept: Kept, run_id: str, dag_id: str, *, ends: bool = True) -> None:
    kept.world.trigger(run_id, dag_id)
    (attempt,) = kept.world.settle()
    kept.world.launch(attempt, f"launch-{run_id}")
    kept.world.started(attempt, f"launch-{run_id}")
    kept.logs.append(run_id, "t", 1, 0, b"said")
    if ends:
        kept.world.ended(attempt, f"launch-{run_id}")
        kept.world.settle()


async def test_what_is_older_than_retention_goes_and_nothing_that_is_in_use(kept: Kept) -> None:
    old, used, latest = (kept.version(name, days_old=50) for name in "abc")
    young = kept.version("d", days_old=0)
    kept.register("gone", old)
    run(kept, "old", "gone")
    kept.register("used", used)
    run(kept, "long", "used", ends=False)
    kept.register("gone", latest)
    kept.register("used", latest)
    kept.world.pass_time(40 * DAY)
    os.utime(kept.versions / young, (kept.world.wall.timestamp(),) * 2)
    run(kept, "recent", "gone")
    await kept.one_round(30 * DAY)
    assert [r.run_id for r in kept.world.rows("SELECT run_id FROM runs ORDER BY run_id")] == ["long", "recent"]
    assert kept.logs.read("old", "t", 1, 0, 10) == b""
    assert kept.logs.read("recent", "t", 1, 0, 10) == kept.logs.read("long", "t", 1, 0, 10) == b"said"
    assert {p.name for p in kept.versions.iterdir()} == {used, latest, young}


async def test_many_old_runs_go_in_parts_so_that_others_can_write_between(kept: Kept) -> None:
    kept.register("d", kept.version("a", days_old=0))
    for i in range(70):
        run(kept, f"r{i}", "d")
    kept.world.pass_time(DAY)
    await kept.one_round(60.0)
    assert kept.world.rows("SELECT run_id FROM runs") == []
    assert list((kept.logs._root).iterdir()) == []


async def test_a_retention_longer_than_the_calendar_keeps_everything(kept: Kept) -> None:
    kept.register("d", kept.version("a", days_old=0))
    run(kept, "r", "d")
    await kept.one_round(1e6 * 365 * DAY)
    assert len(kept.world.rows("SELECT run_id FROM runs")) == 1


class Recovered:
    """An executor that found some agents, and does not end any of them soon."""

    def __init__(self, *alive: str) -> None:
        self.alive = list(alive)
        self.killing: list[str] = []

    async def recover(self) -> list[str]:
        return self.alive

    async def kill(self, launch_id: str, grace: float = 10.0) -> None:
        self.killing.append(launch_id)
        await asyncio.Event().wait()


async def test_taking_up_waits_for_no_agent_that_will_not_die(kept: Kept) -> None:
    """The server answers while agents of runs that went on without them are being ended."""
    executor = Recovered("stray-1", "stray-2")
    watch = Watch(
        kept.store, executor, clock=kept.world, retry=seconds_to_retry, silence=30.0, wake_scheduler=lambda: None  # type: ignore[arg-type]
    )  # fmt: skip
    await take_up(executor, watch, Found((), (), 0))  # type: ignore[arg-type]
    running = asyncio.create_task(watch.run())
    while len(executor.killing) < 2:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
