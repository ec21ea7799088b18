"""The bodies of Airflow's REST API v2 that we answer with. What we have no counterpart for is null, or says what is so.

These types are what OpenAPI publishes and what mypy holds `render.py` to.
"""

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

__all__ = [
    "Dag",
    "DagCollection",
    "DagDetails",
    "DagRun",
    "DagRunCollection",
    "DagTag",
    "DagVersion",
    "DagVersionCollection",
    "Health",
    "ImportErrorCollection",
    "ImportErrorEntry",
    "LoaderPart",
    "LogLine",
    "Part",
    "Pool",
    "PoolCollection",
    "SchedulerPart",
    "Task",
    "TaskCollection",
    "TaskInstance",
    "TaskInstanceCollection",
    "TaskInstanceTry",
    "TaskInstanceTryCollection",
    "TaskLog",
    "TimeDelta",
    "ToClear",
    "ToClearCollection",
    "TriggererPart",
    "Version",
    "XCom",
    "XComCollection",
    "XComValue",
]

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Identifier = Annotated[str, Field(json_schema_extra={"format": "uuid"})]


class DagTag(TypedDict):
    """One tag of a DAG."""

    name: str
    dag_id: str
    dag_display_name: str


class Dag(TypedDict):
    """One DAG. `is_stale`: its file is gone."""

    allowed_run_types: list[str] | None
    bundle_name: str | None
    bundle_version: str | None
    dag_display_name: str
    dag_id: str
    description: str | None
    file_token: str
    fileloc: str
    has_import_errors: bool
    has_task_concurrency_limits: bool
    is_backfillable: bool
    is_paused: bool
    is_stale: bool
    last_expired: Moment | None
    last_parse_duration: float | None
    last_parsed_time: Moment | None
    max_active_runs: int
    max_active_tasks: int
    max_consecutive_failed_dag_runs: int
    next_dagrun_data_interval_end: Moment | None
    next_dagrun_data_interval_start: Moment | None
    next_dagrun_logical_date: Moment | None
    next_dagrun_run_after: Moment | None
    owners: list[str]
    relative_fileloc: str | None
    tags: list[DagTag]
    timetable_description: str | None
    timetable_partitioned: bool
    timetable_periodic: bool
    timetable_summary: str | None


class DagVersion(TypedDict):
    """One version of a DAG."""

    bundle_name: str | None
    bundle_url: str | None
    bundle_version: str | None
    created_at: Moment
    dag_display_name: str
    dag_id: str
    id: Identifier
    version_number: int


class DagDetails(Dag):
    """One DAG with everything Airflow says about it."""

    active_runs_count: int
    asset_expression: dict[str, Any] | None
    catchup: bool
    concurrency: int
    dag_run_timeout: str | None
    default_args: dict[str, Any] | None
    doc_md: str | None
    end_date: Moment | None
    is_favorite: bool
    is_paused_upon_creation: bool | None
    last_parsed: Moment | None
    latest_dag_version: DagVersion | None
    owner_links: dict[str, str] | None
    params: dict[str, Any] | None
    render_template_as_native_obj: bool
    rerun_with_latest_version: bool | None
    start_date: Moment | None
    template_search_path: list[str] | None
    timezone: str | None


class DagCollection(TypedDict):
    """A page of DAGs."""

    dags: list[Dag]
    total_entries: int


class DagVersionCollection(TypedDict):
    """A page of a DAG's versions."""

    dag_versions: list[DagVersion]
    total_entries: int


class DagRun(TypedDict):
    """One run."""

    bundle_version: str | None
    conf: dict[str, Any] | None
    dag_display_name: str
    dag_id: str
    dag_run_id: str
    dag_versions: list[DagVersion]
    data_interval_end: Moment | None
    data_interval_start: Moment | None
    duration: float | None
    end_date: Moment | None
    last_scheduling_decision: Moment | None
    logical_date: Moment | None
    note: str | None
    partition_date: Moment | None
    partition_key: str | None
    queued_at: Moment | None
    run_after: Moment
    run_type: str
    start_date: Moment | None
    state: str
    triggered_by: str | None
    triggering_user_name: str | None


class DagRunCollection(TypedDict):
    """A page of runs. The cursors are always null: pages go by limit and offset."""

    dag_runs: list[DagRun]
    next_cursor: str | None
    previous_cursor: str | None
    total_entries: int
    total_entries_limit: int | None


class TaskInstanceTry(TypedDict):
    """One try of a task instance, in Airflow's states."""

    dag_display_name: str
    dag_id: str
    dag_run_id: str
    dag_version: DagVersion | None
    duration: float | None
    end_date: Moment | None
    executor: str | None
    executor_config: str
    hostname: str | None
    map_index: int
    max_tries: int
    operator: str | None
    operator_name: str | None
    pid: int | None
    pool: str
    pool_slots: int
    priority_weight: int | None
    queue: str | None
    queued_when: Moment | None
    scheduled_when: Moment | None
    start_date: Moment | None
    state: str | None
    task_display_name: str
    task_id: str
    try_number: int
    unixname: str | None


