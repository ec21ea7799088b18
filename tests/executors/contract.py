"""What every executor keeps: a suite that an implementation joins by a fixture `rig`.

A rig starts launches of work that it knows how to have run, and tells what runs of them outside the executor.
"""

import asyncio
from typing import Any, Protocol

import pytest

from dexaflow.api.agent_routes import Finish
from dexaflow.base.errors import ExecutorError
from dexaflow.executors.ports import Executor, Exit, Launch

__all__ = ["ExecutorContract", "Rig"]


class Rig(Protocol):
    """An executor under test and its surroundings."""

    executor: Executor
    exits: list[Exit]

    def a_launch(self, command: str, *, counts: bool = True) -> Launch:
        """Return a launch of a bash task; one that does not count is turned away by the server."""
        ...

    async def finish(self, launch: Launch) -> Finish:
        """Return how it ended, once its report is in."""
        ...

    async def running(self, launch: Launch) -> None:
        """Return once the user's process runs."""
        ...

    async def runs(self, launch: Launch) -> bool:
        """Whether anything of the user's runs for a launch."""
        ...

    async def exit(self, launch: Launch) -> Exit:
        """Return what `on_exit` was told, once it was."""
        ...

    async def restart(self) -> Executor:
        """Replace the executor by a new one, as a restart of the server does; the old one is closed."""
        ...

    async def kill_agent(self, launch: Launch) -> None:
        """Kill the agent without a chance to say anything."""
        ...


class ExecutorContract:
    """The promises of `ports.Executor`."""

    async def test_a_launch_runs_and_reports(self, rig: Rig) -> None:
        launch = rig.a_launch("exit 3")
        await rig.executor.start(launch)

        finish = await rig.finish(launch)

        assert (finish.succeeded, finish.exit_code, finish.reason) == (False, 3, "exit code 3")
        assert (await rig.exit(launch)).in_order
        assert not (await rig.executor.find(launch.launch_id)).alive

    async def test_nothing_but_a_launch_is_started(self, rig: Rig) -> None:
        """There is no other way to a process or a pod (R1.1)."""
        launch = rig.a_launch("true")
        wrong: Any
        for wrong in (launch.admitted, launch.token, launch.launched, launch.launch_id, None):
            with pytest.raises(TypeError):
                await rig.executor.start(wrong)

    async def test_a_launch_that_does_not_count_runs_nothing(self, rig: Rig) -> None:
        """The agent runs nothing of the user's until its `started` has been accepted (R1.7)."""
        launch = rig.a_launch("sleep 1000", counts=False)
        await rig.executor.start(launch)

        assert (await rig.exit(launch)).in_order
        assert not await rig.runs(launch)

    async def test_a_running_launch_is_found_alive(self, rig: Rig) -> None:
        launch = rig.a_launch("sleep 1000")
        await rig.executor.start(launch)
        await rig.running(launch)

        assert (await rig.executor.find(launch.launch_id)).alive
        assert not (await rig.executor.find("another-launch")).alive

    async def test_after_kill_nothing_of_it_is_alive(self, rig: Rig) -> None:
        """Before a try is failed its process group is dead (R10.4)."""
        launch = rig.a_launch("trap '' TERM; sleep 1000 & sleep 1000")
        await rig.executor.start(launch)
        await rig.running(launch)

        await rig.executor.kill(launch.launch_id, grace=0.2)

        assert not await rig.runs(launch)
        assert not (await rig.executor.find(launch.launch_id)).alive
        await rig.exit(launch)

    async def test_kill_of_what_is_not_there_returns(self, rig: Rig) -> None:
        launch = rig.a_launch("true")
        await rig.executor.kill(launch.launch_id)
        await rig.executor.start(launch)
        await rig.finish(launch)
        await rig.exit(launch)
        await rig.executor.kill(launch.launch_id)

        assert [e.launch_id for e in rig.exits] == [launch.launch_id]

    async def test_many_kills_of_one_launch_all_return_when_it_is_dead(self, rig: Rig) -> None:
        launch = rig.a_launch("sleep 1000")
        await rig.executor.start(launch)

        await asyncio.gather(*(rig.executor.kill(launch.launch_id, grace=5.0) for _ in range(4)))

        assert not await rig.runs(launch)
        assert len([e for e in rig.exits if e.launch_id == launch.launch_id]) == 1

    async def test_an_agent_that_dies_is_told_when_nothing_of_it_is_left(self, rig: Rig) -> None:
        """A silent agent whose process is gone fails the try; a user's process dies with its agent (R10.4)."""
        launch = rig.a_launch("sleep 1000 & setsid sleep 1000 & sleep 1000")
        await rig.executor.start(launch)
        await rig.running(launch)

        await rig.kill_agent(launch)

        told = await rig.exit(launch)
        assert (told.in_order, told.description.startswith("its agent")) == (False, True)
        assert not await rig.runs(launch)

    async def test_agents_outlive_a_restart_and_are_adopted(self, rig: Rig) -> None:
        """Running tasks go on and are adopted by the next start (R10.3)."""
        launch, dead = rig.a_launch("sleep 1000"), rig.a_launch("sleep 1000")
        for each in (launch, dead):
            await rig.executor.start(each)
            await rig.running(each)

        executor = await rig.restart()
        await rig.kill_agent(dead)
        await asyncio.sleep(0)
        recovered = await executor.recover()

        assert launch.launch_id in recovered
        assert await rig.runs(launch)
        assert (await executor.find(launch.launch_id)).alive
        await executor.kill(launch.launch_id, grace=5.0)
        assert not await rig.runs(launch)
        assert (await rig.exit(launch)).launch_id == launch.launch_id

    async def test_an_adopted_agent_that_dies_is_told(self, rig: Rig) -> None:
        launch = rig.a_launch("sleep 1000 & sleep 1000")
        await rig.executor.start(launch)
        await rig.running(launch)
        executor = await rig.restart()
        assert await executor.recover() == [launch.launch_id]

        await rig.kill_agent(launch)

        assert not (await rig.exit(launch)).in_order
        assert not await rig.runs(launch)

    async def test_a_closed_executor_starts_nothing(self, rig: Rig) -> None:
        launch = rig.a_launch("true")
        await rig.executor.aclose()

        with pytest.raises(ExecutorError, match="the server is stopping"):
            await rig.executor.start(launch)

    async def test_a_kill_that_cannot_be_seen_through_says_so(self, rig: Rig) -> None:
        """A try is not failed on the word of an executor that does not watch any more (R10.4)."""
        launch = rig.a_launch("trap '' TERM; sleep 1000; sleep 1000")
        await rig.executor.start(launch)
        await rig.running(launch)
        kill = asyncio.create_task(rig.executor.kill(launch.launch_id, grace=60.0))
        await asyncio.sleep(0)
        old = rig.executor

        executor = await rig.restart()

        for attempt in (kill, old.kill(launch.launch_id)):
            with pytest.raises(ExecutorError, match="the server is stopping"):
                await attempt
        await executor.kill(launch.launch_id, grace=0.1)
        assert not await rig.runs(launch)

    async def test_many_at_once_all_run(self, rig: Rig) -> None:
        launches = [rig.a_launch(f"exit {n}") for n in range(20)]
        await asyncio.gather(*(rig.executor.start(launch) for launch in launches))

        codes = [(await rig.finish(launch)).exit_code for launch in launches]

        assert codes == list(range(20))
