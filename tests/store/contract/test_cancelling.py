"""Cancelling a run ends what waits at once, and what runs once its processes are dead (R6.3)."""

from collections.abc import Callable
from functools import partial

import pytest

from dexaflow.base.errors import Conflict, NotFound
from dexaflow.model.attempt import Attempt
from dexaflow.model.states import State
from dexaflow.store import people, slots
from tests.store.contract.waiting import WAITING
from tests.store.world import World, a_task


@pytest.mark.parametrize("state", WAITING)
def test_what_does_not_run_yet_is_skipped_at_once_and_the_run_has_failed(world: World, state: State) -> None:
    WAITING[state](world)
    assert world.state() is state
    before = world.row()
    kill = world.cancel()
    row = world.row()
    assert (row.state, row.reason) == ("skipped", "cancelled by alice")
    assert (row.next_ask_due, row.retry_due, row.held_at) == (None, None, None)
    assert row.ended_at is not None
    assert (world.run_state(), world.run_row().note) == ("failed", "cancelled by alice")
    assert world.do(slots.slots_taken).attempts == 0
    assert kill.unheld == ((before.attempt_id,) if state is State.HELD else ())
    assert [launch for _, launch in kill.launches] == (["launch-1"] if state is State.LAUNCHING else [])


def test_a_queued_run_ends_without_ever_having_begun(world: World) -> None:
    world.register(a_task(), max_active_runs=1)
    world.trigger("first")
    world.schedule()
    world.trigger("second")
    world.schedule()
    assert world.run_state("second") == "queued"
    world.cancel("second")
    row = world.run_row("second")
    assert (row.state, row.started_at) == ("failed", None)
    assert world.state(run_id="second") is State.SKIPPED
    assert world.state(run_id="first") is State.QUEUED


def test_a_run_of_a_paused_dag_can_be_cancelled(world: World) -> None:
    world.queued()
    world.do(lambda tx: people.set_paused(tx, "d", paused=True))
    world.cancel()
    assert world.run_state() == "failed"


@pytest.mark.parametrize("succeeded", [True, False])
def test_what_runs_fails_whatever_its_agent_says_and_the_run_with_it(world: World, succeeded: bool) -> None:
    attempt = world.running(a_task(retries=3))
    kill = world.cancel()
    assert kill.launches == ((attempt.id, "launch-1"),)
    assert (world.state(), world.run_state()) == (State.RUNNING, "running")
    assert world.ended(attempt, succeeded=succeeded, result=b"1") is State.FAILED
    world.settle()
    assert (world.row().reason, world.run_state()) == ("cancelled by alice", "failed")
    assert world.rows("SELECT * FROM results") == []


def test_nothing_of_a_cancelled_run_begins_any_more(world: World) -> None:
    attempt = world.running(a_task("a"), a_task("b", upstream=("a",), trigger_rule="all_done"))
    world.cancel()
    world.ended(attempt)
    world.settle()
    assert (world.state("b"), world.run_state()) == (State.SKIPPED, "failed")


def test_a_try_that_has_failed_ended_then_and_not_when_its_retry_was_cancelled(world: World) -> None:
    WAITING[State.UP_FOR_RETRY](world)
    failed_at = world.row().ended_at
    world.pass_time(60)
    world.cancel()
    assert (world.state(), world.row().ended_at) == (State.SKIPPED, failed_at)


def test_a_run_that_goes_on_is_no_longer_noted_as_ended(world: World) -> None:
    """Whatever its people have noted stays."""
    world.register(a_task())
    for run_id, note, shown in (("r1", "", "cancelled by bob"), ("r2", "for Ada", "for Ada; cancelled by bob")):
        world.trigger(run_id)
        world.do(partial(people.set_note, run_id=run_id, note=note))
        world.schedule()
        world.do(partial(people.cancel_run, run_id=run_id, why="cancelled by bob"))
        world.schedule()
        assert world.run_row(run_id).note == shown
        world.clear(run_id=run_id)
        assert world.run_row(run_id).note == note
        assert world.rows("SELECT reason FROM attempt_history WHERE run_id = :r", r=run_id)[0].reason == (
            "cancelled by bob"
        )


def test_asked_for_twice_it_is_noted_once(world: World) -> None:
    world.running()
    world.cancel()
    world.cancel(why="cancelled by bob")
    assert world.run_row().note == "cancelled by alice"


def test_a_run_that_has_ended_or_is_not_there_is_a_clear_error(world: World) -> None:
    world.ended(world.running())
    world.settle()
    with pytest.raises(Conflict, match="has ended"):
        world.cancel()
    with pytest.raises(NotFound, match="there is no run"):
        world.cancel("other")


def test_a_cancel_after_a_clear_wins(world: World) -> None:
    """R1.7: a cancel wins over everything begun before it."""
    attempt = world.running()
    world.clear()
    world.cancel()
    assert world.ended(attempt) is State.FAILED
    world.settle()
    assert (world.state(), world.run_state()) == (State.FAILED, "failed")


def test_a_clear_after_a_cancel_wins_and_the_run_goes_on(world: World) -> None:
    attempt = world.running(a_task("a", retries=2), a_task("b"), dagrun_timeout=100.0)
    other = next(a for a in (world.row("a"), world.row("b")) if a.state == "queued")
    world.cancel()
    assert world.state(other.task_id) is State.SKIPPED
    world.clear(attempt.task_id)
    assert world.ended(attempt) is State.NONE
    assert world.run_state() == "running"
    world.settle()
    row = world.row(attempt.task_id)
    assert (row.state, row.try_number) == ("queued", 2)
    world.pass_time(101)
    world.settle()
    assert world.run_state() == "failed"  # the time-out counts anew, and is not gone


def test_the_launch_of_a_cancelled_attempt_is_worth_nothing(world: World) -> None:
    """R1.7"""
    attempt = world.queued()
    world.launch(attempt)
    world.cancel()
    assert world.started(attempt) is None
    assert world.ended(attempt) in (None, State.SKIPPED)
    assert world.state() is State.SKIPPED


def answers(attempt: Attempt) -> dict[str, Callable[[World], object]]:
    return {
        "admitted": lambda world: world.launch(attempt),
        "held": lambda world: world.hold(attempt),
        "refused": lambda world: world.refuse(attempt),
    }


@pytest.mark.parametrize("answer", ["admitted", "held", "refused"])
@pytest.mark.parametrize("was_held", [True, False])
@pytest.mark.parametrize("how", ["cancelled", "cleared"])
def test_an_answer_that_comes_too_late_revives_nothing(world: World, answer: str, was_held: bool, how: str) -> None:
    """R1.6, R6.3: nothing decided for one try reaches another."""
    attempt = world.queued(a_task(retries=2))
    if was_held:
        world.hold(attempt)
    if how == "cancelled":
        world.cancel()
    else:
        world.clear()
        world.settle()
    before = world.row()
    assert not answers(attempt)[answer](world)
    assert world.row() == before
