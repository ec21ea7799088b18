"""One leader at a time, and what a new one finds (R10.3, R6.4)."""

from datetime import timedelta

import pytest

from dexaflow.base.errors import TermLost
from dexaflow.model.states import State
from dexaflow.store import admitting, leading, reporting, slots
from tests.store.world import World, a_task


def another(world: World) -> World:
    """Return the control plane that takes over."""
    second = World(world.engine)
    second.wall, second.seconds, second.ids = world.wall, world.seconds, world.ids
    return second.lead()


def test_an_earlier_control_plane_can_write_nothing(world: World) -> None:
    """R1.7: a new term wins over everything begun before it."""
    attempt = world.queued()
    second = another(world)
    before = second.row()
    for verb in (
        lambda: world.launch(attempt),
        lambda: world.hold(attempt),
        lambda: world.refuse(attempt),
        lambda: world.started(attempt),
        lambda: world.schedule(),
        lambda: world.do(leading.tick),
        lambda: world.cancel(),
    ):
        with pytest.raises(TermLost):
            verb()
    assert second.row() == before


def test_an_agent_of_an_earlier_control_plane_is_heard_by_the_next(world: World) -> None:
    attempt = world.running()
    second = another(world)
    found = second.do(leading.recover)
    assert found.running == ((attempt.id, "launch-1"),)
    assert second.ended(attempt) is State.SUCCESS


def test_queued_goes_back_to_be_asked_anew_and_held_stays_held(world: World) -> None:
    """R6.4: same reason, same waiting time."""
    world.register(a_task("a"), a_task("b"), a_task("c"))
    world.trigger()
    attempts = {a.task_id: a for a in world.settle()}
    world.hold(attempts["a"], wait=600.0)
    world.launch(attempts["b"], "launch-b")
    held = world.row("a")
    second = another(world)
    found = second.do(leading.recover)
    assert (found.requeued, found.launching, found.running) == (1, ((attempts["b"].id, "launch-b"),), ())
    assert second.state("c") is State.SCHEDULED
    assert second.row("a") == held
    assert second.do(slots.slots_taken).attempts == 1


def test_time_in_which_nothing_was_up_shortens_waits_but_not_broken_waiting(world: World) -> None:
    """R7.2: downtime adds nothing to the 15 minutes."""
    world.register(a_task("a"), a_task("b", retries=1, retry_delay=1000.0), dagrun_timeout=5000.0)
    world.trigger()
    attempts = {a.task_id: a for a in world.settle()}
    world.hold(attempts["a"], broken=True, wait=600.0)
    world.launch(attempts["b"])
    world.started(attempts["b"])
    world.ended(attempts["b"], succeeded=False)
    world.pass_time(100)
    world.do(leading.tick)
    second = World(world.engine)
    second.wall, second.ids = world.wall + timedelta(seconds=200), world.ids
    second.seconds = second.do(leading.read_up)
    second.lead()
    second.do(leading.recover)
    assert second.row("a").next_ask_due - second.seconds == pytest.approx(300)
    assert second.row("b").retry_due - second.seconds == pytest.approx(700)
    assert second.run_row().timeout_due - second.seconds == pytest.approx(4700)
    assert second.do(lambda tx: admitting.broken_wait(tx, attempts["a"].id)) == pytest.approx(100)


def test_a_clock_that_was_set_back_meanwhile_defers_nothing(world: World) -> None:
    world.hold(world.queued(), wait=600.0)
    world.do(leading.tick)
    second = World(world.engine)
    second.wall, second.seconds, second.ids = world.wall - timedelta(hours=1), world.seconds, world.ids
    second.lead()
    second.do(leading.recover)
    assert second.row().next_ask_due - second.seconds == pytest.approx(600)


def test_the_up_clock_goes_on_where_it_stopped(world: World) -> None:
    world.pass_time(50)
    world.do(leading.tick)
    assert world.do(leading.read_up) == world.seconds


def test_a_launch_found_without_its_agent_is_asked_anew_under_a_new_launch_id(world: World) -> None:
    attempt = world.queued()
    world.launch(attempt)
    second = another(world)
    (found,) = second.do(leading.recover).launching
    second.do(lambda tx: reporting.lost(tx, *found))
    assert second.started(attempt) is None
    assert [a.id for a in second.settle()] == [attempt.id]
