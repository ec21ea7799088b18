"""Holds on a virtual clock: paced, fair, surviving restarts and clock steps (R6)."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from dexaflow.admission import admit, hold
from dexaflow.model.states import State
from dexaflow.store import people, slots
from tests.dispatch.world import world
from tests.store.world import a_task
from tests.virtual_time import run_virtually


def test_a_held_attempt_is_asked_again_after_recheck_plus_at_most_a_tenth(tmp_path: Path) -> None:
    """R6.1"""

    async def test() -> None:
        async with world(tmp_path, recheck=15.0) as w:
            w.hook.always(hold("frozen"))
            w.register(a_task())
            w.trigger()
            await w.seconds(100)
            times = w.hook.times("t")
            gaps = [b - a for a, b in pairwise(times)]
            assert len(gaps) >= 5
            assert all(15.0 <= gap <= 16.5 + 0.1 for gap in gaps), gaps
            assert w.state() is State.HELD
            w.hook.always(admit())
            await w.seconds(20)
            assert w.state() is State.SUCCESS

    run_virtually(test)


def test_a_held_attempt_holds_no_slots(tmp_path: Path) -> None:
    """R6.1: one tenant's freeze starves nobody else."""

    async def test() -> None:
        async with world(tmp_path, parallelism=2) as w:
            w.hook.answer = lambda r: hold("frozen") if r.tenant_id == "acme" else admit()
            w.pool(2)
            w.register(*(a_task(f"t{i}") for i in range(20)))
            w.register(a_task("other"), dag_id="e", tenant_id="globex")
            w.trigger()
            await w.seconds(1)
            w.trigger("r2", "e")
            await w.seconds(2)
            assert w.state("other", "r2") is State.SUCCESS
            assert w.do(slots.slots_taken).attempts == 0

    run_virtually(test)


def test_admitted_after_a_hold_it_waits_for_slots_and_is_asked_anew(tmp_path: Path) -> None:
    """R6.1: if the pool is full it becomes scheduled, and is asked again when it has slots."""

    async def test() -> None:
        async with world(tmp_path, parallelism=16) as w:
            w.executor.takes = 60.0
            w.hook.answer = lambda r: hold("frozen") if r.task_id == "t" and w.clock.monotonic() < 1010 else admit()
            w.pool(1, "p")
            w.register(a_task(pool="p"))
            w.register(a_task("busy", pool="p"), dag_id="e")
            w.trigger()
            await w.seconds(2)
            w.trigger("r2", "e")
            await w.seconds(18)
            assert w.state("busy", "r2") is State.RUNNING
            assert w.state() is State.SCHEDULED
            asked = len(w.hook.times("t"))
            await w.seconds(60)
            assert w.state() is State.RUNNING
            assert len(w.hook.times("t")) == asked + 1

    run_virtually(test)


@pytest.mark.parametrize("step", [timedelta(hours=1), timedelta(hours=-1)])
def test_a_stepped_wall_clock_neither_fires_nor_defers_a_recheck(tmp_path: Path, step: timedelta) -> None:
    async def test() -> None:
        async with world(tmp_path, recheck=600.0) as w:
            w.hook.always(hold("frozen"))
            w.register(a_task())
            w.trigger()
            await w.seconds(10)
            w.clock.set_wall(step)
            await w.seconds(500)
            assert len(w.hook.asked) == 1
            await w.seconds(200)
            assert len(w.hook.asked) == 2

    run_virtually(test)


def test_a_hold_survives_a_restart_with_its_reason_and_its_waiting_time(tmp_path: Path) -> None:
    """R6.4"""

    async def test() -> None:
        async with world(tmp_path, recheck=600.0) as w:
            w.hook.always(hold("frozen"))
            w.register(a_task())
            w.trigger()
            await w.seconds(10)
            before = w.row()
            await w.crash()
            await w.seconds(100)  # nothing is up
            w.start()
            await w.seconds(1)
            assert (w.row().reason, w.row().hook, w.row().held_at) == (before.reason, before.hook, before.held_at)
            await w.seconds(470)
            assert len(w.hook.asked) == 1
            await w.seconds(90)
            assert len(w.hook.asked) == 2

    run_virtually(test)


