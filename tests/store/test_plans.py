"""Cost follows what is due, not what exists: no query of a loop walks through a whole table (R6.2).

Every statement that the loops really execute over 10,000 rows is taken down, and SQLite is asked how it would run it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from dexaflow.admission.results import Held, Outcome
from dexaflow.store import admitting, gauges, leading, people, reporting, retention, running, slots
from dexaflow.store.migrating import migrate
from dexaflow.store.schema import attempt_history, reviews, runs, task_instances
from dexaflow.store.transaction import Tx, iso
from tests.store.steps import steps_of
from tests.store.world import World, a_review, a_task, opened

MANY, FEW = 10_000, 100
# These hold only what is under way or due, by their own condition: walking through all of one is what is wanted.
SMALL_INDEXES = {"ix_ti_occupying", "ix_ti_scheduled", "ix_ti_retry", "ix_runs_dirty", "ix_runs_timeout"}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """10,000 ended runs with a task and a review each, and 10,000 attempts held."""
    world = with_history(tmp_path_factory.mktemp("crowded"), MANY)
    yield world
    world.engine.dispose()


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The same with a hundred of each."""
    world = with_history(tmp_path_factory.mktemp("calm"), FEW)
    yield world
    world.engine.dispose()


def with_history(folder: Path, many: int) -> World:
    world = World(opened("sqlite", folder)).lead()
    world.register(a_task(), max_active_runs=3)
    world.register(a_task(), dag_id="hourly", schedule="0 * * * *")
    now = iso(world.wall)
    version = {"dag_id": "d", "tenant_id": "acme", "version_id": 1}
    task = version | {
        "task_id": "t", "try_number": 1, "max_tries": 1, "operator": "bash", "pool": "default_pool", "pool_slots": 1,
        "scheduled_at": now,
    }  # fmt: skip
    run = version | {"run_type": "manual", "run_after": now, "queued_at": now, "dirty": False}
    review = {
        "task_id": "t", "try_number": 1, "hook": "webhook", "outcome": "hold", "reason": "", "changes": "{}", "uid": "",
        "incident": "", "seconds": 0.1, "first_at": now, "last_at": now, "count": 1,
    }  # fmt: skip
    ended = {"state": "success", "ended_at": now}
    held = {"state": "held", "hook": "webhook", "reason": "frozen", "held_at": now}
    with world.engine.begin() as conn:
        for i in range(many):
            conn.execute(insert(runs), run | ended | {"run_id": f"old-{i}"})
            conn.execute(insert(runs), run | {"run_id": f"held-{i}", "state": "running"})
        for i in range(many):
            tenant = {"tenant_id": f"tenant-{i % 7}"}
            conn.execute(insert(task_instances), task | ended | {"attempt_id": f"old-{i}", "run_id": f"old-{i}"})
            conn.execute(insert(attempt_history), task | ended | {"attempt_id": f"h-{i}", "run_id": f"old-{i}"})
            due = {"next_ask_due": 900.0 + i, "turn": i, "attempt_id": f"held-{i}", "run_id": f"held-{i}"}
            conn.execute(insert(task_instances), task | held | tenant | due)
            conn.execute(insert(reviews), review | {"attempt_id": f"held-{i}", "run_id": f"held-{i}"})
    return world


@contextmanager
def taken_down(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    statements: list[tuple[str, Any]] = []
    done = Tx._done

    def listening(tx: Tx, sql: str, values: dict[str, Any]) -> Any:
        if sql.lstrip().startswith(("SELECT", "UPDATE", "DELETE")):
            statements.append((sql, dict(values)))
        return done(tx, sql, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tx, "_done", listening)
        yield statements


def walks(world: World, statements: list[tuple[str, Any]]) -> list[str]:
    """Return the statements that walk through a whole table, with SQLite's own words for how."""
    found = []
    with world.engine.connect() as conn:
        for statement, parameters in dict(zip([s for s, _ in statements], statements, strict=True)).values():
            for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters):
                scan = re.match(r"SCAN (\w+)(?: AS \w+)?(?: USING (?:COVERING )?INDEX (\w+))?", row.detail)
                table = scan and {"r": "runs", "t": "task_instances", "ti": "task_instances"}.get(scan[1], scan[1])
                large = table in ("runs", "task_instances", "attempt_history", "reviews")
                if scan and large and scan[2] not in SMALL_INDEXES:
                    found.append(f"{row.detail}: {statement}")
    return found


def test_a_pass_of_the_scheduler(crowded: World) -> None:
    crowded.trigger("fresh")
    with taken_down(crowded.engine) as statements:
        crowded.schedule()
    assert len(statements) > 10
    assert walks(crowded, statements) == []


