"""Clearing a task ends its try and starts a new one with nothing carried over (R6.3)."""

import pytest

from dexaflow.base.errors import NotFound
from dexaflow.model.states import ENDED, State
from dexaflow.store import slots
from dexaflow.store.schema import ATTEMPT_COLUMNS
from tests.store.contract.waiting import WAITING
from tests.store.world import World, a_task

OF_THE_TASK = {
    "attempt_id", "run_id", "task_id", "dag_id", "tenant_id", "version_id", "try_number", "max_tries", "state",
    "operator", "pool", "pool_slots",
}  # fmt: skip


def assert_nothing_carried_over(world: World) -> None:
    world.register(a_task("u"), dag_id="untouched")
    world.trigger("u", "untouched")
    fresh, row = world.row("u", "u"), world.row()
    for column in set(ATTEMPT_COLUMNS) - OF_THE_TASK:
        assert getattr(row, column) == getattr(fresh, column), column


@pytest.mark.parametrize("state", WAITING)
def test_a_try_that_waits_ends_at_once_and_the_next_begins_fresh(world: World, state: State) -> None:
    WAITING[state](world)
    before = world.row()
    cleared, kill = world.clear()
    assert cleared == ("t",)
    assert world.state() is State.NONE
    assert world.row().attempt_id != before.attempt_id
    assert (world.row().try_number, world.row().max_tries) == (2, before.max_tries + 1)
    assert_nothing_carried_over(world)
    assert world.do(slots.slots_taken).attempts == 0
    assert kill.unheld == ((before.attempt_id,) if state is State.HELD else ())
    assert len(kill.launches) == (state is State.LAUNCHING)
    assert world.settle()[0].try_number == 2


@pytest.mark.parametrize("state", WAITING)
def test_the_history_holds_no_try_that_seems_to_go_on(world: World, state: State) -> None:
    WAITING[state](world)
    before = world.row()
    world.clear()
    (row,) = world.rows("SELECT * FROM attempt_history")
    assert row.attempt_id == before.attempt_id
    assert State(row.state) in ENDED
    assert row.ended_at is not None
    assert (row.next_ask_due, row.retry_due, row.held_at) == (None, None, None)
    assert row.reason  # why it ended


def test_what_runs_is_dead_before_its_next_try_begins(world: World) -> None:
    attempt = world.running()
    _, kill = world.clear()
    assert kill.launches == ((attempt.id, "launch-1"),)
    world.settle()
    assert (world.state(), world.row().try_number) == (State.RUNNING, 1)
    assert world.ended(attempt, succeeded=False) is State.NONE
    assert_nothing_carried_over(world)
    assert world.settle()[0].try_number == 2
    (row,) = world.rows("SELECT * FROM attempt_history")
    assert (row.state, row.reason) == ("failed", "cleared")


def test_a_task_that_succeeds_just_as_it_is_cleared_runs_again_and_leaves_no_result(world: World) -> None:
    attempt = world.running()
    world.clear()
    assert world.ended(attempt, succeeded=True, result=b"42") is State.NONE
    assert world.rows("SELECT * FROM results") == []
    assert world.ended(attempt, succeeded=True, result=b"42") is State.FAILED  # said again: how that try ended
    assert world.state() is State.NONE


def test_a_result_of_an_earlier_try_is_gone(world: World) -> None:
    world.ended(world.running(), result=b"1")
    assert len(world.rows("SELECT * FROM results")) == 1
    world.clear()
    assert world.rows("SELECT * FROM results") == []


def test_a_retried_task_has_no_result_of_the_try_before(world: World) -> None:
    world.ended(world.running(a_task(retries=1)), result=b"1")
    world.clear()
    (second,) = world.settle()
    world.launch(second, "launch-2")
    world.started(second, "launch-2")
    assert world.ended(second, "launch-2", succeeded=False) is State.UP_FOR_RETRY
    assert world.rows("SELECT * FROM results") == []


