"""Lite's executor: the contract, and what is its own: spawner, state files, recycled numbers."""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from dexaflow.agent.folder import AgentState
from dexaflow.agent.processes import all_processes, birth, launched_by, send_signal
from dexaflow.api.agent_routes import Finish
from dexaflow.base.errors import ExecutorError
from dexaflow.executors import spawning
from dexaflow.executors.ports import Executor, Exit, Launch
from dexaflow.executors.process import ProcessExecutor
from dexaflow.executors.spawning import task_environment
from dexaflow.tokens.launch import Launched
from tests.executors.contract import ExecutorContract
from tests.executors.proofs import Proofs
from tests.executors.reports import bash
from tests.executors.world import World, a_world, alive, until


class ProcessRig:
    """The world of processes, as the contract wants to see it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.executor: Executor = world.executor
        self.exits = world.exits

    def a_launch(self, command: str, *, counts: bool = True) -> Launch:
        launch = self._world.proofs.launch()
        if counts:
            self._world.ledger.work[launch.launch_id] = bash(command)
        return launch

    async def finish(self, launch: Launch) -> Finish:
        return await self._world.ledger.finish(launch.launch_id)

    async def running(self, launch: Launch) -> None:
        state = await self._world.agent(launch)
        await until(lambda: launched_by(launch.launch_id, state.user_pid, state.user_born))

    async def runs(self, launch: Launch) -> bool:
        return bool(launched_by(launch.launch_id, None, None))

    async def exit(self, launch: Launch) -> Exit:
        return await self._world.exit(launch)

    async def restart(self) -> Executor:
        await self.executor.aclose()
        self.executor = self._world.new_executor()
        return self.executor

    async def kill_agent(self, launch: Launch) -> None:
        state = self._world.folder.read(launch.launch_id)
        assert state is not None
        assert send_signal(state.pid, state.born, signal.SIGKILL)
        await until(lambda: not alive(state.pid))


@pytest.fixture
async def rig(world: World) -> ProcessRig:
    return ProcessRig(world)


class TestProcessExecutor(ExecutorContract):
    """Lite's executor keeps the contract."""


def a_sleeper(**environment: str) -> "subprocess.Popen[bytes]":
    """Start somebody else's process, leader of a group of its own, and wait until its environment can be seen."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(1000)"],
        start_new_session=True,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.read(1)
    return process


def leave_files(world: World, launch_id: str) -> None:
    """Leave what an agent has while it runs."""
    Path(world.folder.log_file(launch_id)).write_text("a log")
    Path(world.folder.work_folder(launch_id)).mkdir()
    (Path(world.folder.work_folder(launch_id)) / "f").touch()


@pytest.fixture
async def stranger() -> AsyncIterator["subprocess.Popen[bytes]"]:
    process = a_sleeper()
    yield process
    process.kill()
    process.wait()


async def test_a_recycled_number_is_never_touched(world: World, stranger: "subprocess.Popen[bytes]") -> None:
    """A state file of long ago names numbers that are others' now: pid and time of birth must agree."""
    born = birth(stranger.pid)
    assert born is not None
    boot, _, ticks = born.rpartition(":")
    launch_ids = []
    for wrong in (f"{boot}:{int(ticks) - 1}", f"another-boot:{ticks}", "", "nonsense"):
        launch_ids.append(str(uuid.uuid4()))
        world.folder.claim(AgentState(launch_ids[-1], "a", stranger.pid, wrong, stranger.pid, wrong))

    for launch_id in launch_ids[:2]:
        assert not (await world.executor.find(launch_id)).alive
        await world.executor.kill(launch_id, grace=0.1)
    assert await world.executor.recover() == []

    assert stranger.poll() is None
    assert world.files() == []
    assert not send_signal(stranger.pid, f"{boot}:1", signal.SIGKILL)
    assert not send_signal(stranger.pid, None, signal.SIGKILL)


