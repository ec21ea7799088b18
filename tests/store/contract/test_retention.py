"""`history.retention` bounds what is kept, and takes nothing that is in use."""

from dexaflow.store import people, registering, retention
from dexaflow.store.transaction import iso
from tests.store.world import World, a_review, a_task

TABLES = ("runs", "task_instances", "attempt_history", "reviews", "results")


def counts(world: World) -> dict[str, int]:
    return {t: world.rows(f"SELECT COUNT(*) AS n FROM {t}")[0].n for t in TABLES}


def old(world: World) -> list[str]:
    return world.do(lambda tx: retention.old_runs(tx, iso(world.wall)))


def test_a_run_goes_with_everything_that_belongs_to_it(world: World) -> None:
    attempt = world.queued(a_task(retries=1, retry_delay=0.0))
    world.hold(attempt, reviews=[a_review(reason="wait")])
    world.launch(attempt)
    world.started(attempt)
    world.ended(attempt, succeeded=False)
    (second,) = world.settle()
    world.launch(second, "launch-2")
    world.started(second, "launch-2")
    world.ended(second, "launch-2", result=b"1")
    assert old(world) == []
    world.settle()
    assert old(world) == []
    world.pass_time(1)
    assert old(world) == ["r"]
    assert all(counts(world).values())
    world.do(lambda tx: retention.remove_runs(tx, ["r"], iso(world.wall)))
    assert counts(world) == dict.fromkeys(TABLES, 0)


def test_a_large_run_goes_in_pieces_and_its_tasks_at_once_at_the_end(world: World) -> None:
    """Whoever looks at it meanwhile finds all of its tasks; what is written meanwhile waits for one piece at most."""
    attempt = world.queued(*(a_task(f"t{number}") for number in range(3)))
    for number in range(25):
        world.hold(attempt, reviews=[a_review(reason=f"wait {number}")])
    world.do(lambda tx: people.cancel_run(tx, "r", "cancelled"))
    world.settle()
    world.pass_time(1)
    left, seen = True, []
    while left:
        left = world.do(lambda tx: retention.remove_runs(tx, ["r"], iso(world.wall), at_most=10))
        seen.append((counts(world)["reviews"], counts(world)["task_instances"]))
    assert seen == [(15, 3), (5, 3), (0, 0)]
    assert counts(world) == dict.fromkeys(TABLES, 0)


def test_a_run_that_was_cleared_meanwhile_stays(world: World) -> None:
    world.ended(world.running())
    world.settle()
    world.pass_time(1)
    assert old(world) == ["r"]
    world.clear()
    world.do(lambda tx: retention.remove_runs(tx, ["r"], iso(world.wall)))
    assert counts(world)["runs"] == 1


def test_a_run_that_has_not_ended_is_never_old(world: World) -> None:
    world.hold(world.queued())
    world.pass_time(1e7)
    assert old(world) == []


def test_versions_nobody_needs_go_even_when_no_run_does(world: World) -> None:
    attempt = world.running(a_task("first"))
    for i in range(5):
        world.register(a_task(f"t{i}"))
    assert world.do(retention.remove_unused_versions) == 4
    assert [r.number for r in world.rows("SELECT number FROM dag_versions ORDER BY number")] == [1, 6]
    assert world.do(retention.remove_unused_versions) == 0
    assert world.ended(attempt) is not None
    world.do(lambda tx: registering.remove_file(tx, "acme", "d.py"))
    assert world.do(retention.remove_unused_versions) == 0
    assert world.do(retention.snapshots_in_use) == {"snapshot"}
