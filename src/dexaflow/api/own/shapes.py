"""The bodies of our own API, in our own states (`held` and `launching` among them)."""

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

__all__ = [
    "Admission",
    "Agent",
    "AskedNow",
    "AttemptPage",
    "Cleared",
    "DagErrorOut",
    "DagErrorPage",
    "DagOut",
    "DagPage",
    "DagTask",
    "DagWithTasks",
    "End",
    "Explanation",
    "Hold",
    "HoldPage",
    "Hook",
    "Hooks",
    "Launch",
    "OwnChecks",
    "Pod",
    "Review",
    "ReviewPage",
    "Run",
    "RunPage",
    "RunWithTasks",
    "Setting",
    "Slots",
    "TaskOut",
    "Trigger",
]

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class DagOut(TypedDict):
    """One DAG. `paused_at` and `paused_by` say since when it is paused and by whom, where that was noted."""

    dag_id: str
    tenant_id: str
    file: str
    description: str
    tags: list[str]
    schedule: str | None
    timezone: str
    start_date: Moment | None
    catchup: bool
    max_active_runs: int
    dagrun_timeout: float | None
    is_paused: bool
    paused_at: Moment | None
    paused_by: str
    is_active: bool
    has_errors: bool
    version: int
    registered_at: Moment
    updated_at: Moment
    next_run_at: Moment | None
    task_count: int


class DagTask(TypedDict):
    """One task as its author wrote it. Of its environment only the names are shown: values may be secrets."""

    task_id: str
    operator: str
    upstream: list[str]
    trigger_rule: str
    retries: int
    retry_delay: float
    execution_timeout: float | None
    pool: str
    pool_slots: int
    image: str
    environment: list[str]
    resources: dict[str, Any] | None
    execution: dict[str, Any]
    line: int


class DagWithTasks(DagOut):
    """One DAG and its tasks."""

    tasks: list[DagTask]


class DagPage(TypedDict):
    """A page of DAGs."""

    dags: list[DagOut]
    total_entries: int


class DagErrorOut(TypedDict):
    """One thing that is wrong with a DAG file now (R2.2). `line` is 0 when unknown."""

    tenant_id: str
    file: str
    line: int
    cause: str
    seen_at: Moment


class DagErrorPage(TypedDict):
    """A page of what is wrong with DAG files."""

    errors: list[DagErrorOut]
    total_entries: int


class Run(TypedDict):
    """One run. `task_states` counts its tasks by state; it is empty in streams.

    `waits_because` says why it begins nothing: its DAG is paused, or as many runs are running as it allows.
    """

    run_id: str
    dag_id: str
    tenant_id: str
    version: int
    run_type: str
    state: str
    logical_date: Moment | None
    data_interval_start: Moment | None
    data_interval_end: Moment | None
    run_after: Moment
    queued_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    seconds: float | None
    conf: dict[str, Any]
    note: str
    triggered_by: str
    stop: str
    waits_because: str
    task_states: dict[str, int]


class RunPage(TypedDict):
    """A page of runs."""

    runs: list[Run]
    total_entries: int


class TaskOut(TypedDict):
    """One task instance by its present try. `reason` says why it is where it is, `hook` which hook said so."""

    run_id: str
    task_id: str
    dag_id: str
    tenant_id: str
    attempt_id: str
    try_number: int
    max_tries: int
    state: str
    operator: str
    pool: str
    pool_slots: int
    reason: str
    hook: str
    scheduled_at: Moment | None
    queued_at: Moment | None
    held_at: Moment | None
    next_ask_at: Moment | None
    launched_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None
    retry_at: Moment | None
    seconds: float | None
    exit_code: int | None
    host: str
    log_bytes: int


class AttemptPage(TypedDict):
    """A page of task instances."""

    tasks: list[TaskOut]
    total_entries: int


class RunWithTasks(Run):
    """One run and its tasks, the first page of them; `task_count` counts them all."""

    tasks: list[TaskOut]
    task_count: int


class Cleared(TypedDict):
    """Which tasks were cleared."""

    run_id: str
    task_ids: list[str]


