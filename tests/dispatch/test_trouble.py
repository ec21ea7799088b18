"""When the control plane itself is in trouble: nothing is lost, and nobody is asked without a pause (R10.3)."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dexaflow.admission import Request, admit, hold
from dexaflow.admission.results import Outcome
from dexaflow.base.errors import ExecutorError, TermLost
from dexaflow.dispatch import line
from dexaflow.dispatch.dispatcher import hold_counts
from dexaflow.executors.ports import Launch
from dexaflow.model.states import State
from dexaflow.store import leading, people, slots
from tests.dispatch.world import BROKEN, FULL, SimulatedHook, World, world
from tests.store.world import a_task
from tests.virtual_time import run_virtually


def test_a_fresh_attempt_outlives_a_full_disk_and_its_hook_is_not_hammered(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            w.hook.takes = 2.0
            w.register(a_task())
            w.trigger()
            await w.seconds(1)
            with w.full_disk():
                await w.seconds(300)
                assert len(w.hook.asked) == 1
            await w.seconds(30)
            assert w.state() is State.SUCCESS
            assert len(w.hook.asked) == 2  # asked anew, once

    run_virtually(test)


def test_a_held_attempt_outlives_a_full_disk_and_its_hook_is_not_hammered(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, recheck=15.0) as w:
            w.hook.always(hold("frozen"))
            w.hook.takes = 1.0
            w.register(a_task())
            w.trigger()
            while len(w.hook.asked) < 2:
                await w.seconds(0.1)
            with w.full_disk():
                await w.seconds(300)
                assert len(w.hook.asked) == 2
            w.hook.always(admit())
            await w.seconds(40)
            assert w.state() is State.SUCCESS

    run_virtually(test)


def test_hundreds_of_attempts_on_a_full_disk_do_not_fill_it_with_what_the_log_says_of_them(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, recheck=15.0, parallelism=500) as w:
            w.pool(500)
            w.hook.takes = 2.0
            w.register(*(a_task(f"t{i}") for i in range(300)))
            w.trigger()
            await w.seconds(1)
            with w.full_disk():
                with capture_logs() as lines:
                    await w.seconds(300)
                said = Counter(line["event"] for line in lines if line["log_level"] == "error")
                assert set(said) >= {"walk_failed", "requeue_failed", "schedule_pass_failed"}
                assert max(said.values()) <= 9
                assert sum(line.get("times", 1) for line in lines if line["event"] == "walk_failed") == 300
            await w.seconds(60)
            assert {w.state(f"t{i}") for i in range(300)} == {State.SUCCESS}

    run_virtually(test)


@pytest.mark.parametrize("asked_at", [600.0, None], ids=["in the middle", "as it is asked once more"])
def test_broken_waiting_ends_at_15_minutes_whatever_could_not_be_written(
    tmp_path: Path, asked_at: float | None
) -> None:
    """R7.2: an ask whose end meets a full disk puts the next one off by no more than the 15 minutes leave."""

    async def test() -> None:
        async with world(tmp_path, recheck=3600.0) as w:
            w.hook.always(BROKEN)
            w.hook.takes = 0.5
            w.register(a_task())
            w.trigger()
            if asked_at is not None:
                await w.seconds(asked_at)
                w.do(lambda tx: people.ask_now(tx, attempt_id=None, hook="webhook"))
                w.dispatcher.wake()
            while len(w.hook.asked) < 2:
                await w.seconds(0.1)
            with w.full_disk():
                await w.seconds(20)
            while w.clock.monotonic() - w.hook.asked[0][0] < 900:
                assert w.state() is State.HELD
                await w.seconds(1)
            await w.seconds(10)
            assert w.state() is State.FAILED
            assert "dispatch_failed" in w.row().reason
            assert len(w.hook.asked) == 3

    run_virtually(test)


def test_an_attempt_whose_every_walk_fails_is_paced_says_so_and_harms_nobody(tmp_path: Path) -> None:
    """A fault of ours in one attempt; its reason is not only in a log that its reader cannot see."""

    async def test() -> None:
        async with world(tmp_path) as w:
            inner = w.observer.reviewed

            def faulty(request: Request, hook: str, outcome: Outcome, seconds: float | None) -> None:
                if request.task_id == "bad":
                    raise ZeroDivisionError("a fault of ours")
                inner(request, hook, outcome, seconds)

            w.observer.reviewed = faulty
            w.register(a_task("bad"), a_task("good"))
            w.trigger()
            await w.seconds(600)
            assert w.state("good") is State.SUCCESS
            assert w.state("bad") is State.QUEUED
            assert "fault of the control plane" in w.row("bad").reason
            times = w.hook.times("bad")
            assert 5 <= len(times) <= 20
            assert max(b - a for a, b in pairwise(times)) <= 65.0
            w.cancel()
            await w.seconds(100)
            assert w.do(slots.slots_taken).attempts == 0

    run_virtually(test)


def test_an_admit_that_waited_a_minute_for_the_store_is_not_used(tmp_path: Path) -> None:
    """R1.6: it is asked for again; both asks are kept (R9.2)."""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.register(a_task())
            w.hook.takes = 1.0
            w.trigger()
            await w.seconds(0.5)
            w.store_takes = 61.0
            await w.seconds(40)
            w.store_takes = 0.0
            await w.seconds(30)
            assert w.state() is State.SUCCESS
            assert len(w.hook.asked) == 2
            assert [(r.outcome, r.count) for r in w.reviews()] == [("admit", 2)]
            assert len(w.executor.launches) == 1

    run_virtually(test)


def test_an_attempt_queued_anew_while_its_earlier_start_hangs_is_launched_and_runs_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            first: list[Launch] = []

            def hangs(launch: Launch) -> bool:
                first.append(launch)
                return len(first) == 1

            w.executor.hangs = hangs
            w.register(a_task())
            w.trigger()
            await w.seconds(59)
            assert w.state() is State.LAUNCHING
            await w.seconds(10)
            assert w.state() is State.SUCCESS
            assert len({launch.launch_id for launch in w.executor.launches}) == 2
            assert w.executor.begun == [w.executor.launches[1].launch_id]

    run_virtually(test)


def test_an_attempt_queued_anew_before_its_earlier_walk_came_back_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever keeps a walk longer than its launch is waited for."""
    monkeypatch.setattr(line, "START_SECONDS", 90.0)

    async def test() -> None:
        async with world(tmp_path) as w:
            w.executor.hangs = lambda launch: len(w.executor.launches) == 1
            w.register(a_task())
            w.trigger()
            await w.seconds(70)
            assert w.state() is State.QUEUED
            await w.seconds(25)
            assert w.state() is State.SUCCESS

    run_virtually(test)


