"""A database in any state a test wants: real tables in a real SQLite file, everything defaulted but what matters."""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Table, insert, select, update

from dexaflow.admission.breaker import BreakerState
from dexaflow.api.ports import HookStatus
from dexaflow.base.clock import SystemClock
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.states import State
from dexaflow.store import people, running
from dexaflow.store.bridge import run_alone
from dexaflow.store.engine import open_reader, open_writer
from dexaflow.store.reading import Reader
from dexaflow.store.schema import (
    attempt_history,
    dag_errors,
    dag_versions,
    dags,
    metadata,
    pools,
    results,
    reviews,
    runs,
    task_instances,
)
from dexaflow.store.transaction import Tx, iso

T = TypeVar("T")
START = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
NEEDS_LAUNCH = (State.LAUNCHING, State.RUNNING)


def at(seconds: float) -> str:
    """A kept time, `seconds` after the tests' beginning."""
    return iso(START + timedelta(seconds=seconds))


def a_dag(dag_id: str = "nightly_etl", *tasks: TaskSpec, **fields: Any) -> DagSpec:
    return DagSpec(dag_id, tasks or (a_task("extract"), a_task("load", upstream=("extract",))), **fields)


def a_task(task_id: str = "extract", **fields: Any) -> TaskSpec:
    return TaskSpec(**{"task_id": task_id, "operator": "python", **fields})


class Database:
    """Writes rows as they are told; `reader` reads them."""

    def __init__(self, folder: Path) -> None:
        path = folder / "dexaflow.db"
        self.writer = open_writer(path)
        metadata.create_all(self.writer)
        self.reading = open_reader(path)
        self.reader = Reader(self.reading)
        self.ids = itertools.count(1)
        self.pool("default_pool", 128)

    def close(self) -> None:
        self.reading.dispose()
        self.writer.dispose()

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        with self.writer.begin() as conn:
            conn.execute(insert(table), [dict(r) for r in rows])

    def set_task(self, run_id: str, task_id: str, **values: Any) -> None:
        ti = task_instances.c
        with self.writer.begin() as conn:
            conn.execute(update(task_instances).where(ti.run_id == run_id, ti.task_id == task_id).values(**values))

    def do(self, verb: Callable[[Tx], T]) -> T:
        return run_alone(
            self.writer,
            verb,
            clock=SystemClock(),
            up=lambda: 1000.0,
            new_id=lambda: f"fresh-{next(self.ids)}",
            term=None,
        )

    def pool(self, name: str, slots: int, description: str = "") -> None:
        self.insert(pools, [{"pool": name, "slots": slots, "description": description}])

    def dag(self, spec: DagSpec | None = None, *, number: int = 1, **fields: Any) -> DagSpec:
        spec = spec or a_dag()
        with self.writer.begin() as conn:
            version_id = conn.execute(
                insert(dag_versions).returning(dag_versions.c.id),
                {
                    "dag_id": spec.dag_id, "number": number, "snapshot": "s", "file": f"{spec.dag_id}.py",
                    "spec": json.dumps(spec.to_json()), "created_at": at(0),
                },
            ).scalar_one()  # fmt: skip
            if number == 1:
                row = {
                    "dag_id": spec.dag_id, "tenant_id": "acme", "file": f"{spec.dag_id}.py", "version_id": version_id,
                    "registered_at": at(0), "updated_at": at(0), **fields,
                }  # fmt: skip
                conn.execute(insert(dags), row)
            else:
                conn.execute(update(dags).where(dags.c.dag_id == spec.dag_id).values(version_id=version_id))
        return spec

    def version_id(self, dag_id: str) -> int:
        with self.writer.begin() as conn:
            return int(conn.execute(select(dags.c.version_id).where(dags.c.dag_id == dag_id)).scalar_one())

    def run(self, run_id: str = "run-1", dag_id: str = "nightly_etl", **fields: Any) -> str:
        queued = fields.pop("queued", 0.0)
        self.insert(
            runs,
            [
                {
                    "run_id": run_id, "dag_id": dag_id, "tenant_id": "acme", "version_id": self.version_id(dag_id),
                    "run_type": "manual", "state": "running", "run_after": at(queued), "queued_at": at(queued),
                    "started_at": at(queued + 1), "triggered_by": "alice", **fields,
                }
            ],
        )  # fmt: skip
        return run_id

    def task(self, task_id: str = "extract", state: State = State.RUNNING, **fields: Any) -> str:
        """Add the present try of a task instance; returns its attempt id."""
        row = self.attempt_row(task_id, state, **fields)
        self.insert(task_instances, [row])
        return str(row["attempt_id"])

    def earlier_try(self, task_id: str = "extract", state: State = State.FAILED, **fields: Any) -> str:
        row = self.attempt_row(task_id, state, **fields)
        self.insert(attempt_history, [row])
        return str(row["attempt_id"])

    def attempt_row(self, task_id: str, state: State, **fields: Any) -> dict[str, Any]:
        launched = state in NEEDS_LAUNCH
        held = state is State.HELD
        return {
            "attempt_id": f"00000000-0000-7000-8000-{next(self.ids):012d}", "run_id": "run-1", "task_id": task_id,
            "dag_id": "nightly_etl", "tenant_id": "acme", "version_id": 1, "try_number": 1, "max_tries": 3,
            "state": str(state), "operator": "python", "pool": "default_pool", "pool_slots": 1,
            "scheduled_at": at(2), "queued_at": at(3) if launched else None,
            "launch_id": f"launch-{next(self.ids)}" if launched else None, "launched_at": at(4) if launched else None,
            "started_at": at(5) if state is State.RUNNING else None,
            "held_at": at(3) if held else None, "next_ask_at": at(18) if held else None,
            "next_ask_due": 18.0 if held else None, "hook": "freeze" if held else "",
            "reason": "acme is frozen until 06:00 UTC" if held else "",
            **fields,
        }  # fmt: skip

    def review(self, attempt_id: str, hook: str = "freeze", outcome: str = "hold", **fields: Any) -> None:
        self.insert(
            reviews,
            [
                {
                    "attempt_id": attempt_id, "run_id": "run-1", "task_id": "extract", "try_number": 1, "hook": hook,
                    "outcome": outcome, "reason": "", "changes": "{}", "uid": "u-1", "incident": "", "seconds": 0.02,
                    "first_at": at(3), "last_at": at(3), "count": 1, **fields,
                }
            ],
        )  # fmt: skip

    def dag_error(self, file: str = "broken.py", **fields: Any) -> None:
        row = {"tenant_id": "acme", "file": file, "line": 3, "cause": "NameError: x", "seen_at": at(0), **fields}
        self.insert(dag_errors, [row])

    def result(self, value: bytes, run_id: str = "run-1", task_id: str = "extract") -> None:
        self.insert(results, [{"run_id": run_id, "task_id": task_id, "value": value}])


