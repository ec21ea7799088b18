"""The statements a `Reader` is made of: what is selected for each kind of row, and how one page of it is run."""

import dataclasses
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    Table,
    and_,
    exists,
    func,
    literal_column,
    null,
    select,
    text,
)

from dexaflow.model.dags import DagSpec
from dexaflow.store.reading_filters import contains, starts_with
from dexaflow.store.reading_rows import AttemptRow, DagRow, PoolRow, RunRow, WatchedTask
from dexaflow.store.reading_waits import OCCUPYING, WAITS, Room, run_waits_because, task_waits_because
from dexaflow.store.schema import dag_errors, dag_versions, dags, runs, task_instances, totals

__all__ = [
    "HELD",
    "attempt_row",
    "attempt_select",
    "dag_row",
    "dag_select",
    "has_errors",
    "names",
    "of_task",
    "parse_spec",
    "patterns",
    "run_page",
    "run_row",
    "run_select",
    "watched_select",
    "watched_task",
    "with_slots",
]

# Literal, not bound: a partial index is used only where the planner can see that its condition holds.
HELD: ColumnElement[bool] = literal_column("task_instances.state = 'held'")
_SCHEDULED = text("state = 'scheduled'")

_FROM_VERSION = (dag_versions.c.number.label("version_number"), dag_versions.c.created_at.label("version_created_at"))
_WAITS = frozenset(column.key for column in WAITS)
_FROM_RUN = (runs.c.logical_date, runs.c.run_after)


@lru_cache(maxsize=256)
def parse_spec(document: str) -> DagSpec:
    """Return the DAG kept as JSON text."""
    return DagSpec.from_json(json.loads(document))


def names(kind: type[Any]) -> list[str]:
    """Return the field names of a row type: the columns to select for it."""
    return [f.name for f in dataclasses.fields(kind)]


def run_page(
    conn: Connection,
    statement: Select[Any],
    where: Sequence[ColumnElement[bool]],
    order: Sequence[ColumnElement[Any]],
    limit: int,
    offset: int,
    count_from: FromClause,
) -> tuple[Sequence[Row[Any]], int]:
    """One page and the number of all, in one snapshot."""
    if where:
        statement = statement.where(*where)
    found = conn.execute(statement.order_by(*order).limit(limit).offset(offset)).all()
    if offset == 0 and len(found) < limit:
        return found, len(found)
    total = None
    if not where and isinstance(count_from, Table):
        total = conn.execute(select(totals.c.count).where(totals.c.name == count_from.name)).scalar_one_or_none()
    if total is None:
        total = conn.execute(select(func.count()).select_from(count_from).where(*where)).scalar_one()
    return found, int(total)


def has_errors() -> ColumnElement[bool]:
    """Whether something is wrong with the DAG's file now."""
    of_file = and_(dag_errors.c.tenant_id == dags.c.tenant_id, dag_errors.c.file == dags.c.file)
    return exists().where(of_file).correlate(dags)


def dag_select() -> Select[Any]:
    """Select DAGs with their latest versions."""
    columns = [dags.c[n] for n in names(DagRow) if n in dags.c]
    return select(*columns, *_FROM_VERSION, dag_versions.c.spec, has_errors().label("has_errors")).join_from(
        dags, dag_versions, dag_versions.c.id == dags.c.version_id
    )


def dag_row(row: Row[Any]) -> DagRow:
    """Return the value of one row of `dag_select`."""
    values = dict(row._mapping)
    values["spec"] = parse_spec(values["spec"])
    values["has_errors"] = bool(values["has_errors"])
    return DagRow(**values)


def run_select() -> Select[Any]:
    """Select runs with their version's number."""
    columns = [runs.c[n] for n in names(RunRow) if n in runs.c]
    return (
        select(*columns, *_FROM_VERSION, *WAITS)
        .join_from(runs, dag_versions, dag_versions.c.id == runs.c.version_id)
        .outerjoin(dags, dags.c.dag_id == runs.c.dag_id)  # looked up for each row, never walked
    )