def test_a_hook_that_was_taken_out_of_the_configuration_holds_nobody_any_more(tmp_path: Path) -> None:
    """They are asked at once by the hooks that are left, or admitted; and the loop is none the worse."""

    async def test() -> None:
        async with world(tmp_path, hooks=[SimulatedHook("old"), SimulatedHook("stays")], recheck=3600.0) as w:
            w.hooks[0].always(hold("frozen"))
            w.register(a_task("a"), a_task("b"))
            w.trigger()
            await w.seconds(5)
            assert w.row("a").hook == "old"
            await w.crash()
            w.hooks = [w.hooks[1]]
            w.hooks[0].answer = lambda r: hold("later") if r.task_id == "a" else admit()
            w.start()
            await w.seconds(5)
            assert w.state("b") is State.SUCCESS
            assert (w.row("a").hook, w.row("a").reason) == ("stays", "later")
            assert [c.hook for c in hold_counts(w.dispatcher.held(), w.clock.now())] == ["stays"]
            await w.crash()
            w.hooks = []
            w.start()
            await w.seconds(5)
            assert w.state("a") is State.SUCCESS

    run_virtually(test)


def test_slow_hooks_with_every_place_taken_do_not_keep_a_breaker_from_its_probe(tmp_path: Path) -> None:
    """R7.4: after 30 s one attempt is tried, whatever else is being asked."""

    async def test() -> None:
        slow, broken = SimulatedHook("slow", takes=0.01), SimulatedHook("broken")
        async with world(tmp_path, hooks=[slow, broken], recheck=5.0, parallelism=500) as w:
            w.pool(500)
            slow.answer = lambda r: hold("wait") if r.tenant_id == "acme" else admit()
            broken.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(200)))
            w.register(*(a_task(f"o{i}") for i in range(5)), dag_id="e", tenant_id="globex")
            w.trigger()
            w.trigger("r2", "e")
            await w.seconds(3)
            assert len(broken.asked) == 5
            slow.takes = 29.0  # every place is soon taken by acme's rechecks
            await w.seconds(100)
            assert len(broken.asked) >= 6

    run_virtually(test)


