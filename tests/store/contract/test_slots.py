"""Pool slots are counted from states, so that none can leak."""

import pytest

from dexaflow.model.states import Event, State
from dexaflow.store import people, slots
from dexaflow.store.transaction import move
from tests.store.world import World, a_task


def test_a_due_task_takes_its_slots_and_is_queued(world: World) -> None:
    world.register(a_task(pool_slots=3))
    world.trigger()
    done = world.schedule()
    assert [a.task_id for a in done.queued] == ["t"]
    assert world.state() is State.QUEUED
    assert world.do(slots.slots_taken).by_pool == {"default_pool": 3}


def test_no_more_attempts_at_once_than_the_cap(world: World) -> None:
    world.register(*(a_task(f"t{i}") for i in range(5)))
    world.trigger()
    assert len(world.schedule(parallelism=2).queued) == 2
    assert len(world.schedule(parallelism=2).queued) == 0


def test_a_large_attempt_is_not_starved_by_small_ones_behind_it(world: World) -> None:
    world.do(lambda tx: people.set_pool(tx, "p", 4, None))
    world.register(a_task("a", pool="p", pool_slots=3), a_task("big", pool="p", pool_slots=4), a_task("s", pool="p"))
    world.trigger()
    world.schedule()
    states = {t: world.state(t) for t in ("a", "big", "s")}
    assert list(states.values()).count(State.QUEUED) == 1


def test_an_attempt_that_can_never_fit_says_so_and_blocks_nobody(world: World) -> None:
    world.do(lambda tx: people.set_pool(tx, "p", 2, None))
    world.register(a_task("big", pool="p", pool_slots=3), a_task("small", pool="p"), a_task("lost", pool="gone"))
    world.trigger()
    world.schedule()
    assert world.state("small") is State.QUEUED
    assert world.shown("big") == "needs 3 slots; pool 'p' has 2"
    assert "pool 'gone' does not exist" in world.shown("lost")


def test_an_attempt_says_what_it_waits_for_from_the_moment_on_in_which_it_waits(world: World) -> None:
    """Its pool, those before it there, or `parallelism`; and nothing once it could begin."""
    world.do(lambda tx: people.set_pool(tx, "p", 3, None))
    tasks = ("a_first", 2), ("b_large", 2), ("c_small", 1)
    world.register(*(a_task(name, pool="p", pool_slots=slots) for name, slots in tasks), a_task("d_other"))
    world.trigger()
    world.schedule(parallelism=0)
    assert [world.shown(name) for name, _ in tasks] == ["", "", ""]
    world.schedule(parallelism=1)
    waits = "waits for 2 slots of pool 'p'; `dexaflow pools list` shows what is taken"
    assert world.shown("b_large") == waits
    assert world.shown("c_small") == waits.replace("2 slots", "1 slot")  # nobody passes the one before it
    assert world.shown("d_other", parallelism=1) == (
        "as many attempts are on their way as parallelism allows (1); it begins when one ends"
    )
    assert world.shown("d_other", parallelism=2) == ""
    world.do(lambda tx: people.set_pool(tx, "p", 1, None))
    assert world.shown("b_large") == "needs 2 slots; pool 'p' has 1"
    world.do(lambda tx: people.set_pool(tx, "p", 5, None))
    assert [world.shown("b_large"), world.shown("c_small")] == ["", ""]


@pytest.mark.parametrize("event", [Event.REFUSED, Event.REJECTED, Event.CANCELLED])
def test_an_attempt_that_ends_before_it_runs_gives_its_slots_back(world: World, event: Event) -> None:
    world.register(a_task())
    world.trigger()
    (attempt,) = world.schedule().queued
    world.do(lambda tx: move(tx, attempt.id, event, State.QUEUED))
    assert world.do(slots.slots_taken).attempts == 0


def test_attempts_of_a_paused_dag_are_not_queued(world: World) -> None:
    world.register(a_task())
    world.trigger()
    world.do(lambda tx: people.set_paused(tx, "d", paused=True))
    assert world.schedule().queued == ()
    world.do(lambda tx: people.set_paused(tx, "d", paused=False))
    assert len(world.schedule().queued) == 1
