"""Our rows in our own shapes."""

from dataclasses import asdict

from dexaflow.api.answers import kept_json
from dexaflow.api.own import shapes
from dexaflow.api.ports import HookStatus
from dexaflow.model.dags import TaskSpec
from dexaflow.store.reading_rows import AttemptRow, DagErrorRow, DagRow, ReviewRow, RunRow

__all__ = ["dag", "dag_error", "dag_with_tasks", "hold", "hook", "json_object", "review", "run", "task_instance"]


def json_object(document: str | None) -> dict[str, object]:
    """Return a kept JSON object; an empty one where there is none."""
    found = kept_json(document, {})
    return found if isinstance(found, dict) else {}


def dag(row: DagRow) -> shapes.DagOut:
    """Return one DAG."""
    spec = row.spec
    return {
        "dag_id": row.dag_id,
        "tenant_id": row.tenant_id,
        "file": row.file,
        "description": spec.description,
        "tags": list(spec.tags),
        "schedule": spec.schedule,
        "timezone": spec.timezone,
        "start_date": None if spec.start_date is None else spec.start_date.isoformat(),
        "catchup": spec.catchup,
        "max_active_runs": spec.max_active_runs,
        "dagrun_timeout": spec.dagrun_timeout,
        "is_paused": row.is_paused,
        "paused_at": row.paused_at,
        "paused_by": row.paused_by,
        "is_active": row.is_active,
        "has_errors": row.has_errors,
        "version": row.version_number,
        "registered_at": row.registered_at,
        "updated_at": row.updated_at,
        "next_run_at": row.next_run_at,
        "task_count": len(spec.tasks),
    }


def dag_with_tasks(row: DagRow) -> shapes.DagWithTasks:
    """Return one DAG and its tasks."""
    return {**dag(row), "tasks": [_task(t) for t in row.spec.tasks]}


def _task(spec: TaskSpec) -> shapes.DagTask:
    document = spec.to_json()
    return {
        "task_id": spec.task_id,
        "operator": spec.operator,
        "upstream": list(spec.upstream),
        "trigger_rule": spec.trigger_rule,
        "retries": spec.retries,
        "retry_delay": spec.retry_delay,
        "execution_timeout": spec.execution_timeout,
        "pool": spec.pool,
        "pool_slots": spec.pool_slots,
        "image": spec.image,
        "environment": sorted(spec.env),
        "resources": document["resources"],
        "execution": document["execution"],
        "line": spec.line,
    }


def dag_error(row: DagErrorRow) -> shapes.DagErrorOut:
    """Return one thing that is wrong with a DAG file."""
    return {
        "tenant_id": row.tenant_id,
        "file": row.file,
        "line": row.line,
        "cause": row.cause,
        "seen_at": row.seen_at,
    }


def run(row: RunRow, task_states: dict[str, int]) -> shapes.Run:
    """Return one run."""
    return {
        "run_id": row.run_id,
        "dag_id": row.dag_id,
        "tenant_id": row.tenant_id,
        "version": row.version_number,
        "run_type": row.run_type,
        "state": row.state,
        "logical_date": row.logical_date,
        "data_interval_start": row.data_interval_start,
        "data_interval_end": row.data_interval_end,
        "run_after": row.run_after,
        "queued_at": row.queued_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "seconds": row.seconds,
        "conf": json_object(row.conf),
        "note": row.note,
        "triggered_by": row.triggered_by,
        "stop": row.stop,
        "waits_because": row.waits_because,
        "task_states": task_states,
    }


def task_instance(row: AttemptRow) -> shapes.TaskOut:
    """Return one task instance by its present try."""
    return {
        "run_id": row.run_id,
        "task_id": row.task_id,
        "dag_id": row.dag_id,
        "tenant_id": row.tenant_id,
        "attempt_id": row.attempt_id,
        "try_number": row.try_number,
        "max_tries": row.max_tries,
        "state": row.state,
        "operator": row.operator,
        "pool": row.pool,
        "pool_slots": row.pool_slots,
        "reason": row.reason,
        "hook": row.hook,
        "scheduled_at": row.scheduled_at,
        "queued_at": row.queued_at,
        "held_at": row.held_at,
        "next_ask_at": row.next_ask_at,
        "launched_at": row.launched_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "retry_at": row.retry_at,
        "seconds": row.seconds,
        "exit_code": row.exit_code,
        "host": row.host,
        "log_bytes": row.log_bytes,
    }


def review(row: ReviewRow) -> shapes.Review:
    """Return one hook's answers to one try."""
    return {
        "run_id": row.run_id,
        "task_id": row.task_id,
        "try_number": row.try_number,
        "attempt_id": row.attempt_id,
        "hook": row.hook,
        "outcome": row.outcome,
        "reason": row.reason,
        "changes": json_object(row.changes),
        "seconds": row.seconds,
        "count": row.count,
        "first_at": row.first_at,
        "last_at": row.last_at,
        "uid": row.uid,
        "incident": row.incident,
    }


def hold(row: AttemptRow) -> shapes.Hold:
    """Return one held attempt."""
    return {
        "attempt_id": row.attempt_id,
        "tenant_id": row.tenant_id,
        "dag_id": row.dag_id,
        "run_id": row.run_id,
        "task_id": row.task_id,
        "try_number": row.try_number,
        "hook": row.hook,
        "reason": row.reason,
        "held_at": row.held_at,
        "next_ask_at": row.next_ask_at,
    }


def hook(status: HookStatus) -> shapes.Hook:
    """Return one hook."""
    found: shapes.Hook = {**asdict(status), "breaker": str(status.breaker)}  # type: ignore[typeddict-item]  # the same fields
    return found
