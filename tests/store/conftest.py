"""A real SQLite file, brought up by the real migrations, and a clock that tests move."""

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Engine

from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.states import State
from dexaflow.scheduling.loop import Pass, one_pass
from dexaflow.store import leading, people, registering, running
from dexaflow.store.bridge import run_alone
from dexaflow.store.engine import open_writer
from dexaflow.store.migrating import migrate
from dexaflow.store.transaction import Tx

T = TypeVar("T")


class World:
    """One control plane's view of one database; its clocks stand still until moved."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.wall = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
        self.seconds = 1000.0
        self.ids = itertools.count(1)
        self.term: int | None = None

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    def do(self, verb: Callable[[Tx], T]) -> T:
        return run_alone(
            self.engine,
            verb,
            clock=self,
            up=lambda: self.seconds,
            new_id=lambda: f"id-{next(self.ids)}",
            term=self.term,
        )

    def lead(self) -> "World":
        self.term = self.do(leading.take_lead)
        self.do(people.ensure_default_pool)
        return self

    def register(self, *tasks: TaskSpec, dag_id: str = "d", tenant_id: str = "acme", **dag: Any) -> None:
        spec = DagSpec(dag_id, tasks, **dag)
        loaded = registering.DagFile(tenant_id, f"{dag_id}.py", "snapshot", (spec,))
        errors = self.do(lambda tx: registering.register_file(tx, loaded, (), lambda *_: None))
        assert errors == ()

    def trigger(self, run_id: str = "r", dag_id: str = "d", conf: dict[str, Any] | None = None) -> str:
        new = running.NewRun(run_id, "manual", None, None, None, conf or {}, "test")
        self.do(lambda tx: running.create_run(tx, dag_id, new))
        return run_id

    def schedule(self, parallelism: int = 16) -> Pass:
        return self.do(lambda tx: one_pass(tx, parallelism, lambda: next(self.ids)))

    def state(self, task_id: str = "t", run_id: str = "r") -> State:
        return State(self.row(task_id, run_id).state)

    def row(self, task_id: str = "t", run_id: str = "r") -> Any:
        row = self.do(
            lambda tx: tx.one("SELECT * FROM task_instances WHERE run_id = :r AND task_id = :t", r=run_id, t=task_id)
        )
        assert row is not None
        return row

    def run_state(self, run_id: str = "r") -> str:
        row = self.do(lambda tx: tx.one("SELECT state FROM runs WHERE run_id = :r", r=run_id))
        assert row is not None
        return str(row.state)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_writer(tmp_path / "dexaflow.db")
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def world(engine: Engine) -> World:
    return World(engine).lead()
