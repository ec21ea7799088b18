"""Ways to end: timeouts, cancels, signals, and a launch that does not count any more."""

import asyncio
import os
import signal

import pytest

from dexaflow.agent.processes import launched_by
from tests.executors.reports import bash
from tests.executors.world import World, alive, until


async def test_a_timeout_ends_the_whole_process_group(world: World) -> None:
    """`execution_timeout` on the whole process group, with a chance to clean up."""
    work = bash("trap 'echo cleaned; exit 9' TERM; sleep 1000 & wait", execution_timeout=0.5)

    finish, log = await world.run(work)

    assert (finish.succeeded, finish.timed_out, finish.reason) == (False, True, "timed out after 0.5s")
    assert (finish.exit_code, log) == (9, "cleaned\n")


@pytest.mark.parametrize("command", ["trap '' TERM; sleep 1000; sleep 1000", "kill -STOP $$; sleep 1000"])
async def test_what_does_not_end_on_request_is_killed(world: World, command: str) -> None:
    """SIGTERM, five seconds, SIGKILL; what is stopped is woken to hear it."""
    launch = await world.launch(bash(f"{command} & {command}", execution_timeout=0.3))

    finish = await world.ledger.finish(launch.launch_id)

    assert (finish.timed_out, finish.reason) == (True, "timed out after 0.3s")
    assert finish.exit_code in (-9, -15)
    assert launched_by(launch.launch_id, None, None) == []


async def test_a_process_that_ends_in_time_has_not_timed_out(world: World) -> None:
    finish, _ = await world.run(bash("sleep 0.1", execution_timeout=20))

    assert (finish.succeeded, finish.timed_out) == (True, False)


@pytest.mark.parametrize("stop", ["cancelled", "cleared"])
async def test_a_stop_in_the_answer_to_a_heartbeat_ends_the_process(world: World, stop: str) -> None:
    world.ledger.heartbeat_seconds = 0.1
    launch = await world.launch(bash("sleep 1000"))
    await world.ledger.until(lambda: world.ledger.beats[launch.launch_id] >= 2)

    world.ledger.stops[launch.launch_id] = stop

    finish = await world.ledger.finish(launch.launch_id)
    assert (finish.succeeded, finish.reason, finish.exit_code) == (False, stop, -15)


async def test_a_launch_that_does_not_count_any_more_is_ended_at_once_and_silently(world: World) -> None:
    """A newer launch wins over everything begun before it (R1.7)."""
    world.ledger.heartbeat_seconds = 0.1
    launch = await world.launch(bash("trap '' TERM; sleep 1000; sleep 1000"))
    await world.ledger.until(lambda: world.ledger.beats[launch.launch_id] >= 1)

    world.ledger.gone.add(launch.launch_id)

    assert (await world.exit(launch)).in_order
    assert launched_by(launch.launch_id, None, None) == []
    assert launch.launch_id not in world.ledger.finishes
    assert "finished" not in world.ledger.said
    assert world.files() == []


async def test_sigterm_to_an_agent_ends_its_attempt_in_order(world: World) -> None:
    launch = await world.launch(bash("trap 'echo bye; exit 1' TERM; echo up; sleep 1000 & wait"))
    agent = await world.agent(launch)
    await world.ledger.until(lambda: "up" in world.ledger.log_text(launch.launch_id))

    os.kill(agent.pid, signal.SIGTERM)

    finish = await world.ledger.finish(launch.launch_id)
    assert (finish.succeeded, finish.reason) == (False, "stopped: its agent was told to end")
    assert world.ledger.log_text(launch.launch_id) == "up\nbye\n"
    assert (await world.exit(launch)).in_order


async def test_kill_returns_when_everything_is_dead_though_the_server_hangs(world: World) -> None:
    launch = await world.launch(bash("trap '' TERM; sleep 1000 & sleep 1000"))
    agent = await world.agent(launch)
    assert world.served is not None

    async def hang(path: str) -> None:
        await asyncio.sleep(3600)

    world.served.fault = hang
    await world.executor.kill(launch.launch_id, grace=0.3)

    assert not alive(agent.pid)
    assert launched_by(launch.launch_id, None, None) == []
    assert world.files() == []
    world.served.fault = None


async def test_a_kill_before_the_agent_is_heard_leaves_nothing(world: World) -> None:
    assert world.served is not None
    asked = asyncio.Event()

    async def hang(path: str) -> None:
        asked.set()
        await asyncio.sleep(3600)

    world.served.fault = hang
    launch = await world.launch(bash("true"))
    await asked.wait()
    await world.executor.kill(launch.launch_id, grace=5.0)

    told = await world.exit(launch)
    assert (told.in_order, told.description) == (False, "its agent was killed by SIGTERM")
    assert world.files() == []
    world.served.fault = None


async def test_a_user_process_that_kills_its_whole_group_is_a_failure_like_any(world: World) -> None:
    finish, _ = await world.run(bash("kill -9 0"))

    assert finish.reason == "killed by SIGKILL"
    await until(lambda: world.files() == [])