def test_the_rounds_of_the_dispatcher(crowded: World) -> None:
    with taken_down(crowded.engine) as statements:
        attempts = crowded.do(
            lambda tx: admitting.due_holds(tx, limit=64, besides=frozenset(), busy={}, per_tenant=48)
        )  # fmt: skip
        crowded.do(admitting.next_hold_due)
        crowded.do(lambda tx: admitting.probe_candidate(tx, "webhook", besides=frozenset({"held-0"})))
    assert len(attempts) == 64
    assert len({a.tenant_id for a in attempts}) == 7
    assert walks(crowded, statements) == []


def test_what_comes_of_an_ask(crowded: World) -> None:
    attempt, second, third = crowded.do(
        lambda tx: admitting.due_holds(tx, limit=3, besides=frozenset(), busy={}, per_tenant=48)
    )
    with taken_down(crowded.engine) as statements:
        crowded.hold(attempt, reviews=[a_review(outcome=Outcome.HOLD)], broken=True)
        crowded.launch(second, "launch-1")
        crowded.started(second)
        crowded.ended(second)
        crowded.refuse(third)
        crowded.do(lambda tx: admitting.last_failure(tx, Held(attempt, "webhook", "", ())))
    assert walks(crowded, statements) == []


def test_the_watch_and_the_ticks(crowded: World) -> None:
    with taken_down(crowded.engine) as statements:
        crowded.do(reporting.launching_attempts)
        crowded.do(reporting.running_attempts)
        crowded.do(lambda tx: reporting.live_launch(tx, "launch-1"))
        crowded.do(leading.tick)
    assert walks(crowded, statements) == []


def test_people_and_retention(crowded: World) -> None:
    with taken_down(crowded.engine) as statements:
        crowded.do(lambda tx: people.ask_now(tx, attempt_id="held-5", hook=None))
        crowded.do(lambda tx: people.cancel_run(tx, "held-6", "cancelled"))
        crowded.do(lambda tx: people.clear_tasks(tx, "held-6", None, downstream=False, only_failed=False))
        before = iso(crowded.wall.replace(year=2100))
        old = crowded.do(lambda tx: retention.old_runs(tx, before))
        crowded.do(lambda tx: retention.remove_runs(tx, old[:2], before))
        crowded.do(gauges.attempts_in_state)
        crowded.do(gauges.pool_slots)
    assert old
    assert walks(crowded, statements) == []


# What loops do again and again while nothing, or little, is due. Limits are such that both worlds have as much due.
ROUNDS: dict[str, Callable[[Tx], object]] = {
    "the holds that are due": lambda tx: admitting.due_holds(tx, limit=7, besides=frozenset(), busy={}, per_tenant=48),
    "no hold that is due": lambda tx: admitting.due_holds(
        replace(tx, up=0.0), limit=64, besides=frozenset(), busy={}, per_tenant=48
    ),
    "when the next hold is due": admitting.next_hold_due,
    "whom to send as a probe": lambda tx: admitting.probe_candidate(tx, "webhook", besides=frozenset({"held-0"})),
    "which slots are taken": slots.slots_taken,
    "who gets slots": lambda tx: slots.take_slots(tx, 16),
    "what is due next": running.next_due,
    "launches that did not start": reporting.launching_attempts,
    "attempts that went silent": reporting.running_attempts,
    "the control plane's tick": leading.tick,
}


@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_costs_the_same_however_many_are_held_or_ended(name: str, crowded: World, calm: World) -> None:
    """A plan says which index is used, not how far it is walked."""
    many, few = (steps_of(world.engine, partial(world.do, ROUNDS[name])) for world in (crowded, calm))
    assert few
    assert many <= few + 200, f"{few} steps with {FEW} of each, {many} with {MANY}"


def test_whatever_a_database_has_learnt_about_itself_the_planner_is_told_the_same(calm: World) -> None:
    wanted = _statistics(calm.engine)
    with calm.engine.begin() as conn:
        conn.exec_driver_sql("ANALYZE")
    assert _statistics(calm.engine) != wanted
    migrate(calm.engine)
    assert _statistics(calm.engine) == wanted


def _statistics(engine: Engine) -> list[Any]:
    with engine.begin() as conn:
        return sorted(tuple(r) for r in conn.exec_driver_sql("SELECT tbl, idx, stat FROM sqlite_stat1"))


def test_every_index_of_the_tasks_is_known_to_the_planner(calm: World) -> None:
    with calm.engine.begin() as conn:
        there = {
            index.name: len(conn.exec_driver_sql(f"PRAGMA index_info({index.name})").all())
            for index in conn.exec_driver_sql("PRAGMA index_list(task_instances)")
        }
    # How many rows there are, and how many of them share the first column, the first two, and so on.
    assert {index: len(numbers.split()) - 1 for _, index, numbers in _statistics(calm.engine)} == there
