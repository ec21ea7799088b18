"""Broken hooks on a virtual clock: 15 minutes, the breaker's 30 seconds, and who is tried (R7)."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dexaflow.admission import admit, hold, refuse
from dexaflow.admission.results import Outcome
from dexaflow.model.states import State
from tests.dispatch.world import BROKEN, SimulatedHook, world
from tests.store.world import a_task
from tests.virtual_time import run_virtually


def test_an_attempt_fails_as_dispatch_failed_after_15_minutes_of_broken_waiting_and_not_before(tmp_path: Path) -> None:
    """R7.2"""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.hook.always(BROKEN)
            w.register(a_task())
            w.trigger()
            await w.seconds(895)
            assert w.state() is State.HELD
            with capture_logs() as lines:
                await w.seconds(30)
            row = w.row()
            (said,) = [line for line in lines if line["event"] == "dispatch_failed"]
            assert (said["log_level"], said["reason"], said["task_id"]) == ("warning", row.reason, row.task_id)
            assert row.state == "failed"
            assert "dispatch_failed" in row.reason
            assert "webhook" in row.reason
            assert "secret.example" not in row.reason
            assert any("secret.example" in cause for cause in w.observer.causes)

    run_virtually(test)


def test_dispatch_failed_is_a_failed_try_and_the_tasks_retries_apply(tmp_path: Path) -> None:
    """R7.2"""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.hook.always(BROKEN)
            w.register(a_task(retries=1, retry_delay=60.0))
            w.trigger()
            await w.seconds(930)
            assert w.state() is State.UP_FOR_RETRY
            w.hook.always(admit())
            await w.seconds(120)
            assert (w.state(), w.row().try_number) == (State.SUCCESS, 2)

    run_virtually(test)


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(hours=-1)])
def test_clock_steps_and_downtime_add_nothing_to_broken_waiting(tmp_path: Path, step: timedelta) -> None:
    """R7.2"""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.hook.always(BROKEN)
            w.register(a_task())
            w.trigger()
            await w.seconds(300)
            w.clock.set_wall(step)
            await w.seconds(300)
            await w.crash()
            await w.seconds(7200)
            w.start()
            await w.seconds(250)
            assert w.state() is State.HELD
            await w.seconds(100)
            assert w.state() is State.FAILED

    run_virtually(test)


def test_a_decision_in_between_begins_the_15_minutes_anew(tmp_path: Path) -> None:
    """R7.2"""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.hook.answer = lambda r: hold("frozen") if 1600 < w.clock.monotonic() < 1700 else BROKEN
            w.register(a_task())
            w.trigger()
            await w.seconds(1500)
            assert w.state() is State.HELD
            await w.seconds(200)
            assert w.state() is State.FAILED

    run_virtually(test)


def test_with_a_recheck_of_an_hour_broken_waiting_still_ends_at_15_minutes(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, recheck=3600.0) as w:
            w.hook.always(BROKEN)
            w.register(a_task())
            w.trigger()
            await w.seconds(890)
            assert len(w.hook.asked) == 1
            await w.seconds(30)
            assert len(w.hook.asked) == 2
            assert w.state() is State.FAILED

    run_virtually(test)


def test_after_five_failures_one_question_in_30_seconds_by_the_one_asked_longest_ago(tmp_path: Path) -> None:
    """R7.4"""

    async def test() -> None:
        async with world(tmp_path, recheck=5.0) as w:
            w.hook.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(12)))
            w.trigger()
            await w.seconds(5)
            first = len(w.hook.asked)
            assert 5 <= first <= 12
            await w.seconds(595)
            probes = w.hook.asked[first:]
            gaps = [b[0] - a[0] for a, b in pairwise(probes)]
            assert 18 <= len(probes) <= 20
            assert min(gaps) >= 30.0
            assert max(gaps) <= 31.0
            tried = [request.task_id for _, request in probes]
            assert len(set(tried[:12])) == 12  # not the same one twice while others wait

    run_virtually(test)


def test_who_had_to_wait_for_an_earlier_hook_was_asked_when_its_question_was_put(tmp_path: Path) -> None:
    """R7.4: the one asked longest ago, and not the one that set out first."""

    async def test() -> None:
        first, second = SimulatedHook("first", takes=10.0), SimulatedHook("second")
        async with world(tmp_path, hooks=[first, second], recheck=3000.0) as w:
            second.always(BROKEN)
            w.register(a_task("late"))
            w.register(*(a_task(f"t{i}") for i in range(4)), dag_id="e")
            w.trigger()
            await w.seconds(1)
            first.takes = 0.01
            w.trigger("r2", "e")
            await w.seconds(45)
            asked = [request.task_id for _, request in second.asked]
            assert asked[:5] == ["t0", "t1", "t2", "t3", "late"]
            assert asked[5:] == ["t0"]

    run_virtually(test)


def test_a_probe_whose_end_could_not_be_written_has_had_its_turn(tmp_path: Path) -> None:
    """R7.4: not the same one twice while others wait."""

    async def test() -> None:
        async with world(tmp_path, recheck=3000.0) as w:
            w.hook.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(5)))
            w.trigger()
            await w.seconds(5)
            w.hook.takes = 1.0
            while len(w.hook.asked) < 6:
                await w.seconds(0.1)
            with w.full_disk():
                await w.seconds(10)
            await w.seconds(40)
            assert [request.task_id for _, request in w.hook.asked[5:]] == ["t0", "t1"]

    run_virtually(test)


def test_when_the_breaker_closes_all_go_on(tmp_path: Path) -> None:
    """R7.4"""

    async def test() -> None:
        async with world(tmp_path, recheck=5.0) as w:
            w.hook.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(12)))
            w.trigger()
            await w.seconds(10)
            w.hook.always(admit())
            await w.seconds(40)
            assert all(w.state(f"t{i}") is State.SUCCESS for i in range(12))

    run_virtually(test)


def test_a_fresh_attempt_does_not_take_the_probe_of_one_that_waits(tmp_path: Path) -> None:
    """R7.4"""

    async def test() -> None:
        async with world(tmp_path, recheck=3000.0) as w:
            w.hook.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(5)))
            w.register(a_task("fresh"), dag_id="e")
            w.trigger()
            await w.seconds(29.9)
            w.trigger("r2", "e")
            await w.seconds(5)
            assert w.hook.times("fresh") == []
            assert w.state("fresh", "r2") is State.HELD

    run_virtually(test)


def test_a_fresh_attempt_probes_when_nobody_waits(tmp_path: Path) -> None:
    """R7.4"""

    async def test() -> None:
        async with world(tmp_path, fail_open=True) as w:
            w.hook.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(5)))
            w.register(a_task("fresh"), dag_id="e")
            w.trigger()
            await w.seconds(40)
            assert all(w.state(f"t{i}") is State.SUCCESS for i in range(5))
            w.trigger("r2", "e")
            await w.seconds(5)
            assert len(w.hook.times("fresh")) == 1
            assert w.observer.outcomes.count(Outcome.FAIL_OPEN) == 6

    run_virtually(test)


def test_refusals_and_holds_never_open_the_breaker(tmp_path: Path) -> None:
    """R7.4"""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.hook.answer = lambda r: refuse("no") if r.task_id < "t5" else hold("wait")
            w.register(*(a_task(f"t{i}") for i in range(10)))
            w.trigger()
            await w.seconds(60)
            assert [s.state for s in w.gate.status()] == ["closed"]

    run_virtually(test)


def test_paced_waiting_counts_no_failure_and_bypasses_nothing(tmp_path: Path) -> None:
    """R7.1: a slow hook under load is asked by everyone."""

    async def test() -> None:
        async with world(tmp_path, fail_open=True, parallelism=200) as w:
            w.hook.takes = 0.4
            w.register(*(a_task(f"t{i}") for i in range(300)))
            w.trigger()
            await w.seconds(60)
            assert set(w.observer.outcomes) == {Outcome.ADMIT}

    run_virtually(test)
