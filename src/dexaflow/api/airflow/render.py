"""Our rows in Airflow's shapes."""

import uuid

from dexaflow.api.airflow import shapes
from dexaflow.api.airflow.states import in_airflows_words
from dexaflow.api.answers import kept_json
from dexaflow.base.text import NO_REASON
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.states import State
from dexaflow.store.reading_rows import AttemptRow, DagErrorRow, DagRow, PoolRow, ResultRow, RunRow, VersionRow

__all__ = [
    "RESULT_KEY",
    "dag",
    "dag_details",
    "dag_run",
    "dag_version",
    "import_error",
    "note_of",
    "pool",
    "task",
    "task_instance",
    "task_instance_try",
    "xcom",
]

_BY_HOOK = frozenset({State.HELD, State.FAILED, State.UP_FOR_RETRY})  # where `hook` says who brought it about
RESULT_KEY = "return_value"  # Airflow's key for what a task returned
_OURS = uuid.UUID("5d7c1f0e-9c0b-4a52-8f0a-0d6a3c7e51b4")  # the name space of ids that are not UUIDs themselves


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(_OURS, text))


def dag_version(version_id: int, dag_id: str, number: int, created_at: str) -> shapes.DagVersion:
    """Return one version."""
    return {
        "id": str(uuid.UUID(int=version_id)),
        "dag_id": dag_id,
        "dag_display_name": dag_id,
        "version_number": number,
        "created_at": created_at,
        "bundle_name": None,
        "bundle_url": None,
        "bundle_version": None,
    }


def version(row: VersionRow) -> shapes.DagVersion:
    """Return one version."""
    return dag_version(row.id, row.dag_id, row.number, row.created_at)


def dag(row: DagRow) -> shapes.Dag:
    """Return one DAG."""
    spec = row.spec
    return {
        "allowed_run_types": None,
        "bundle_name": row.tenant_id,
        "bundle_version": None,
        "dag_display_name": row.dag_id,
        "dag_id": row.dag_id,
        "description": spec.description or None,
        "file_token": "",
        "fileloc": row.file,
        "has_import_errors": row.has_errors,
        "has_task_concurrency_limits": False,
        "is_backfillable": False,
        "is_paused": row.is_paused,
        "is_stale": not row.is_active,
        "last_expired": None,
        "last_parse_duration": None,
        "last_parsed_time": row.updated_at,
        "max_active_runs": spec.max_active_runs,
        "max_active_tasks": spec.max_active_runs * max(1, len(spec.tasks)),
        "max_consecutive_failed_dag_runs": 0,
        "next_dagrun_data_interval_end": row.next_run_at,
        "next_dagrun_data_interval_start": None,
        "next_dagrun_logical_date": None,
        "next_dagrun_run_after": row.next_run_at,
        "owners": [row.tenant_id],
        "relative_fileloc": row.file,
        "tags": [{"name": t, "dag_id": row.dag_id, "dag_display_name": row.dag_id} for t in spec.tags],
        "timetable_description": None if spec.schedule is None else f"{spec.schedule} ({spec.timezone})",
        "timetable_partitioned": False,
        "timetable_periodic": spec.schedule is not None,
        "timetable_summary": spec.schedule,
    }


def dag_details(row: DagRow, active_runs: int) -> shapes.DagDetails:
    """Return one DAG with everything Airflow says about it."""
    spec = row.spec
    brief = dag(row)
    return {
        **brief,
        "active_runs_count": active_runs,
        "asset_expression": None,
        "catchup": spec.catchup,
        "concurrency": brief["max_active_tasks"],
        "dag_run_timeout": None if spec.dagrun_timeout is None else _iso_duration(spec.dagrun_timeout),
        "default_args": None,
        "doc_md": None,
        "end_date": None,
        "is_favorite": False,
        "is_paused_upon_creation": None,
        "last_parsed": row.updated_at,
        "latest_dag_version": dag_version(row.version_id, row.dag_id, row.version_number, row.version_created_at),
        "owner_links": None,
        "params": None,
        "render_template_as_native_obj": False,
        "rerun_with_latest_version": False,
        "start_date": None if spec.start_date is None else spec.start_date.isoformat(),
        "template_search_path": None,
        "timezone": spec.timezone,
    }


def _iso_duration(seconds: float) -> str:
    return f"PT{seconds:.6f}".rstrip("0").rstrip(".") + "S"


def dag_run(row: RunRow) -> shapes.DagRun:
    """Return one run."""
    scheduled = row.run_type == "scheduled"
    return {
        "bundle_version": None,
        "conf": _object(row.conf),
        "dag_display_name": row.dag_id,
        "dag_id": row.dag_id,
        "dag_run_id": row.run_id,
        "dag_versions": [dag_version(row.version_id, row.dag_id, row.version_number, row.version_created_at)],
        "data_interval_end": row.data_interval_end,
        "data_interval_start": row.data_interval_start,
        "duration": row.seconds,
        "end_date": row.ended_at,
        "last_scheduling_decision": None,
        "logical_date": row.logical_date,
        "note": row.note or None,
        "partition_date": None,
        "partition_key": None,
        "queued_at": row.queued_at,
        "run_after": row.run_after,
        "run_type": row.run_type,
        "start_date": row.started_at,
        "state": row.state,
        "triggered_by": "timetable" if scheduled else "rest_api",
        "triggering_user_name": None if scheduled else row.triggered_by or None,
    }


