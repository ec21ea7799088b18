"""Every ask is kept, equal answers in a row as one entry (R9.2)."""

from typing import Any

import pytest

from dexaflow.admission.decisions import Changes
from dexaflow.admission.results import Outcome
from dexaflow.store import admitting
from tests.store.world import World, a_review


def kept(world: World) -> list[tuple[Any, ...]]:
    return [(r.hook, r.outcome, r.reason, r.count) for r in world.rows("SELECT * FROM reviews ORDER BY id")]


def test_equal_answers_in_a_row_are_one_entry_with_first_last_and_count(world: World) -> None:
    attempt = world.queued()
    first = world.now()
    for i in range(3):
        world.hold(attempt, reviews=[a_review(reason="frozen", uid=f"uid-{i}", seconds=i / 10)])
        world.pass_time(15)
    (row,) = world.rows("SELECT * FROM reviews")
    assert (row.count, row.uid, row.seconds, row.reason) == (3, "uid-2", 0.2, "frozen")
    assert row.first_at < row.last_at
    assert row.first_at.startswith(first.isoformat()[:19])


def test_another_answer_begins_another_entry_and_so_does_the_first_one_again(world: World) -> None:
    attempt = world.queued()
    for reason in ("a", "a", "b", "a"):
        world.hold(attempt, reviews=[a_review(reason=reason)])
    assert [(r[2], r[3]) for r in kept(world)] == [("a", 2), ("b", 1), ("a", 1)]


def test_each_hook_has_entries_of_its_own(world: World) -> None:
    attempt = world.queued()
    for _ in range(3):
        world.hold(attempt, reviews=[a_review("first", Outcome.ADMIT), a_review("second", reason="wait")])
    assert [(r[0], r[3]) for r in kept(world)] == [("first", 3), ("second", 3)]


def test_broken_asks_are_equal_but_for_their_incident_and_the_last_one_is_kept(world: World) -> None:
    attempt = world.queued()
    for i in range(3):
        world.hold(attempt, broken=True, reviews=[a_review(outcome=Outcome.ERROR, reason="failed", incident=f"i{i}")])
    (row,) = world.rows("SELECT * FROM reviews")
    assert (row.count, row.incident) == (3, "i2")


def test_other_changes_are_another_answer(world: World) -> None:
    attempt = world.queued()
    for zone in ("a", "b", "b"):
        changes = Changes(node_selector={"zone": zone})
        world.hold(attempt, "second", reviews=[a_review("first", Outcome.ADMIT, changes=changes)])
    assert [(r[1], r[3]) for r in kept(world)] == [("admit", 1), ("admit", 2)]


def test_a_new_try_begins_new_entries(world: World) -> None:
    attempt = world.queued()
    world.hold(attempt, reviews=[a_review(reason="wait")])
    world.clear()
    (second,) = world.settle()
    world.hold(second, reviews=[a_review(reason="wait")])
    assert [(r.try_number, r.count) for r in world.rows("SELECT * FROM reviews ORDER BY id")] == [(1, 1), (2, 1)]


def test_what_is_done_twice_after_a_rollback_is_counted_once(world: World) -> None:
    attempt = world.queued()

    def spoiled(tx: Any) -> None:
        admitting.record(tx, attempt, [a_review(reason="wait")])
        raise RuntimeError

    with pytest.raises(RuntimeError):
        world.do(spoiled)
    world.do(lambda tx: admitting.record(tx, attempt, [a_review(reason="wait")]))
    assert [r[3] for r in kept(world)] == [1]
