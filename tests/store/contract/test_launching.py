"""The guarded launch and what agents say of it (R1.7, R6.1)."""

import pytest

from dexaflow.model.states import State
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.store import admitting, people, reporting, slots
from tests.store.world import World, a_task


def test_an_attempt_is_launched_once(world: World) -> None:
    attempt = world.queued()
    assert world.launch(attempt, "launch-1").launch_id == "launch-1"
    assert world.launch(attempt, "launch-2") is None
    assert world.row().launch_id == "launch-1"


def test_admitted_after_a_hold_it_takes_its_slots_and_launches_in_one_write(world: World) -> None:
    """R6.1"""
    attempt = world.queued(a_task(pool_slots=3))
    world.hold(attempt)
    assert world.do(slots.slots_taken).attempts == 0
    assert world.launch(attempt).launch_id == "launch-1"
    assert world.do(slots.slots_taken).by_pool == {"default_pool": 3}
    assert (world.row().held_at, world.row().next_ask_due, world.row().broken_since) == (None, None, None)


def made_too_small(world: World) -> None:
    world.do(lambda tx: people.set_pool(tx, "p", 2, None))


def made_empty(world: World) -> None:
    world.do(lambda tx: people.set_pool(tx, "p", 0, None))


def deleted(world: World) -> None:
    world.do(lambda tx: people.delete_pool(tx, "p"))


def paused(world: World) -> None:
    world.do(lambda tx: people.set_paused(tx, "d", paused=True))


@pytest.mark.parametrize("change", [made_too_small, made_empty, deleted, paused])
def test_admitted_after_a_hold_but_without_room_it_is_scheduled_and_says_why(world: World, change: object) -> None:
    """R6.1: and it is asked again when it has slots; what the pool has become is not passed over."""
    assert callable(change)
    world.do(lambda tx: people.set_pool(tx, "p", 3, None))
    attempt = world.queued(a_task(pool="p", pool_slots=3))
    world.hold(attempt)
    change(world)
    assert world.launch(attempt).launch_id is None
    row = world.row()
    assert (row.state, row.launch_id, row.held_at) == ("scheduled", None, None)
    assert "admitted; waits for" in row.reason
    if change is deleted:
        assert "pool 'p' does not exist" in world.shown()  # what can never run does not just wait
        world.do(lambda tx: people.set_pool(tx, "p", 3, None))
    elif change is paused:
        assert "its DAG is paused" in world.shown()
        world.do(lambda tx: people.set_paused(tx, "d", paused=False))
    else:
        assert "needs 3 slots" in world.shown()
        world.do(lambda tx: people.set_pool(tx, "p", 3, None))
    assert [a.id for a in world.settle()] == [attempt.id]
    assert world.row().reason == ""


def test_no_launch_from_a_hold_beyond_the_cap_on_attempts_at_once(world: World) -> None:
    attempt = world.queued(a_task("a"), a_task("b"))
    world.hold(attempt)
    assert world.launch(attempt, parallelism=1).launch_id is None
    assert world.state(attempt.task_id) is State.SCHEDULED


def test_only_the_launch_that_counts_may_start(world: World) -> None:
    """R1.7: the agent runs nothing of the user's until its `started` has been accepted."""
    attempt = world.queued()
    assert world.started(attempt, "launch-1") is None
    world.launch(attempt, "launch-1")
    assert world.started(attempt, "launch-0") is None
    assert world.started(attempt, "launch-1") is not None
    assert world.state() is State.RUNNING


def test_a_start_said_again_is_accepted_from_the_same_agent_and_no_other(world: World) -> None:
    attempt = world.running()
    assert world.started(attempt) is not None
    assert world.started(attempt, pid=8) is None
    assert world.started(attempt, host="elsewhere") is None