def _object(document: str) -> dict[str, object]:
    found = kept_json(document, {})
    return found if isinstance(found, dict) else {}


def note_of(row: AttemptRow) -> str | None:
    """Return why a task instance is where it is, with the hook that said so (R1.4, R6.1); None: nothing to say."""
    if not row.hook or row.state not in _BY_HOOK:
        return row.reason or None
    reason = row.reason or NO_REASON
    if row.state == State.HELD:
        return f"{reason} (held by hook {row.hook}; asked again at {row.next_ask_at})"
    return reason if row.hook in reason else f"{reason} (hook {row.hook})"


def task_instance_try(row: AttemptRow) -> shapes.TaskInstanceTry:
    """Return one try of a task instance."""
    return {
        "dag_display_name": row.dag_id,
        "dag_id": row.dag_id,
        "dag_run_id": row.run_id,
        "dag_version": dag_version(row.version_id, row.dag_id, row.version_number, row.version_created_at),
        "duration": row.seconds,
        "end_date": row.ended_at,
        "executor": None,
        "executor_config": "{}",
        "hostname": row.host or None,
        "map_index": -1,
        "max_tries": row.max_tries - 1,  # Airflow counts retries here
        "operator": row.operator,
        "operator_name": row.operator,
        "pid": row.pid,
        "pool": row.pool,
        "pool_slots": row.pool_slots,
        "priority_weight": 1,
        "queue": None,
        "queued_when": row.queued_at,
        "scheduled_when": row.scheduled_at,
        "start_date": row.started_at,
        "state": in_airflows_words(row.state),
        "task_display_name": row.task_id,
        "task_id": row.task_id,
        "try_number": row.try_number,
        "unixname": None,
    }


def task_instance(row: AttemptRow) -> shapes.TaskInstance:
    """Return one task instance by its present try."""
    return {
        **task_instance_try(row),
        "id": _uuid(row.attempt_id),
        "logical_date": row.logical_date,
        "note": note_of(row),
        "rendered_fields": {},
        "rendered_map_index": None,
        "run_after": row.run_after,
        "trigger": None,
        "triggerer_job": None,
    }


def _time_delta(seconds: float) -> shapes.TimeDelta:
    micros = round(seconds * 1_000_000)
    days, micros = divmod(micros, 86_400_000_000)
    whole, micros = divmod(micros, 1_000_000)
    return {"__type": "TimeDelta", "days": days, "seconds": whole, "microseconds": micros}


def task(spec: DagSpec, one: TaskSpec) -> shapes.Task:
    """Return one task. Its environment is not shown: it may hold secrets."""
    return {
        "class_ref": {"module_path": "dexaflow", "class_name": one.operator},
        "depends_on_past": False,
        "doc_md": None,
        "downstream_task_ids": sorted(t.task_id for t in spec.tasks if one.task_id in t.upstream),
        "end_date": None,
        "execution_timeout": None if one.execution_timeout is None else _time_delta(one.execution_timeout),
        "extra_links": [],
        "is_mapped": False,
        "operator_name": one.operator,
        "owner": None,
        "params": None,
        "pool": one.pool,
        "pool_slots": one.pool_slots,
        "priority_weight": 1,
        "queue": None,
        "retries": one.retries,
        "retry_delay": _time_delta(one.retry_delay),
        "retry_exponential_backoff": 0,
        "start_date": None if spec.start_date is None else spec.start_date.isoformat(),
        "task_display_name": one.task_id,
        "task_id": one.task_id,
        "template_fields": [],
        "trigger_rule": one.trigger_rule,
        "ui_color": None,
        "ui_fgcolor": None,
        "wait_for_downstream": False,
        "weight_rule": None,
    }


def pool(row: PoolRow) -> shapes.Pool:
    """Return one pool."""
    occupied = row.running + row.queued
    return {
        "deferred_slots": 0,
        "description": row.description or None,
        "include_deferred": False,
        "name": row.pool,
        "occupied_slots": occupied,
        "open_slots": max(0, row.slots - occupied),  # a pool made smaller may hold more than it has, for a while
        "queued_slots": row.queued,
        "running_slots": row.running,
        "scheduled_slots": row.scheduled,
        "slots": row.slots,
        "team_name": None,
    }


def import_error(row: DagErrorRow) -> shapes.ImportErrorEntry:
    """Return one thing that is wrong with a DAG file."""
    return {
        "bundle_name": row.tenant_id,
        "filename": row.file,
        "import_error_id": row.id,
        "stack_trace": f"{row.file}:{row.line}: {row.cause}" if row.line else f"{row.file}: {row.cause}",
        "timestamp": row.seen_at,
    }


def xcom(row: ResultRow) -> shapes.XCom:
    """Return one result without its value."""
    return {
        "dag_display_name": row.dag_id,
        "dag_id": row.dag_id,
        "key": RESULT_KEY,
        "logical_date": row.logical_date,
        "map_index": -1,
        "run_after": row.run_after,
        "run_id": row.run_id,
        "task_display_name": row.task_id,
        "task_id": row.task_id,
        "timestamp": row.ended_at or row.run_after,
    }