class TaskInstance(TaskInstanceTry):
    """One task instance by its present try. `note` says why it is where it is, and which hook said so."""

    id: Identifier
    logical_date: Moment | None
    note: str | None
    rendered_fields: dict[str, Any]
    rendered_map_index: str | None
    run_after: Moment
    trigger: None
    triggerer_job: None


class TaskInstanceCollection(TypedDict):
    """A page of task instances. The cursors are always null: pages go by limit and offset."""

    next_cursor: str | None
    previous_cursor: str | None
    task_instances: list[TaskInstance]
    total_entries: int
    total_entries_limit: int | None


class ToClear(TypedDict):
    """One task that clearing its run would clear.

    Airflow's schema takes a whole task instance or a task's name here, and exactly one of them: its own client refuses
    a body that fits both. So this is the name, and what else helps to decide.
    """

    task_id: str
    task_display_name: str
    dag_id: str
    dag_run_id: str
    state: str | None
    try_number: int
    note: str | None


class ToClearCollection(TypedDict):
    """What clearing a run would clear; one page of it at most, counted in full."""

    task_instances: list[ToClear]
    total_entries: int


class TaskInstanceTryCollection(TypedDict):
    """All tries of a task instance, the first one first."""

    task_instances: list[TaskInstanceTry]
    total_entries: int


class LogLine(TypedDict):
    """One line of a log."""

    event: str
    timestamp: Moment | None


class TaskLog(TypedDict):
    """A piece of a log, and the token for the next one; null when the try has ended and this is all."""

    content: list[LogLine]
    continuation_token: str | None


TimeDelta = TypedDict("TimeDelta", {"__type": str, "days": int, "seconds": int, "microseconds": int})
TimeDelta.__doc__ = "A length of time."


class Task(TypedDict):
    """One task of a DAG's latest version."""

    class_ref: dict[str, Any] | None
    depends_on_past: bool
    doc_md: str | None
    downstream_task_ids: list[str] | None
    end_date: Moment | None
    execution_timeout: TimeDelta | None
    extra_links: list[str]
    is_mapped: bool | None
    operator_name: str | None
    owner: str | None
    params: dict[str, Any] | None
    pool: str | None
    pool_slots: int | None
    priority_weight: int | None
    queue: str | None
    retries: int | None
    retry_delay: TimeDelta | None
    retry_exponential_backoff: float
    start_date: Moment | None
    task_display_name: str | None
    task_id: str | None
    template_fields: list[str] | None
    trigger_rule: str | None
    ui_color: str | None
    ui_fgcolor: str | None
    wait_for_downstream: bool
    weight_rule: str | None


class TaskCollection(TypedDict):
    """All tasks of a DAG."""

    tasks: list[Task]
    total_entries: int


class Pool(TypedDict):
    """One pool. Held attempts occupy no slots, so `deferred_slots` is always 0."""

    deferred_slots: int
    description: str | None
    include_deferred: bool
    name: str
    occupied_slots: int
    open_slots: int
    queued_slots: int
    running_slots: int
    scheduled_slots: int
    slots: int
    team_name: str | None


class PoolCollection(TypedDict):
    """A page of pools."""

    pools: list[Pool]
    total_entries: int


class ImportErrorEntry(TypedDict):
    """One thing that is wrong with a DAG file now. `bundle_name` is the tenant."""

    bundle_name: str | None
    filename: str
    import_error_id: int
    stack_trace: str
    timestamp: Moment


class ImportErrorCollection(TypedDict):
    """A page of what is wrong with DAG files."""

    import_errors: list[ImportErrorEntry]
    total_entries: int


class XCom(TypedDict):
    """One result that a task left, without its value."""

    dag_display_name: str
    dag_id: str
    key: str
    logical_date: Moment | None
    map_index: int
    run_after: Moment
    run_id: str
    task_display_name: str
    task_id: str
    timestamp: Moment


class XComValue(XCom):
    """One result with its value: JSON, or its text when `stringify` was asked for."""

    value: Any


class XComCollection(TypedDict):
    """What a task left: one result at most."""

    total_entries: int
    xcom_entries: list[XCom]


class Part(TypedDict):
    """`healthy` or `unhealthy`; null where there is no such part."""

    status: str | None


class SchedulerPart(TypedDict):
    """The loops of the control plane."""

    latest_scheduler_heartbeat: str | None
    status: str | None


class LoaderPart(TypedDict):
    """What loads DAG files."""

    latest_dag_processor_heartbeat: str | None
    status: str | None


class TriggererPart(TypedDict):
    """Always null: we have no triggerer."""

    latest_triggerer_heartbeat: str | None
    status: str | None


class Health(TypedDict):
    """How the parts are."""

    dag_processor: LoaderPart | None
    metadatabase: Part
    scheduler: SchedulerPart
    triggerer: TriggererPart


class Version(TypedDict):
    """Which Dexaflow this is."""

    git_version: str | None
    version: str
