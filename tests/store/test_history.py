"""A long history costs nothing where it is not asked for, and goes in small pieces (R6.2).

Work is counted, not timed: in steps of SQLite's own machine.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from dexaflow.store import admitting, gauges, leading, retention
from dexaflow.store.engine import open_reader
from dexaflow.store.reading import Reader
from dexaflow.store.reading_filters import AttemptFilter, DagFilter, RunFilter
from dexaflow.store.transaction import iso
from tests.store.steps import steps_of
from tests.store.world import World, a_review, a_task, opened

LITTLE, MUCH = 1_000, 100_000


def with_history(folder: Path, runs: int) -> World:
    """Open a database with so many ended runs."""
    world = World(opened("sqlite", folder)).lead()
    world.register(a_task(), max_active_runs=3)
    world.register(a_task(), dag_id="another")
    fill(world.engine, runs)
    return world


def fill(engine: Engine, runs: int) -> None:
    """Add so many ended runs of DAG `d`, of one task each; one of a hundred failed. `tests.soak.history` uses it."""
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {runs})"
    moment = "strftime('%Y-%m-%dT%H:%M:%S.000000+00:00', '2026-11-28 00:00:00', '-' || i || ' seconds')"
    state = "CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'success' END"
    with engine.begin() as conn:
        found = conn.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        ).all()
        for index in found:  # made again below: that is faster
            conn.exec_driver_sql(f"DROP INDEX {index.name}")
        conn.exec_driver_sql(
            f"{numbers} INSERT INTO runs (run_id, dag_id, tenant_id, version_id, run_type, state, run_after, queued_at,"
            f" started_at, ended_at, dirty) SELECT 'old-' || i, 'd', 'acme', 1, 'manual', {state}, {moment}, {moment},"
            f" {moment}, {moment}, 0 FROM n"
        )
        conn.exec_driver_sql(
            f"{numbers} INSERT INTO task_instances (attempt_id, run_id, task_id, dag_id, tenant_id, version_id,"
            " try_number, max_tries, state, operator, pool, pool_slots, scheduled_at, started_at, ended_at)"
            f" SELECT 'old-' || i, 'old-' || i, 't', 'd', 'acme', 1, 1, 1, {state}, 'bash', 'default_pool', 1,"
            f" {moment}, {moment}, {moment} FROM n"
        )
        conn.exec_driver_sql(
            f"{numbers} INSERT INTO reviews (attempt_id, run_id, task_id, try_number, hook, outcome, reason, changes,"
            " uid, incident, seconds, first_at, last_at, count)"
            f" SELECT 'old-' || i, 'old-' || i, 't', 1, 'webhook', 'admit', '', '{{}}', '', '', 0.1, {moment},"
            f" {moment}, 1 FROM n"
        )
        for index in found:
            conn.exec_driver_sql(index.sql)


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = with_history(tmp_path_factory.mktemp("little"), LITTLE)
    yield world
    world.engine.dispose()


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = with_history(tmp_path_factory.mktemp("much"), MUCH)
    yield world
    world.engine.dispose()


def work(engine: Engine, what: Callable[[], object]) -> int:
    """Return how many hundreds of steps are made for it."""
    return steps_of(engine, what, each=100)


LATEST = (("queued_at", True), ("run_id", True))
READS: dict[str, Callable[[Reader], Any]] = {
    "DAGs": lambda r: r.dags(DagFilter(), limit=50),
    "latest runs": lambda r: r.runs(RunFilter(order=LATEST), limit=50),
    "runs of another DAG": lambda r: r.runs(RunFilter(dag_ids=["another"], order=LATEST), limit=50),
    "runs under way": lambda r: r.runs(RunFilter(states=["running"]), limit=50),
    "a run": lambda r: r.run("old-500"),
    "a run, watched": lambda r: r.watched("old-500"),
    "its tasks": lambda r: r.attempts(AttemptFilter(run_ids=["old-500"]), limit=50),
    "its states": lambda r: r.state_counts(["old-500"]),
    "a task": lambda r: r.attempt("old-500", "t"),
    "its tries": lambda r: r.tries("old-500", "t"),
    "its reviews": lambda r: r.reviews_of("old-500"),
    "what is held": lambda r: r.attempts(AttemptFilter(states=["held"]), limit=50),
    "pools": lambda r: r.pools(limit=50),
    "all runs, as Airflow's client does": lambda r: r.runs(RunFilter(), limit=50),
    "all tasks": lambda r: r.attempts(AttemptFilter(), limit=50),
}


@pytest.mark.parametrize("name", READS)
def test_people_read_what_they_ask_for_and_not_the_history(name: str, little: World, much: World) -> None:
    found = []
    for world in (little, much):
        engine = open_reader(Path(str(world.engine.url.database)))
        reader = Reader(engine)
        READS[name](reader)  # once, for what is only done once
        found.append(work(engine, partial(READS[name], reader)))
        engine.dispose()
    assert found[1] <= 2 * found[0] + 2, found


def a_run(world: World, run_id: str) -> None:
    """See a run from its trigger to its end, held once on the way."""
    world.trigger(run_id)
    (attempt,) = world.settle()
    world.hold(attempt, reviews=[a_review()])
    world.pass_time(3600)
    (attempt,) = world.do(lambda tx: admitting.due_holds(tx, limit=64, besides=frozenset(), busy={}, per_tenant=48))
    launch_id = f"launch-{run_id}"
    world.launch(attempt, launch_id)
    world.started(attempt, launch_id)
    world.ended(attempt, launch_id)
    world.settle()
    world.do(leading.tick)
    assert world.rows("SELECT state FROM runs WHERE run_id = :r", r=run_id)[0].state == "success"


def test_a_run_costs_the_same_from_trigger_to_end(little: World, much: World) -> None:
    found = []
    for world in (little, much):
        a_run(world, "first")
        found.append(work(world.engine, partial(a_run, world, "second")))
    assert found[1] <= 2 * found[0] + 2, found


def test_what_looks_over_everything_now_and_then_looks_at_no_run_twice(little: World, much: World) -> None:
    """What versions are still needed, what is in which state, how full the pools are."""
    found: list[list[int]] = []
    for world in (little, much):
        for number in range(20):
            world.register(a_task(f"t{number}"), dag_id="edited")
        assert world.do(retention.snapshots_in_use)
        looks = (
            retention.snapshots_in_use,
            retention.remove_unused_versions,
            gauges.attempts_in_state,
            gauges.pool_slots,
        )
        found.append([work(world.engine, partial(world.do, look)) for look in looks])
    assert all(large <= 2 * small + 2 for small, large in zip(*found, strict=True)), found


def test_retention_removes_the_same_piece_of_any_history(little: World, much: World) -> None:
    """Each piece is a transaction that the loops wait for."""
    found = []
    for world in (little, much):
        before = iso(world.wall)

        def piece(world: World = world, before: str = before) -> None:
            old = world.do(lambda tx: retention.old_runs(tx, before))
            assert old
            assert not world.do(lambda tx: retention.remove_runs(tx, old, before))

        found.append(work(world.engine, piece))
    assert found[1] <= 2 * found[0] + 2, found


def test_a_list_says_how_many_there_are_whatever_comes_and_goes(tmp_path: Path) -> None:
    """The number is kept, not counted, so it must follow what is made and what is removed."""
    world = with_history(tmp_path, 60)
    reader = Reader(world.engine)
    totals: list[tuple[int, int]] = []
    for change in (
        lambda: None,
        lambda: world.trigger("one more"),
        lambda: world.do(lambda tx: retention.remove_runs(tx, ["old-1", "old-2"], iso(world.wall))),
    ):
        change()
        totals.append((reader.runs(RunFilter(), limit=5).total, reader.attempts(AttemptFilter(), limit=5).total))
    world.engine.dispose()
    assert totals == [(60, 60), (61, 61), (59, 59)]
