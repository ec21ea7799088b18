"""Why a run or a task waits that no hook or upstream keeps: a paused DAG, its run's turn, its pool, `parallelism`.

That is kept nowhere: it is read with the row, so that it is true the moment it is shown.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, literal, null, select, text

from dexaflow.model.dags import DagSpec
from dexaflow.model.states import RunState, State
from dexaflow.store.admitting import WAITS_FOR_SLOTS, WAITS_FOR_UNPAUSE
from dexaflow.store.schema import dag_versions, dags, pools, runs, task_instances
from dexaflow.store.transaction import from_iso

__all__ = ["WAITS", "Room", "room_for", "run_waits_because", "task_waits_because"]

OCCUPYING = text("state IN ('queued','launching','running')")


def _of_a_queued_run(value: Select[Any]) -> ColumnElement[Any]:
    """The value for a run that has not begun; for all others nothing is looked up."""
    return case((runs.c.state == literal("queued"), value.scalar_subquery()), else_=null())


_others = runs.alias("others")
_latest = dag_versions.alias("latest")

# To be selected with a row that is joined with its run and its DAG.
WAITS: tuple[ColumnElement[Any], ...] = (
    runs.c.state.label("run_state"),
    dags.c.is_paused.label("dag_paused"),
    dags.c.paused_at.label("dag_paused_at"),
    dags.c.paused_by.label("dag_paused_by"),
    _of_a_queued_run(
        select(func.count()).select_from(_others).where(_others.c.dag_id == runs.c.dag_id, _others.c.state == "running")
    ).label("others_running"),
    _of_a_queued_run(select(_latest.c.spec).where(_latest.c.id == dags.c.version_id)).label("latest_spec"),
)


def run_waits_because(found: dict[str, Any]) -> str:  # Any: columns of each kind
    """Return why a run begins nothing; "" when neither its DAG nor its turn keeps it. Takes the columns of `WAITS`."""
    if found["run_state"] not in (RunState.QUEUED, RunState.RUNNING):
        return ""
    if found["dag_paused"]:
        since = f" since {from_iso(found['dag_paused_at']):%Y-%m-%d %H:%M:%S} UTC" if found["dag_paused_at"] else ""
        by = f" by {found['dag_paused_by']}" if found["dag_paused_by"] else ""
        return f"its DAG is paused{since}{by}; `dexaflow dags unpause {found['dag_id']}` lets it go on"
    most = _max_active_runs(found["latest_spec"]) if found["latest_spec"] else None
    if most is None or found["others_running"] < most:
        return ""
    return f"as many runs of its DAG are running as max_active_runs allows ({most}); it begins when one of them ends"


@dataclass(frozen=True, slots=True)
class Room:
    """What attempts that are scheduled wait for. A pool that does not exist is in none of the three."""

    sizes: Mapping[str, int]
    free: Mapping[str, int]
    next_takes: Mapping[str, int]  # slots that the first in the pool's line needs; the others come after it
    full: int | None  # `parallelism`, where as many attempts are on their way; else None


def room_for(conn: Connection, found: Iterable[Row[Any]], parallelism: int | None) -> Room | None:
    """Look up what the scheduled attempts among `found` wait for; None where there are none."""
    names = sorted({row.pool for row in found if row.state == State.SCHEDULED})
    if not names:
        return None
    ti = task_instances.c
    sizes = {r.pool: int(r.slots) for r in conn.execute(select(pools).where(pools.c.pool.in_(names)))}
    taken = conn.execute(
        select(ti.pool, func.sum(ti.pool_slots).label("slots"), func.count().label("n"))
        .where(OCCUPYING)
        .group_by(ti.pool)
    ).all()
    by_pool = {r.pool: int(r.slots) for r in taken}
    next_takes = {}
    for name, size in sizes.items():  # in the order in which `take_slots` gives them
        first = conn.execute(
            select(ti.pool_slots)
            .join_from(task_instances, dags, dags.c.dag_id == ti.dag_id)
            .where(text("task_instances.state = 'scheduled'"), ti.pool == name, ti.pool_slots <= size)
            .where(dags.c.is_paused.is_(False))
            .order_by(ti.scheduled_at, ti.attempt_id)
            .limit(1)
        ).scalar()
        next_takes[name] = int(first or 0)
    full = parallelism is not None and sum(r.n for r in taken) >= parallelism
    free = {name: size - by_pool.get(name, 0) for name, size in sizes.items()}
    return Room(sizes, free, next_takes, parallelism if full else None)


def _slots_because(pool: str, needed: int, room: Room, kept: str) -> str:
    """Return why an attempt gets no slots now; `kept` where that says it, "" where it is about to get them."""
    size = room.sizes.get(pool)
    many = "1 slot" if needed == 1 else f"{needed} slots"
    if size is None:
        return f"pool '{pool}' does not exist; create it with `dexaflow pools set`"
    if needed > size:
        return f"needs {many}; pool '{pool}' has {size}"
    if kept:
        return kept
    if max(needed, room.next_takes[pool]) > room.free[pool]:
        return f"waits for {many} of pool '{pool}'; `dexaflow pools list` shows what is taken"
    if room.full is not None:
        return f"as many attempts are on their way as parallelism allows ({room.full}); it begins when one ends"
    return ""


def task_waits_because(found: dict[str, Any], room: Room | None = None) -> str:  # Any: columns of each kind
    """Return the reason to show for a task: as it is kept, before that what keeps its whole run, or else its slots."""
    kept = str(found["reason"])
    if found["state"] not in (State.NONE, State.SCHEDULED):
        return kept
    run = run_waits_because(found)
    if kept == WAITS_FOR_UNPAUSE:  # as it was when it was admitted
        kept = "" if found["dag_paused"] else WAITS_FOR_SLOTS
    if found["state"] == State.SCHEDULED and room is not None and not run:
        kept = _slots_because(found["pool"], found["pool_slots"], room, kept)
    return "; ".join(part for part in (run, kept) if part)


@lru_cache(maxsize=256)
def _max_active_runs(document: str) -> int | None:
    try:
        return DagSpec.from_json(json.loads(document)).max_active_runs
    except ValueError:  # written by another Dexaflow: `version_unreadable` is in the log
        return None
