"""The reading side of the store: what it finds, and that its cost follows the page and the filter."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event

from dexaflow.base.errors import NotFound, StoreError
from dexaflow.model.states import State
from dexaflow.store.reading import Reader
from dexaflow.store.reading_filters import AttemptFilter, DagFilter, ReviewFilter, RunFilter
from dexaflow.store.schema import reviews, runs, task_instances
from tests.api.builders import Database, a_dag, a_task, at

RUNS, TASKS = 300, 10


@pytest.fixture
def full(database: Database) -> Database:
    """Three thousand task instances of two tenants' three hundred runs, reviews of each, some of them held."""
    database.dag(a_dag("nightly_etl", *(a_task(f"t{i}") for i in range(TASKS))))
    states = [State.SUCCESS, State.HELD, State.SCHEDULED, State.RUNNING, State.FAILED]
    database.insert(
        runs,
        [
            {
                "run_id": f"run-{i:04d}", "dag_id": "nightly_etl", "tenant_id": ["acme", "umbrella"][i % 2],
                "version_id": 1, "run_type": "manual", "state": "success" if i % 3 else "running", "run_after": at(i),
                "queued_at": at(i),
            }
            for i in range(RUNS)
        ],
    )  # fmt: skip
    rows = [
        database.attempt_row(
            f"t{j}", states[(i + j) % 5], run_id=f"run-{i:04d}", tenant_id=["acme", "umbrella"][i % 2], held_at=at(i)
        )
        for i in range(RUNS)
        for j in range(TASKS)
    ]
    columns = sorted(set().union(*rows))
    database.insert(task_instances, [{c: r.get(c) for c in columns} for r in rows])
    database.insert(
        reviews,
        [
            {
                "attempt_id": r["attempt_id"], "run_id": r["run_id"], "task_id": r["task_id"], "try_number": 1,
                "hook": "freeze", "outcome": "admit", "reason": "", "changes": "{}", "uid": "u", "incident": "",
                "seconds": 0.1, "first_at": at(1), "last_at": at(1), "count": 1,
            }
            for r in rows
        ],
    )  # fmt: skip
    return database


@pytest.fixture
def plans(full: Database) -> Iterator[Callable[[Callable[[Reader], Any]], list[str]]]:
    """What SQLite says it does for each statement of a reader's method."""
    asked: list[tuple[str, Any]] = []

    @event.listens_for(full.reading, "before_cursor_execute")
    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    def explained(call: Callable[[Reader], Any]) -> list[str]:
        asked.clear()
        call(full.reader)
        statements = [(s, p) for s, p in asked if s.startswith("SELECT")]
        assert statements
        with full.writer.begin() as conn:
            return [
                str(step[3])
                for statement, parameters in statements
                for step in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            ]

    yield explained
    event.remove(full.reading, "before_cursor_execute", note)


OF_ONE_RUN: dict[str, Callable[[Reader], Any]] = {
    "run": lambda r: r.run("run-0003"),
    "its tasks": lambda r: r.attempts(AttemptFilter(run_ids=("run-0003",)), limit=5),
    "its running tasks": lambda r: r.attempts(AttemptFilter(run_ids=("run-0003",), states=("running",)), limit=1),
    "one task": lambda r: r.attempt("run-0003", "t1"),
    "tries": lambda r: r.tries("run-0003", "t1"),
    "states": lambda r: r.states("run-0003"),
    "watched": lambda r: r.watched("run-0003"),
    "counts": lambda r: r.state_counts(["run-0003", "run-0004"]),
    "reviews": lambda r: r.reviews("run-0003", ReviewFilter(), limit=5),
    "reviews of a task": lambda r: r.reviews("run-0003", ReviewFilter(task_id="t1", hook="freeze"), limit=5),
    "reviews of an attempt": lambda r: r.reviews_of("00000000-0000-7000-8000-000000000004"),
    "result": lambda r: r.result("run-0003", "t1"),
}