class Review(TypedDict):
    """One hook's answers to one try; equal answers in a row are one entry (R9.2).

    `outcome`: admit, hold, refuse, change_refused, error, breaker_open or fail_open. `seconds`, `uid` and `incident`
    are the last question's; `incident` is the id under which the server's log has the cause.
    """

    run_id: str
    task_id: str
    try_number: int
    attempt_id: str
    hook: str
    outcome: str
    reason: str
    changes: dict[str, Any]
    seconds: float
    count: int
    first_at: Moment
    last_at: Moment
    uid: str
    incident: str


class ReviewPage(TypedDict):
    """A page of reviews."""

    reviews: list[Review]
    total_entries: int


class Hold(TypedDict):
    """One held attempt: who holds it, why, since when, and when it is asked again."""

    attempt_id: str
    tenant_id: str
    dag_id: str
    run_id: str
    task_id: str
    try_number: int
    hook: str
    reason: str
    held_at: Moment | None
    next_ask_at: Moment | None


class HoldPage(TypedDict):
    """A page of holds."""

    holds: list[Hold]
    total_entries: int


class AskedNow(TypedDict):
    """How many held attempts are asked now."""

    count: int


class Hook(TypedDict):
    """One hook. `breaker`: closed, open or half-open; `failures` are in a row.

    `last_cause` and the seconds since it are of the latest failure since the server's start, also once it is mended.
    """

    name: str
    breaker: str
    failures: int
    next_probe_seconds: float | None
    last_cause: str
    last_failure_seconds: float | None
    held: int
    oldest_hold_seconds: float


class Hooks(TypedDict):
    """The configured hooks, in the order in which they are asked."""

    hooks: list[Hook]


class Trigger(TypedDict):
    """How the run came to be."""

    run_type: str
    triggered_by: str
    queued_at: Moment
    started_at: Moment | None
    note: str


class Slots(TypedDict):
    """Pool slots: taken when, and whether they are held now. A held attempt has given them back (R6.1)."""

    pool: str
    pool_slots: int
    taken_at: Moment | None
    holds_now: bool
    waits_because: str


class OwnChecks(TypedDict):
    """`passed`, `rejected` (the reason names the rule), or `not yet`."""

    outcome: str
    reason: str


class Admission(TypedDict):
    """What the hooks said. `outcome`: admitted, held, refused, dispatch_failed, not asked, or not yet."""

    outcome: str
    hook: str
    reason: str
    reviews: list[Review]
    held_since: Moment | None
    next_ask_at: Moment | None
    waited_on_broken_hook_seconds: float


class Launch(TypedDict):
    """The launch: written before a token exists; the token is minted for this very launch (R1.7)."""

    launched_at: Moment | None
    launch_id: str | None
    token_minted: bool


class Agent(TypedDict):
    """Who runs it."""

    started_at: Moment | None
    host: str
    pid: int | None
    heartbeat_at: Moment | None
    asked_to_stop: str


class End(TypedDict):
    """How the try ended, and when the next one is due."""

    ended_at: Moment | None
    seconds: float | None
    exit_code: int | None
    reason: str
    retry_at: Moment | None
    log_bytes: int


class Setting(TypedDict):
    """One key of what the attempt runs with, and who set it: author, platform default, unit, or hook:<name>."""

    field: str
    key: str
    value: str
    by: str


class Pod(TypedDict):
    """The pod it would get, or got, key by key. On Lite, which has no pods, recorded all the same (R5.5)."""

    image: str
    dedicated: bool
    resources: dict[str, Any]
    execution: dict[str, Any]
    settings: list[Setting]


class Explanation(TypedDict):
    """The walk of one try from trigger to end (R9.2). What it has not come to is null or `not yet`."""

    run_id: str
    dag_id: str
    tenant_id: str
    task_id: str
    attempt_id: str
    try_number: int
    max_tries: int
    latest_try: int
    state: str
    trigger: Trigger
    scheduled_at: Moment | None
    slots: Slots
    own_checks: OwnChecks
    admission: Admission
    launch: Launch
    agent: Agent
    end: End
    pod: Pod | None
