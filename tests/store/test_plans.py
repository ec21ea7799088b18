"""Cost follows what is due, not what exists: no query of a loop walks through a whole table (R6.2).

Every statement that the loops really execute over 10,000 rows is taken down, and SQLite is asked how it would run it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from dexaflow.admission.results import Held, Outcome
from dexaflow.store import admitting, gauges, leading, people, reporting, slots
from dexaflow.store.schema import attempt_history, reviews, runs, task_instances
from dexaflow.store.transaction import Tx, iso
from tests.store.world import World, a_review, a_task, opened

MANY = 10_000
# These hold only what is under way or due, by their own condition: walking through all of one is what is wanted.
SMALL_INDEXES = {"ix_ti_occupying", "ix_ti_scheduled", "ix_ti_retry", "ix_runs_dirty", "ix_runs_timeout"}


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """10,000 ended runs with a task and a review each, and 10,000 attempts held."""
    world = World(opened("sqlite", tmp_path_factory.mktemp("crowded"))).lead()
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
        for i in range(MANY):
            conn.execute(insert(runs), run | ended | {"run_id": f"old-{i}"})
            conn.execute(insert(runs), run | {"run_id": f"held-{i}", "state": "running"})
        for i in range(MANY):
            tenant = {"tenant_id": f"tenant-{i % 7}"}
            conn.execute(insert(task_instances), task | ended | {"attempt_id": f"old-{i}", "run_id": f"old-{i}"})
            conn.execute(insert(attempt_history), task | ended | {"attempt_id": f"h-{i}", "run_id": f"old-{i}"})
            due = {"next_ask_due": 900.0 + i, "turn": i, "attempt_id": f"held-{i}", "run_id": f"held-{i}"}
            conn.execute(insert(task_instances), task | held | tenant | due)
            conn.execute(insert(reviews), review | {"attempt_id": f"held-{i}", "run_id": f"held-{i}"})
    with world.engine.connect() as conn:
        conn.exec_driver_sql("ANALYZE")
        conn.commit()
    yield world
    world.engine.dispose()


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
        crowded.do(slots.note_never_fitting)
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
        crowded.do(reporting.old_launches)
        crowded.do(reporting.silent_attempts)
        crowded.do(lambda tx: reporting.live_launch(tx, "launch-1"))
        crowded.do(leading.tick)
    assert walks(crowded, statements) == []


def test_people_and_retention(crowded: World) -> None:
    with taken_down(crowded.engine) as statements:
        crowded.do(lambda tx: people.ask_now(tx, attempt_id="held-5", hook=None))
        crowded.do(lambda tx: people.cancel_run(tx, "held-6", "cancelled"))
        crowded.do(lambda tx: people.clear_tasks(tx, "held-6", None, downstream=False, only_failed=False))
        before = iso(crowded.wall.replace(year=2100))
        old = crowded.do(lambda tx: people.old_runs(tx, before))
        crowded.do(lambda tx: people.remove_runs(tx, old[:2], before))
        crowded.do(gauges.attempts_in_state)
        crowded.do(gauges.pool_slots)
    assert old
    assert walks(crowded, statements) == []