def run_row(row: Row[Any]) -> RunRow:
    """Return the value of one row of `run_select`."""
    values = dict(row._mapping)
    return RunRow(**_without_waits(values), waits_because=run_waits_because(values))


def attempt_select(table: FromClause, *, placement: bool = False) -> Select[Any]:
    """Select tries from `task_instances` or `attempt_history`, with what their run and version say.

    Args:
        placement: Also what it runs with and who set it: hundreds of KiB at worst, so not for lists.
    """
    columns: list[ColumnElement[Any]] = [
        table.c[n] if placement or n != "placement" else null().label(n) for n in names(AttemptRow) if n in table.c
    ]
    return (
        select(*columns, *_FROM_VERSION, *_FROM_RUN, *WAITS)
        .join_from(table, runs, runs.c.run_id == table.c.run_id)
        .join(dag_versions, dag_versions.c.id == table.c.version_id)
        .outerjoin(dags, dags.c.dag_id == runs.c.dag_id)  # looked up for each row, never walked
    )


def attempt_row(row: Row[Any], room: Room | None = None) -> AttemptRow:
    """Return the value of one row of `attempt_select`; its reason says also what keeps its whole run, or its slots."""
    values = dict(row._mapping)
    return AttemptRow(**{**_without_waits(values), "reason": task_waits_because(values, room)})


def watched_select() -> Select[Any]:
    """Select what changes about tasks while someone watches their run."""
    columns = [task_instances.c[n] for n in names(WatchedTask)]
    slots = (task_instances.c.pool, task_instances.c.pool_slots)
    return (
        select(*columns, task_instances.c.dag_id, *slots, *WAITS)
        .join_from(task_instances, runs, runs.c.run_id == task_instances.c.run_id)
        .outerjoin(dags, dags.c.dag_id == runs.c.dag_id)  # looked up for each row, never walked
    )


def watched_task(row: Row[Any], room: Room | None = None) -> WatchedTask:
    """Return the value of one row of `watched_select`, its reason as `attempt_row` has it."""
    values = dict(row._mapping)
    return WatchedTask(**{n: values[n] for n in names(WatchedTask)} | {"reason": task_waits_because(values, room)})


def _without_waits(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _WAITS}


def of_task(table: FromClause, run_id: str, task_id: str) -> list[ColumnElement[bool]]:
    """Conditions for one task of one run, found by the unique index of either table."""
    return [table.c.run_id == run_id, table.c.task_id == task_id]


def patterns(*asked: tuple[ColumnElement[str], str | None, str | None]) -> list[ColumnElement[bool]]:
    """Conditions for Airflow's (column, pattern, prefix) filters."""
    where: list[ColumnElement[bool]] = []
    for column, pattern, prefix in asked:
        if pattern is not None:
            where.append(contains(column, pattern))
        if prefix is not None:
            where.append(starts_with(column, prefix))
    return where


def with_slots(conn: Connection, found: Sequence[Row[Any]]) -> list[PoolRow]:
    """Return pools with what their slots are doing, counted from the states themselves."""
    ti = task_instances.c
    slots = func.sum(ti.pool_slots).label("slots")
    taken = {(r.pool, r.state): int(r.slots) for r in conn.execute(
        select(ti.pool, ti.state, slots).where(OCCUPYING).group_by(ti.pool, ti.state)
    )}  # fmt: skip
    waiting = {r.pool: int(r.slots) for r in conn.execute(
        select(ti.pool, slots).where(_SCHEDULED).group_by(ti.pool)
    )}  # fmt: skip
    return [
        PoolRow(
            pool=r.pool, slots=r.slots, description=r.description,
            running=taken.get((r.pool, "running"), 0),
            queued=taken.get((r.pool, "queued"), 0) + taken.get((r.pool, "launching"), 0),
            scheduled=waiting.get(r.pool, 0),
        )
        for r in found
    ]  # fmt: skip