async def test_a_process_of_another_launch_in_the_group_is_left_alone(world: World) -> None:
    """The environment says whose it is."""
    other = a_sleeper(DEXAFLOW_LAUNCH_ID="another")
    try:
        born = birth(other.pid)
        launch_id = str(uuid.uuid4())
        world.folder.claim(AgentState(launch_id, "a", 2**22 + 1, "x", other.pid, born))

        await world.executor.kill(launch_id)

        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_what_a_dead_agent_left_is_cleared_away_by_the_next_start(world: World) -> None:
    """Also those who left the group, or forgot their environment but not their group (R10.4)."""
    launch_id = str(uuid.uuid4())
    leader = a_sleeper()  # no launch in its environment, but the group that the agent wrote down
    escaped = a_sleeper(DEXAFLOW_LAUNCH_ID=launch_id)
    world.folder.claim(AgentState(launch_id, "a", 2**22 + 1, "x", leader.pid, birth(leader.pid)))
    leave_files(world, launch_id)

    assert await world.executor.recover() == []

    assert (leader.wait(), escaped.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert world.files() == []


async def test_the_spawner_is_replaced_when_it_dies(world: World) -> None:
    """Its agents go on, are watched in another way, and the next launch starts a new one."""
    before = await world.launch(bash(f"until [ -e {world.path}/go ]; do sleep 0.05; done; echo done"))
    died = await world.launch(bash("setsid sleep 1000 & sleep 1000"))
    old = world.executor.spawner_pid
    state = await world.agent(died)
    assert old is not None
    os.kill(old, signal.SIGKILL)
    await until(lambda: world.executor.spawner_pid is None)

    finish, log = await world.run(bash("echo new"))
    assert (finish.succeeded, log) == (True, "new\n")
    assert world.executor.spawner_pid not in (old, None)
    (world.path / "go").touch()
    assert (await world.ledger.finish(before.launch_id)).succeeded
    assert (await world.exit(before)).in_order

    assert send_signal(state.pid, state.born, signal.SIGKILL)
    told = await world.exit(died)
    assert (told.in_order, told.description) == (False, "its agent died")
    assert launched_by(died.launch_id, None, None) == []
    await until(lambda: world.files() == [])


async def test_launches_in_flight_survive_the_death_of_the_spawner(world: World) -> None:
    """None is lost, none runs twice (R10.3)."""
    await world.run(bash("true"))
    spawner = world.executor.spawner_pid
    assert spawner is not None
    os.kill(spawner, signal.SIGSTOP)
    launches = [world.proofs.launch() for _ in range(5)]
    for launch in launches:
        world.ledger.work[launch.launch_id] = bash(f"echo x >> {world.path}/{launch.launch_id}")
    starts = [asyncio.create_task(world.executor.start(launch)) for launch in launches]
    await asyncio.sleep(0.05)
    os.kill(spawner, signal.SIGKILL)

    await asyncio.gather(*starts)

    for launch in launches:
        assert (await world.ledger.finish(launch.launch_id)).succeeded
        assert (world.path / launch.launch_id).read_text() == "x\n"


async def test_a_launch_given_out_twice_is_run_by_one_agent(world: World) -> None:
    """The launch is claimed on this machine, before the server is asked."""
    launch = await world.launch(bash(f"until [ -e {world.path}/go ]; do sleep 0.05; done"))
    first = await world.agent(launch)
    await world.executor.start(launch)
    await until(lambda: (found := world.executor._agents.get(launch.launch_id)) and found.pid == first.pid)

    assert (await world.executor.find(launch.launch_id)).pid == first.pid
    (world.path / "go").touch()
    assert (await world.ledger.finish(launch.launch_id)).succeeded
    assert (await world.exit(launch)).in_order
    assert world.ledger.said.count("accepted") == 1


async def test_a_spawner_that_cannot_run_is_one_clear_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawning, "_ENTRY", str(world.path / "absent.py"))
    with pytest.raises(ExecutorError, match=r"the spawner of agents died; .*errors\.log says why"):
        await world.launch(bash("true"))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ExecutorError, match="the spawner of agents could not be started: No such file or directory"):
        await world.launch(bash("true"))
    (world.path / "agents/errors.log").unlink()


async def test_a_cancelled_start_leaves_a_launch_that_can_be_killed(world: World) -> None:
    launch = world.proofs.launch()
    world.ledger.work[launch.launch_id] = bash("sleep 1000")
    start = asyncio.create_task(world.executor.start(launch))
    await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start

    await world.executor.kill(launch.launch_id, grace=5.0)

    assert launched_by(launch.launch_id, None, None) == []
    assert world.files() == []


async def test_what_an_agent_was_killed_in_writing_goes_with_its_launch(world: World) -> None:
    """An agent may die between making the draft of its state file and giving it its name (R10.3)."""
    launch = await world.launch(bash("sleep 1000"))
    agent = await world.agent(launch)
    (world.path / f"agents/{launch.launch_id}.{agent.pid}.new").write_text("{")

    await world.executor.kill(launch.launch_id, grace=0.0)

    assert world.files() == []


async def test_nothing_is_leaked(world: World) -> None:
    """No descriptors, zombies, temporary files (R10.3)."""
    await world.run(bash("true"))
    before = sorted(os.listdir("/proc/self/fd"))
    launches = [await world.launch(bash("echo x; touch f")) for _ in range(10)]
    for launch in launches:
        await world.ledger.finish(launch.launch_id)
        await world.exit(launch)

    spawner = world.executor.spawner_pid
    assert spawner is not None
    await until(lambda: len(os.listdir("/proc/self/fd")) <= len(before) + 1)  # the server's connections have closed
    assert [seen.pid for seen in all_processes() if seen.parent == spawner] == []
    assert world.files() == []
    await world.executor.aclose()
    assert not alive(spawner)


async def test_the_server_environment_is_not_passed_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks get an environment made for them, not the server's (R10.4)."""
    monkeypatch.setenv("DEXAFLOW_TOKEN", "the-server-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-server-secret")
    monkeypatch.setenv("PYTHONPATH", "/the-server-secret")
    _, log = await world.run(bash("env; cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'"))

    assert "the-server-secret" not in log
    assert "PATH=" in log
    assert task_environment({}) == {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def test_a_launch_takes_proofs_that_belong_together() -> None:
    """`Launch(Admitted, AgentToken)` is all that an executor starts."""
    one, two = Proofs.fresh().launch(), Proofs.fresh().launch()
    for wrong in ({"token": two.token}, {"launched": two.launched}, {"admitted": two.admitted}):
        changes: Any = wrong
        with pytest.raises(ValueError, match="do not belong together"):
            replace(one, **changes)
    newer = Launched.written(one.admitted, "another-launch", term=2)
    with pytest.raises(ValueError, match="do not belong together"):
        replace(one, launched=newer)
    not_admitted: Any = one.admitted.attempt
    with pytest.raises(TypeError, match="Admitted"):
        replace(one, admitted=not_admitted)
    assert one.token.reveal() not in repr(one)


def test_the_executor_works_on_uvloop(tmp_path: Path) -> None:
    """The server runs on it."""

    async def attempt() -> tuple[Finish, str]:
        async with a_world(tmp_path) as world:
            launch = await world.launch(bash("sleep 1000"))
            await world.agent(launch)
            await world.executor.aclose()
            executor: ProcessExecutor = world.new_executor()
            assert await executor.recover() == [launch.launch_id]
            await executor.kill(launch.launch_id, grace=5.0)
            return await world.run(bash("echo hi"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        finish, log = runner.run(attempt())
    assert (finish.succeeded, log) == (True, "hi\n")
