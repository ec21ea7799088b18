"""Why a run or a task waits that no hook, pool or upstream keeps: its DAG is paused, or its run's turn has not come.

That is kept nowhere: it is read with the row, so that it is true the moment it is shown.
"""

import json
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, literal, null, select

from dexaflow.model.dags import DagSpec
from dexaflow.model.states import RunState, State
from dexaflow.store.admitting import WAITS_FOR_SLOTS, WAITS_FOR_UNPAUSE
from dexaflow.store.schema import dag_versions, dags, runs
from dexaflow.store.transaction import from_iso

__all__ = ["WAITS", "run_waits_because", "task_waits_because"]


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


def task_waits_because(found: dict[str, Any]) -> str:  # Any: columns of each kind
    """Return the reason to show for a task: as it is kept, and before that what keeps its whole run."""
    kept = str(found["reason"])
    if found["state"] not in (State.NONE, State.SCHEDULED):
        return kept
    if kept == WAITS_FOR_UNPAUSE:  # as it was when it was admitted
        kept = "" if found["dag_paused"] else WAITS_FOR_SLOTS
    return "; ".join(part for part in (run_waits_because(found), kept) if part)


@lru_cache(maxsize=256)
def _max_active_runs(document: str) -> int | None:
    try:
        return DagSpec.from_json(json.loads(document)).max_active_runs
    except ValueError:  # written by another Dexaflow: `version_unreadable` is in the log
        return None