def test_a_launch_that_was_given_up_is_worth_nothing(world: World) -> None:
    """R1.7: recovery draws a new launch id, so that an agent it overlooked is turned away."""
    attempt = world.queued()
    world.launch(attempt, "launch-1")
    assert world.do(lambda tx: reporting.lost(tx, attempt.id, "launch-1"))
    assert world.state() is State.SCHEDULED
    assert world.started(attempt, "launch-1") is None
    assert [a.id for a in world.settle()] == [attempt.id]
    world.launch(attempt, "launch-2")
    assert world.started(attempt, "launch-1") is None
    assert world.do(lambda tx: reporting.lost(tx, attempt.id, "launch-1")) is False
    assert world.started(attempt, "launch-2") is not None
    assert world.do(lambda tx: reporting.lost(tx, attempt.id, "launch-2")) is False
    assert world.state() is State.RUNNING


def test_what_an_agent_of_another_launch_says_changes_nothing(world: World) -> None:
    attempt = world.running()
    before = world.row()
    assert world.ended(attempt, "launch-0") is None
    assert world.do(lambda tx: reporting.heartbeat(tx, attempt.id, "launch-0")) is None
    assert world.do(lambda tx: reporting.append_log(tx, attempt.id, "launch-0", lambda place: 1)) is None
    assert world.do(lambda tx: reporting.live_launch(tx, "launch-0")) is None
    assert world.row() == before


def test_a_report_said_again_changes_nothing_and_is_heard(world: World) -> None:
    attempt = world.running(a_task(retries=1, retry_delay=60.0))
    assert world.ended(attempt, succeeded=False) is State.UP_FOR_RETRY
    before = world.row()
    assert world.ended(attempt, succeeded=True) is State.UP_FOR_RETRY
    assert world.row() == before
    world.pass_time(61)
    world.settle()
    assert world.ended(attempt, succeeded=True) is State.FAILED  # now in the history, as it ended
    assert (world.state(), world.row().try_number) == (State.QUEUED, 2)


def test_a_token_dies_with_its_attempt(world: World) -> None:
    attempt = world.running()
    assert world.do(lambda tx: reporting.heartbeat(tx, attempt.id, "launch-1")) is not None
    world.ended(attempt)
    assert world.do(lambda tx: reporting.live_launch(tx, "launch-1")) is None
    assert world.do(lambda tx: reporting.heartbeat(tx, attempt.id, "launch-1")) is None


def test_an_attempt_that_could_not_be_started_is_a_failed_try(world: World) -> None:
    attempt = world.queued(a_task(retries=1, retry_delay=60.0))
    world.launch(attempt)
    assert world.do(lambda tx: reporting.start_failed(tx, attempt.id, "launch-1", "no memory", seconds_to_retry))
    assert (world.state(), world.row().reason) == (State.UP_FOR_RETRY, "no memory")
    assert world.do(slots.slots_taken).attempts == 0
    world.pass_time(61)
    (again,) = world.settle()
    assert (again.try_number, again.id == attempt.id) == (2, False)


def test_a_retry_is_due_by_the_time_the_control_plane_was_up(world: World) -> None:
    attempt = world.running(a_task(retries=1, retry_delay=60.0))
    world.ended(attempt, succeeded=False)
    world.pass_time(59)
    assert world.settle() == []
    world.pass_time(2)
    (again,) = world.settle()
    assert again.try_number == 2
    (row,) = world.rows("SELECT * FROM attempt_history")
    assert (row.try_number, row.state, row.reason, row.launch_id) == (1, "failed", "exit status 1", "launch-1")


def test_a_refused_attempt_is_not_retried_and_has_no_launch(world: World) -> None:
    """R1.4"""
    attempt = world.queued(a_task(retries=3))
    assert world.refuse(attempt, reason="frozen")
    row = world.row()
    assert (row.state, row.reason, row.hook, row.launch_id) == ("failed", "frozen", "webhook", None)
    world.settle()
    assert world.run_state() == "failed"


def test_a_failed_ask_on_our_side_asks_later_and_keeps_the_hold(world: World) -> None:
    attempt = world.queued()
    world.hold(attempt)
    assert world.do(lambda tx: admitting.postpone(tx, attempt.id, tx.up + 40, 7))
    row = world.row()
    assert (row.state, row.reason, row.next_ask_due, row.turn) == ("held", "frozen", world.seconds + 40, 7)
    world.cancel()
    assert not world.do(lambda tx: admitting.postpone(tx, attempt.id, tx.up + 40, 7))
