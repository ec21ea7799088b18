"""Launched attempts: agents that never start, fall silent, die or must stop; never two at once (R1.7, R10.3, R10.4)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dexaflow.model.states import State
from dexaflow.reports.watch import Watch
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.store import people, reporting, slots
from tests.dispatch.world import World, world
from tests.store.world import a_task
from tests.virtual_time import run_virtually


async def running(w: World, *, takes: float = 10_000.0, **task: Any) -> str:
    """Have one attempt running and return its launch id."""
    w.executor.takes = takes
    w.register(a_task(**task))
    w.trigger()
    await w.seconds(2)
    assert w.state() is State.RUNNING
    return w.executor.launches[-1].launch_id


def test_a_launch_that_is_not_heard_within_a_minute_is_asked_anew_under_a_new_launch_id(tmp_path: Path) -> None:
    """R1.7: and the first agent, when it comes after all, is turned away."""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.executor.starts_after = 200.0
            w.register(a_task())
            w.trigger()
            await w.seconds(59)
            assert w.state() is State.LAUNCHING
            w.executor.kill_hangs = {launch.launch_id for launch in w.executor.launches}  # it is overlooked
            w.executor.starts_after = 0.1
            await w.seconds(10)
            assert w.state() is State.SUCCESS
            assert len(w.hook.asked) == 2
            await w.seconds(200)
            first, second = (launch.launch_id for launch in w.executor.launches)
            assert (w.executor.begun, w.executor.turned_away) == ([second], [first])
            assert w.row().try_number == 1

    run_virtually(test)


@pytest.mark.parametrize("writes_before_it_starts", [1, 2])
def test_an_agent_that_starts_at_the_last_moment_is_left_alone(tmp_path: Path, writes_before_it_starts: int) -> None:
    """Slow is not dead: between the look that finds a launch too old and the write that gives it up, it begins."""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.executor.starts_after = 10_000.0
            w.register(a_task())
            w.trigger()
            await w.seconds(2)
            (launch,) = w.executor.launches
            await w.crash()  # nobody else writes
            w.watch = Watch(
                w.store, w.executor, clock=w.clock, retry=seconds_to_retry, silence=30.0, wake_scheduler=lambda: None
            )
            watching = asyncio.create_task(w.watch.run())
            await asyncio.sleep(0.1)
            writes = 0

            def start_it() -> None:
                nonlocal writes
                writes += 1
                if writes == writes_before_it_starts:
                    attempt_id = launch.launched.attempt_id
                    w.do(lambda tx: reporting.started(tx, attempt_id, launch.launch_id, "sim", 1))

            w.store_fails = start_it
            w.watch.never_started(launch.launch_id)
            await asyncio.sleep(0.2)
            watching.cancel()
            assert writes >= writes_before_it_starts
            assert w.state() is State.RUNNING
            assert w.executor.killed == []

    run_virtually(test)


def test_a_kill_that_hangs_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            w.executor.takes = 10_000.0
            w.register(a_task())
            for run_id in ("hangs", "dies"):
                w.trigger(run_id)
            await w.seconds(2)
            by_run = {launch.admitted.attempt.run_id: launch.launch_id for launch in w.executor.launches}
            w.executor.kill_hangs = {by_run["hangs"]}
            w.cancel("hangs")
            w.cancel("dies")
            await w.seconds(5)
            assert w.state(run_id="dies") is State.FAILED
            assert w.state(run_id="hangs") is State.RUNNING  # not failed before it is dead (R10.4)
            assert by_run["hangs"] not in w.executor.killed

    run_virtually(test)


def test_a_kill_that_fails_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            launch_id = await running(w)
            w.executor.kill_fails = {launch_id: 3}
            w.cancel()
            await w.seconds(10)
            assert (w.state(), w.row().reason) == (State.FAILED, "cancelled by alice")

    run_virtually(test)


def test_a_stop_that_was_asked_for_just_before_the_server_died_is_carried_out_by_the_next(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            launch_id = await running(w)
            await w.crash()
            w.do(lambda tx: people.cancel_run(tx, "r", "cancelled by alice"))
            w.start()
            await w.seconds(5)
            assert launch_id in w.executor.killed
            assert (w.state(), w.row().reason) == (State.FAILED, "cancelled by alice")

    run_virtually(test)


def test_a_silent_agent_that_lives_is_left_alone_and_one_that_is_gone_fails_its_try(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            launch_id = await running(w)
            await w.seconds(300)
            assert w.state() is State.RUNNING
            assert launch_id not in w.executor.killed
            w.executor.killed.append(launch_id)  # gone, and nobody was told
            await w.seconds(40)
            assert (w.state(), w.row().reason) == (State.FAILED, "its agent is gone")

    run_virtually(test)


def test_an_agent_that_dies_fails_its_try_and_the_next_try_is_another(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            launch_id = await running(w, retries=1, retry_delay=1.0)
            w.executor.takes = 0.1
            w.executor.dies(launch_id)
            await w.seconds(10)
            assert (w.state(), w.row().try_number) == (State.SUCCESS, 2)

    run_virtually(test)


@pytest.mark.parametrize("started", [True, False])
def test_a_death_that_cannot_be_written_is_written_as_soon_as_the_database_can(tmp_path: Path, started: bool) -> None:
    """Not only once its launch is given up, or its silence is noticed."""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.executor.takes = 10_000.0
            w.executor.starts_after = 0.1 if started else 10_000.0
            w.register(a_task(retries=1, retry_delay=600.0))
            w.trigger()
            await w.seconds(2)
            with w.full_disk():
                w.executor.dies(w.executor.launches[0].launch_id)
                await w.seconds(5)
                assert w.state() is (State.RUNNING if started else State.LAUNCHING)
            await w.seconds(2)
            assert (w.state(), w.row().reason) == (State.UP_FOR_RETRY, "its agent was killed by SIGKILL")

    run_virtually(test)


def test_an_adopted_agent_that_dies_after_a_restart_fails_its_try(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            launch_id = await running(w)
            await w.crash()
            w.start()
            await w.seconds(10)
            assert w.state() is State.RUNNING
            w.executor.dies(launch_id)
            await w.seconds(2)
            assert w.state() is State.FAILED
            assert "SIGKILL" in w.row().reason

    run_virtually(test)


def test_an_agent_that_ended_in_order_without_having_reported_is_not_waited_for(tmp_path: Path) -> None:
    """It was turned away by mistake (a lost signing key): its attempt does not seem to run for ever."""

    async def test() -> None:
        async with world(tmp_path) as w:
            launch_id = await running(w)
            w.executor.dies(launch_id, in_order=True)
            await w.seconds(2)
            assert (w.state(), w.row().reason) == (State.FAILED, "its agent ended without a report")

    run_virtually(test)


def test_an_agent_that_dies_before_it_started_is_a_failed_try(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            w.executor.starts_after = 100.0
            w.register(a_task())
            w.trigger()
            await w.seconds(2)
            w.executor.dies(w.executor.launches[0].launch_id)
            await w.seconds(2)
            assert w.state() is State.FAILED
            assert w.do(slots.slots_taken).attempts == 0

    run_virtually(test)


def test_one_agent_that_cannot_be_looked_for_keeps_no_other_from_being_found_dead(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            w.executor.takes = 10_000.0
            w.register(*(a_task(f"t{i}") for i in range(4)))
            w.trigger()
            await w.seconds(2)
            by_task = {launch.admitted.attempt.task_id: launch.launch_id for launch in w.executor.launches}
            w.executor.find_fails = {by_task["t0"], by_task["t2"]}
            w.executor.killed += [by_task["t1"], by_task["t3"]]
            await w.seconds(60)
            states = [w.state(f"t{i}") for i in range(4)]
            assert states == [State.RUNNING, State.FAILED, State.RUNNING, State.FAILED]

    run_virtually(test)


@pytest.mark.parametrize("how", ["cancel", "clear"])
def test_a_launch_that_was_cancelled_or_cleared_is_killed_and_turned_away(tmp_path: Path, how: str) -> None:
    """R1.7"""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.executor.starts_after = 5.0
            w.register(a_task())
            w.trigger()
            await w.seconds(2)
            (launch,) = w.executor.launches
            w.executor.kill_hangs = {launch.launch_id}
            w.executor.starts_after = 0.1
            if how == "cancel":
                w.cancel()
            else:
                _, kill = w.do(lambda tx: people.clear_tasks(tx, "r", None, downstream=False, only_failed=False))
                w.kill(kill)
            await w.seconds(20)
            assert w.executor.turned_away == [launch.launch_id]
            assert w.state() is (State.SKIPPED if how == "cancel" else State.SUCCESS)

    run_virtually(test)