def test_one_probe_is_on_its_way_at_a_time_also_when_an_earlier_hook_is_slow(tmp_path: Path) -> None:
    """R6.2: nobody asks the first hook a hundred times because the second one may be probed."""

    async def test() -> None:
        first, second = SimulatedHook("first"), SimulatedHook("second")
        async with world(tmp_path, hooks=[first, second], recheck=3000.0, parallelism=500) as w:
            w.pool(500)
            second.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(100)))
            w.trigger()
            await w.seconds(5)
            asked = len(first.asked)
            first.takes = 8.0
            for _ in range(40):
                w.dispatcher.wake()
                await w.seconds(1.0)
            assert len(first.asked) - asked <= 2

    run_virtually(test)


def test_who_is_sent_to_probe_a_later_hook_does_not_probe_an_earlier_one_out_of_turn(tmp_path: Path) -> None:
    """R7.4: the one asked longest ago, for each hook."""

    async def test() -> None:
        first, second = SimulatedHook("first"), SimulatedHook("second")
        async with world(tmp_path, hooks=[first, second], recheck=3000.0) as w:
            second.always(BROKEN)
            w.register(*(a_task(f"b{i}") for i in range(6)))
            w.register(*(a_task(f"a{i}") for i in range(6)), dag_id="e")
            w.trigger()  # held by the second
            await w.seconds(0.1)
            first.always(BROKEN)
            w.trigger("r2", "e")  # held by the first
            await w.seconds(29.7)
            before = len(first.asked)
            w.store_takes = 0.5  # so that both may be probed by the time the second's is on its way
            await w.seconds(10)
            assert [r.task_id[0] for _, r in first.asked[before:]] == ["a"]

    run_virtually(test)


def test_a_fresh_attempt_that_comes_as_the_probe_falls_due_does_not_take_it(tmp_path: Path) -> None:
    """R7.4: the one asked longest ago is tried, also when another is quicker."""

    async def test() -> None:
        async with world(tmp_path, recheck=3000.0) as w:
            w.hook.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(5)))
            w.register(a_task("fresh"), dag_id="e")
            w.trigger()
            await w.seconds(29.3)
            w.store_takes = 1.0  # the choice of the probe is on its way from 30.0 to 31.0, the fresh one walks at 30.3
            w.trigger("r2", "e")
            await w.seconds(5)
            assert w.hook.times("fresh") == []
            assert len(w.hook.asked) == 6
            assert w.state("fresh", "r2") is State.HELD

    run_virtually(test)


def test_a_hold_that_a_time_out_ended_is_forgotten_and_takes_nobodys_probe(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, recheck=3000.0) as w:
            w.hook.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(5)), dagrun_timeout=10.0)
            w.register(a_task("fresh"), dag_id="e")
            w.trigger()
            await w.seconds(12)
            assert {w.state(f"t{i}") for i in range(5)} == {State.SKIPPED}
            assert hold_counts(w.dispatcher.held(), w.clock.now()) == []
            await w.seconds(20)
            w.hook.always(admit())
            w.trigger("r2", "e")
            await w.seconds(2)
            assert w.state("fresh", "r2") is State.SUCCESS

    run_virtually(test)


def test_told_to_stop_it_puts_no_new_question_and_what_is_being_asked_may_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, recheck=5.0) as w:
            w.hook.answer = lambda r: hold("wait") if r.task_id == "held" else admit()
            w.hook.takes = 2.0
            w.register(a_task("held"), a_task("asked"), dag_id="d")
            w.register(a_task("late"), dag_id="e")
            w.trigger()
            await w.seconds(1)
            w.dispatcher.stop_asking()
            w.trigger("r2", "e")
            await w.dispatcher.quiet.wait()
            await w.seconds(60)
            assert {r.task_id for _, r in w.hook.asked} == {"held", "asked"}
            assert len(w.hook.asked) == 2
            assert (w.state("held"), w.state("asked")) == (State.HELD, State.SUCCESS)
            await w.crash()
            w.start()
            await w.seconds(5)
            assert w.state("late", "r2") is State.SUCCESS  # found, and asked by the next

    run_virtually(test)


def test_a_control_plane_that_lost_its_lead_ends_and_dispatches_nothing_more(tmp_path: Path) -> None:
    """R1.7: a new term wins over everything begun before it."""

    async def test() -> None:
        async with world(tmp_path) as w:
            w.hook.takes = 3.0
            w.register(a_task())
            w.trigger()
            await w.seconds(1)
            mine, w.term = w.term, None
            w.do(leading.take_lead)
            w.term = mine
            assert w._control is not None
            try:
                await w._control
            except BaseExceptionGroup as lost:
                assert lost.subgroup(TermLost) is not None
            else:
                raise AssertionError("it goes on")
            w._control = None
            await w.seconds(10)
            assert w.executor.launches == []
            w.start()
            await w.seconds(10)
            assert w.state() is State.SUCCESS

    run_virtually(test)