class StoreCommands:
    """What people ask for, done by the store's real verbs in transactions of their own."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.asked: list[tuple[str | None, str | None]] = []
        self.by: list[str] = []
        self.hooks = [HookStatus("freeze", BreakerState.OPEN, 5, 12.5, "connection refused", 3.5, 2, 61.0)]

    async def trigger(
        self,
        dag_id: str,
        *,
        run_id: str | None,
        conf: Mapping[str, Any],
        logical_date: datetime | None,
        by: str,
        note: str,
    ) -> str:
        self.by.append(by)
        chosen = run_id or f"0193f2c4-0000-7000-8000-{next(self.database.ids):012d}"
        new = running.NewRun(chosen, "manual", logical_date, logical_date, logical_date, conf, by, note)
        self.database.do(lambda tx: running.create_run(tx, dag_id, new))
        return chosen

    async def cancel(self, run_id: str, *, by: str) -> None:
        self.by.append(by)
        self.database.do(lambda tx: people.cancel_run(tx, run_id, f"cancelled by {by}"))

    async def clear(
        self, run_id: str, *, task_ids: Sequence[str] | None, downstream: bool, only_failed: bool, by: str
    ) -> Sequence[str]:
        self.by.append(by)
        cleared, _ = self.database.do(
            lambda tx: people.clear_tasks(tx, run_id, task_ids, downstream=downstream, only_failed=only_failed)
        )
        return cleared

    async def set_paused(self, dag_id: str, *, paused: bool, by: str) -> None:
        self.database.do(lambda tx: people.set_paused(tx, dag_id, paused=paused, by=by))

    async def set_note(self, run_id: str, note: str) -> None:
        self.database.do(lambda tx: people.set_note(tx, run_id, note))

    async def set_pool(self, name: str, *, slots: int, description: str | None) -> None:
        self.database.do(lambda tx: people.set_pool(tx, name, slots, description))

    async def delete_pool(self, name: str) -> None:
        self.database.do(lambda tx: people.delete_pool(tx, name))

    async def ask_now(self, *, attempt_id: str | None, hook: str | None) -> int:
        self.asked.append((attempt_id, hook))
        return self.database.do(lambda tx: people.ask_now(tx, attempt_id=attempt_id, hook=hook))

    async def hooks_status(self) -> Sequence[HookStatus]:
        return self.hooks


class MemoryLogs:
    """Logs by (run, task, try)."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, int], bytes] = {}

    def read(self, run_id: str, task_id: str, try_number: int, offset: int, limit: int) -> bytes:
        return self.kept.get((run_id, task_id, try_number), b"")[offset : offset + limit]