def test_a_wait_that_ran_out_while_nothing_was_up_is_over_at_the_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path, recheck=600.0) as w:
            w.hook.always(hold("frozen"))
            w.register(a_task())
            w.trigger()
            await w.seconds(10)
            await w.crash()
            await w.seconds(3600)
            w.start()
            await w.seconds(2)
            assert len(w.hook.asked) == 2

    run_virtually(test)


def test_many_holds_of_one_tenant_do_not_delay_anothers(tmp_path: Path) -> None:
    """R6.2: asks are paced and fair between tenants."""

    async def test() -> None:
        async with world(tmp_path, recheck=15.0, parallelism=1000) as w:
            w.pool(10_000)
            w.hook.always(hold("frozen"))
            w.hook.takes = 0.2
            w.register(*(a_task(f"t{i}") for i in range(600)))
            w.register(a_task("other"), dag_id="e", tenant_id="globex")
            w.trigger()
            w.trigger("r2", "e")
            await w.seconds(10)
            await w.crash()
            await w.seconds(100)
            w.start()  # all of them are due at once
            began = w.clock.monotonic()
            await w.seconds(10)
            first = [at for at in w.hook.times("other") if at >= began]
            assert first
            assert first[0] - began < 1.0

    run_virtually(test)


def test_places_that_become_free_one_by_one_are_shared_between_tenants(tmp_path: Path) -> None:
    """R6.2: a tenant with more due holds than can ever be asked in time does not crowd out another's single one."""

    async def test() -> None:
        async with world(tmp_path, recheck=1.0, parallelism=1000) as w:
            w.pool(10_000)
            w.hook.always(hold("frozen"))
            w.hook.takes = 0.5
            w.register(*(a_task(f"t{i}") for i in range(500)))
            w.register(a_task("other"), dag_id="e", tenant_id="zebra")
            w.trigger()
            w.trigger("r2", "e")
            await w.seconds(60)
            times = w.hook.times("other")
            assert max(b - a for a, b in pairwise(times[1:])) < 3.0

    run_virtually(test)


def test_asks_follow_recheck_and_not_the_tick(tmp_path: Path) -> None:
    """R6.2: asks a second are held / recheck."""

    async def test() -> None:
        async with world(tmp_path, recheck=15.0, parallelism=1000) as w:
            w.pool(10_000)
            w.hook.always(hold("frozen"))
            w.register(*(a_task(f"t{i}") for i in range(300)))
            w.trigger()
            await w.seconds(60)
            asked = len(w.hook.asked)
            await w.seconds(150)
            rate = (len(w.hook.asked) - asked) / 150
            assert 0.9 <= rate / (300 / 15.0) <= 1.1
            assert sum(r.count for i in range(300) for r in w.reviews(f"t{i}")) == len(w.hook.asked)

    run_virtually(test)


def test_ask_now_asks_at_once(tmp_path: Path) -> None:
    """R6.3"""

    async def test() -> None:
        async with world(tmp_path, recheck=3600.0) as w:
            w.hook.always(hold("frozen"))
            w.register(a_task())
            w.trigger()
            await w.seconds(5)
            w.hook.always(admit())
            assert w.do(lambda tx: people.ask_now(tx, attempt_id=None, hook="webhook")) == 1
            w.dispatcher.wake()
            await w.seconds(2)
            assert w.state() is State.SUCCESS

    run_virtually(test)


def test_an_answer_that_arrives_after_the_cancel_revives_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            w.hook.takes = 5.0
            w.register(a_task())
            w.trigger()
            await w.seconds(1)
            assert w.state() is State.QUEUED
            w.do(lambda tx: people.cancel_run(tx, "r", "cancelled by alice"))
            await w.seconds(10)
            assert w.state() is State.SKIPPED
            assert w.executor.launches == []
            assert [r.outcome for r in w.reviews()] == ["admit"]

    run_virtually(test)