def test_all_retries_are_there_again_after_a_clear(world: World) -> None:
    attempt = world.running(a_task(retries=1, retry_delay=0.0))
    assert world.ended(attempt, succeeded=False) is State.UP_FOR_RETRY
    (second,) = world.settle()
    world.launch(second, "launch-2")
    world.started(second, "launch-2")
    assert world.ended(second, "launch-2", succeeded=False) is State.FAILED
    world.clear()
    (third,) = world.settle()
    assert (third.try_number, world.row().max_tries) == (3, 4)
    world.launch(third, "launch-3")
    world.started(third, "launch-3")
    assert world.ended(third, "launch-3", succeeded=False) is State.UP_FOR_RETRY


def test_a_try_that_never_came_to_be_due_is_not_counted(world: World) -> None:
    attempt = world.running(a_task("a"), a_task("b", upstream=("a",)))
    world.ended(attempt, succeeded=False)
    world.settle()
    assert world.state("b") is State.UPSTREAM_FAILED
    world.clear()
    world.settle()
    assert (world.row("a").try_number, world.row("b").try_number) == (2, 1)
    assert [r.task_id for r in world.rows("SELECT * FROM attempt_history")] == ["a"]


def test_only_what_was_named_is_cleared_and_downstream_on_request(world: World) -> None:
    tasks = (a_task("a"), a_task("b", upstream=("a",)), a_task("c", upstream=("b",)), a_task("d"))
    assert world.register(*tasks) == ()
    world.trigger()
    for _ in range(3):
        for attempt in world.settle():
            world.launch(attempt, f"launch-{attempt.task_id}")
            world.started(attempt, f"launch-{attempt.task_id}")
            world.ended(attempt, f"launch-{attempt.task_id}")
    world.settle()
    assert world.run_state() == "success"
    assert world.clear("b")[0] == ("b",)
    assert world.state("c") is State.SUCCESS
    assert world.clear("a", downstream=True)[0] == ("a", "c")  # b has not begun again: nothing to clear
    assert world.state("d") is State.SUCCESS
    world.settle()
    assert [world.state(t) for t in "abcd"] == [State.QUEUED, State.NONE, State.NONE, State.SUCCESS]


def test_only_failed_clears_what_failed_and_what_failed_upstream(world: World) -> None:
    world.register(a_task("a"), a_task("b", upstream=("a",)), a_task("c"))
    world.trigger()
    for attempt in world.settle():
        world.launch(attempt, f"launch-{attempt.task_id}")
        world.started(attempt, f"launch-{attempt.task_id}")
        world.ended(attempt, f"launch-{attempt.task_id}", succeeded=attempt.task_id == "c")
    world.settle()
    assert [world.state(t) for t in "abc"] == [State.FAILED, State.UPSTREAM_FAILED, State.SUCCESS]
    assert world.clear(only_failed=True)[0] == ("a", "b")


def test_a_run_that_has_ended_begins_anew_within_max_active_runs(world: World) -> None:
    """As Airflow's do: a hundred runs cleared at once do not run at once."""
    world.ended(world.running(max_active_runs=1, dagrun_timeout=60.0))
    world.settle()
    assert world.run_state() == "success"
    world.trigger("second")
    world.settle()
    world.clear(run_id="r")
    world.settle()
    assert (world.run_state("r"), world.run_state("second")) == ("queued", "running")
    world.cancel("second")
    world.settle()
    row = world.run_row("r")
    assert (row.state, row.ended_at) == ("running", None)
    assert row.timeout_due == world.seconds + 60.0
    assert world.state() is State.QUEUED


def test_a_run_or_task_that_is_not_there_is_a_clear_error(world: World) -> None:
    world.queued()
    with pytest.raises(NotFound, match="no task 'x'"):
        world.clear("x")
    with pytest.raises(NotFound, match="no run"):
        world.clear(run_id="x")