def test_the_loops_outlive_a_store_that_fails_now_and_then(tmp_path: Path) -> None:
    """Every third write fails, for all of them alike: in the end everything has run, once."""

    async def test() -> None:
        async with world(tmp_path, recheck=5.0, parallelism=4) as w:
            count = 0

            def now_and_then() -> Exception | None:
                nonlocal count
                count += 1
                return FULL if count % 3 == 0 else None

            w.hook.answer = lambda r: hold("wait") if w.clock.monotonic() < 1030 and r.task_id > "t5" else admit()
            w.register(*(a_task(f"t{i}") for i in range(10)))
            w.store_fails = now_and_then
            w.trigger()
            await w.seconds(600)
            assert [w.state(f"t{i}") for i in range(10)] == [State.SUCCESS] * 10
            assert w.do(slots.slots_taken).attempts == 0
            begun = [
                launch.launched.attempt_id for launch in w.executor.launches if launch.launch_id in w.executor.begun
            ]
            assert len(begun) == len(set(begun)) == 10

    run_virtually(test)


def test_a_control_plane_that_begins_on_a_full_disk_goes_on_once_there_is_room(tmp_path: Path) -> None:
    """No loop ends because its very first look failed; what was held before is asked again."""

    async def test() -> None:
        async with world(tmp_path, recheck=5.0) as w:
            w.hook.always(hold("frozen"))
            w.register(a_task())
            w.trigger()
            await w.seconds(2)
            await w.crash()
            with w.full_disk():
                w.start()
                await w.seconds(20)
            w.hook.always(admit())
            await w.seconds(10)
            assert w.state() is State.SUCCESS

    run_virtually(test)


def test_a_recheck_wakes_no_scheduler(tmp_path: Path) -> None:
    """R6.2: holds cost the database in proportion to `recheck`; nothing follows from being held again."""

    async def test() -> None:
        async with world(tmp_path, recheck=1.0) as w:
            w.hook.always(hold("wait"))
            w.register(*(a_task(f"t{i}") for i in range(10)))
            w.trigger()
            await w.seconds(10)
            passes = _counted(w)
            await w.seconds(60)
            assert passes[0] <= 15  # one in five seconds, and not ten a second

    def _counted(w: World) -> list[int]:
        count = [0]
        inner = w.scheduler._pass

        def counting(tx):  # type: ignore[no-untyped-def]
            count[0] += 1
            return inner(tx)

        w.scheduler._pass = counting  # type: ignore[method-assign]
        return count

    run_virtually(test)


@pytest.mark.parametrize("held", [False, True])
def test_an_attempt_whose_every_admit_grows_too_old_is_asked_until_one_does_not(tmp_path: Path, held: bool) -> None:
    """R1.6, however often it takes: no walk gives it up, and nothing starts meanwhile."""

    async def test() -> None:
        async with world(tmp_path, parallelism=1) as w:
            w.hook.takes = 1.0
            if held:
                w.hook.always(hold("not yet"))
            w.register(a_task())
            w.trigger()
            await w.seconds(20.5 if held else 0.5)
            w.hook.always(admit())
            w.store_takes = 61.0
            await w.seconds(600)
            assert w.state() is not State.SUCCESS
            assert not w.executor.launches
            asked = len(w.hook.asked)
            assert asked > 3
            w.store_takes = 0.0
            await w.seconds(240)
            assert w.state() is State.SUCCESS
            assert len(w.hook.asked) > asked
            assert len(w.executor.launches) == 1

    run_virtually(test)


@pytest.mark.parametrize("retries", [0, 1])
def test_a_start_that_fails_is_a_failed_try_at_once(tmp_path: Path, retries: int) -> None:
    """Its author learns why now, and not when the launch is given up; the task's retries apply."""

    async def test() -> None:
        async with world(tmp_path) as w:
            start = w.executor.start

            async def fails_once(launch: Launch) -> None:
                if len(w.executor.launches) == 0:
                    w.executor.launches.append(launch)
                    raise ExecutorError("no more processes")
                await start(launch)

            w.executor.start = fails_once
            w.register(a_task(retries=retries, retry_delay=5.0))
            w.trigger()
            await w.seconds(2)
            assert w.state() is (State.UP_FOR_RETRY if retries else State.FAILED)
            assert w.row().reason == "could not be started: no more processes"
            await w.seconds(10)
            assert w.state() is (State.SUCCESS if retries else State.FAILED)
            assert w.row().try_number == 1 + retries

    run_virtually(test)
