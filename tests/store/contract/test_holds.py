"""Held attempts: who is asked next, and how long it has waited (R6, R7)."""

from collections import Counter

from dexaflow.model.attempt import Attempt
from dexaflow.store import admitting, people
from tests.store.world import World, a_task

NOBODY: frozenset[str] = frozenset()


def held(world: World, tenant_id: str, count: int, *, hook: str = "webhook", wait: float = 15.0) -> list[Attempt]:
    world.register(*(a_task(f"t{i}") for i in range(count)), dag_id=tenant_id, tenant_id=tenant_id)
    world.trigger(tenant_id, tenant_id)
    attempts = world.settle()
    for turn, attempt in enumerate(attempts, 1):
        world.hold(attempt, hook, wait=wait, turn=turn)
    return attempts


def due(world: World, limit: int, besides: frozenset[str] = NOBODY) -> list[Attempt]:
    return world.do(
        lambda tx: admitting.due_holds(tx, limit=limit, besides=besides, busy=Counter(), per_tenant=limit)
    )  # fmt: skip


def test_nobody_is_due_before_the_time_and_all_are_after(world: World) -> None:
    held(world, "acme", 3)
    assert due(world, 10) == []
    assert world.do(admitting.next_hold_due) == world.seconds + 15
    world.pass_time(15)
    assert len(due(world, 10)) == 3
    assert world.do(admitting.next_hold_due) is None


def test_tenants_take_turns_however_many_each_has(world: World) -> None:
    """R6.2"""
    held(world, "acme", 12)
    held(world, "globex", 2)
    world.pass_time(20)
    assert [a.tenant_id for a in due(world, 4)].count("globex") == 2


def test_what_is_being_asked_is_not_given_out_again(world: World) -> None:
    attempts = held(world, "acme", 3)
    world.pass_time(15)
    assert due(world, 10, frozenset(a.id for a in attempts)) == []


def test_the_probe_is_the_one_asked_longest_ago(world: World) -> None:
    """R7.4"""
    first, second, _ = held(world, "acme", 3)

    def candidate(besides: frozenset[str] = NOBODY, hook: str = "webhook") -> Attempt | None:
        return world.do(lambda tx: admitting.probe_candidate(tx, hook, besides=besides))

    assert candidate() == first
    assert candidate(frozenset({first.id})) == second
    world.hold(first, turn=4)
    assert candidate() == second
    assert candidate(hook="other") is None


def test_a_hold_without_a_question_keeps_its_place_in_the_order(world: World) -> None:
    """R7.4: asked longest ago is meant, not looked at longest ago."""
    first, *_ = held(world, "acme", 2)
    world.hold(first, asked=False, broken=True, turn=9)
    assert world.row("t0", "acme").turn == 1
    world.hold(first, asked=True, broken=True, turn=10)
    assert world.row("t0", "acme").turn == 10


def test_a_hold_keeps_since_when_it_waits_whoever_holds_it(world: World) -> None:
    (attempt,) = held(world, "acme", 1)
    since = world.row("t0", "acme").held_at
    world.pass_time(100)
    world.hold(attempt, "other", "later")
    row = world.row("t0", "acme")
    assert (row.held_at, row.hook, row.reason) == (since, "other", "later")


def test_broken_waiting_adds_up_while_no_decision_is_between(world: World) -> None:
    """R7.2"""
    attempt = world.queued()

    def waited() -> float:
        return world.do(lambda tx: admitting.broken_wait(tx, attempt.id))

    world.hold(attempt, broken=True)
    world.pass_time(100)
    world.hold(attempt, broken=True, asked=False)
    world.pass_time(50)
    assert waited() == 150
    world.hold(attempt, "other", broken=True)
    world.pass_time(10)
    assert waited() == 160
    world.hold(attempt, broken=False)
    world.pass_time(1000)
    assert waited() == 0
    world.hold(attempt, broken=True)
    assert waited() == 0


def test_one_or_all_of_a_hook_are_asked_now_on_request(world: World) -> None:
    """R6.3"""
    first, *_ = held(world, "acme", 3, wait=3600.0)
    held(world, "globex", 2, hook="other", wait=3600.0)
    assert world.do(lambda tx: people.ask_now(tx, attempt_id=first.id, hook=None)) == 1
    assert due(world, 10) == [first]
    assert world.do(lambda tx: people.ask_now(tx, attempt_id=None, hook="other")) == 2
    assert len(due(world, 10)) == 3
    assert world.do(lambda tx: people.ask_now(tx, attempt_id="gone", hook=None)) == 0