@pytest.mark.parametrize("name", OF_ONE_RUN)
def test_what_is_asked_about_one_run_scans_no_table(
    name: str, plans: Callable[[Callable[[Reader], Any]], list[str]]
) -> None:
    scans = [step for step in plans(OF_ONE_RUN[name]) if step.startswith("SCAN")]
    assert scans == []


OF_ALL: dict[str, tuple[Callable[[Reader], Any], str]] = {
    "holds": (lambda r: r.attempts(AttemptFilter(states=("held",)), limit=5), "ix_ti_"),
    "holds of a hook": (lambda r: r.attempts(AttemptFilter(states=("held",), hook="freeze"), limit=5), "ix_ti_"),
    "holds of a tenant": (lambda r: r.attempts(AttemptFilter(states=("held",), tenant_id="acme"), limit=5), "ix_ti_"),
    "pools": (lambda r: r.pools(limit=5), "ix_ti_"),
    "active runs": (lambda r: r.active_runs("nightly_etl"), "ix_runs_"),
    "runs of a DAG in a state": (
        lambda r: r.runs(RunFilter(dag_ids=("nightly_etl",), states=("running",)), limit=5),
        "ix_runs_",
    ),
}


@pytest.mark.parametrize("name", OF_ALL)
def test_lists_over_all_runs_use_the_index_of_their_filter(
    name: str, plans: Callable[[Callable[[Reader], Any]], list[str]]
) -> None:
    """R6.2: ten thousand held attempts cost what they are, not what has ever run."""
    call, index = OF_ALL[name]
    steps = plans(call)
    assert any(index in step for step in steps), steps
    assert not [s for s in steps if s.startswith(("SCAN task_instances", "SCAN runs")) and "USING" not in s], steps


def test_pages_do_not_overlap_and_count_everything(full: Database) -> None:
    asked = RunFilter(order=(("state", False), ("run_id", True)))
    seen: list[str] = []
    for offset in range(0, RUNS + 50, 50):
        page = full.reader.runs(asked, limit=50, offset=offset)
        assert page.total == RUNS
        seen += [r.run_id for r in page.rows]
    assert len(seen) == len(set(seen)) == RUNS


def test_an_empty_list_in_a_filter_matches_nothing(full: Database) -> None:
    """A filter for a state that we do not have must not become no filter."""
    assert full.reader.attempts(AttemptFilter(states=()), limit=5).total == 0
    assert full.reader.runs(RunFilter(dag_ids=()), limit=5).total == 0


def test_patterns_are_airflows(database: Database) -> None:
    for dag_id in ("alpha", "beta_one", "betaXone"):
        database.dag(a_dag(dag_id))

    def found(**asked: Any) -> list[str]:
        return [d.dag_id for d in database.reader.dags(DagFilter(**asked), limit=10).rows]

    assert found(pattern="LPH") == ["alpha"]
    assert found(pattern="alpha|beta") == ["alpha", "betaXone", "beta_one"]
    assert found(pattern="~") == found() == ["alpha", "betaXone", "beta_one"]
    assert found(prefix="beta_") == ["beta_one"]
    assert found(prefix="BETA") == []
    assert found(pattern="' OR 1=1 --") == []


def test_what_is_absent_is_named_with_where_to_look(full: Database) -> None:
    with pytest.raises(NotFound, match="no run 'nope'; `dexaflow runs list`"):
        full.reader.attempt("nope", "t1")
    with pytest.raises(NotFound, match="run 'run-0003' has no task 'nope'"):
        full.reader.attempt("run-0003", "nope")
    with pytest.raises(NotFound, match="no try 7; its latest try is 1"):
        full.reader.attempt("run-0003", "t1", 7)


def test_a_database_that_cannot_be_read_is_one_clear_error(database: Database) -> None:
    with database.writer.begin() as conn:
        conn.exec_driver_sql("DROP TABLE reviews")
    with pytest.raises(StoreError, match="cannot be read"):
        database.reader.reviews_of("a")
