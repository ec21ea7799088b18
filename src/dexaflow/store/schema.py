"""The tables. What must never be is a constraint here, even if our code is wrong.

Times are UTC as ISO 8601 text with microseconds (sorts by time, reads the same on SQLite and PostgreSQL);
JSON is text. A task instance row is its *present* try; `attempt_history` has the earlier ones, same columns.

States of a task instance are explained in `model/states.py`.
"""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from dexaflow.model.states import RunState, State

__all__ = [
    "ATTEMPT_COLUMNS",
    "attempt_history",
    "dag_errors",
    "dag_versions",
    "dags",
    "leader",
    "metadata",
    "pools",
    "results",
    "reviews",
    "runs",
    "task_instances",
    "totals",
]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _one_of(column: str, words: type[State] | type[RunState]) -> str:
    return f"{column} IN ({', '.join(repr(str(w)) for w in words)})"


# The one control plane that may dispatch. Each of its writes carries its term.
leader = Table(
    "leader",
    metadata,
    Column("id", Integer, primary_key=True),
    CheckConstraint("id = 1", name="only_row"),
    Column("term", Integer, nullable=False),
    # Seconds a control plane has been up, ever. Only goes forward, never jumps: the clock of every wait
    # (recheck, retry, broken waiting). `ticked_at` is the wall clock at that moment.
    Column("up_seconds", Float, nullable=False),
    Column("ticked_at", String(40), nullable=False),
)

dags = Table(
    "dags",
    metadata,
    Column("dag_id", String(250), primary_key=True),
    Column("tenant_id", String(63), nullable=False),
    Column("file", Text, nullable=False),  # relative to the tenant's folder
    Column("version_id", Integer, nullable=False),  # the latest of dag_versions
    Column("is_paused", Boolean, nullable=False, server_default=text("false")),
    Column("paused_at", String(40)),  # NULL: it is not, or nobody noted it
    Column("paused_by", String(100), nullable=False, server_default=""),
    Column("is_active", Boolean, nullable=False, server_default=text("true")),  # false: its file is gone
    Column("registered_at", String(40), nullable=False),
    Column("updated_at", String(40), nullable=False),
    Column("next_run_at", String(40)),  # when the schedule makes the next run; NULL: never
    Column("last_logical_date", String(40)),  # of the latest scheduled run
    Index(None, "is_active", "is_paused", "next_run_at"),
)

dag_versions = Table(
    "dag_versions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("dag_id", String(250), nullable=False),
    Column("number", Integer, nullable=False),  # from 1, for people
    Column("snapshot", String(80), nullable=False),  # folder of the files it was loaded from
    Column("file", Text, nullable=False),  # inside the snapshot
    Column("spec", Text, nullable=False),  # DagSpec as JSON
    Column("created_at", String(40), nullable=False),
    UniqueConstraint("dag_id", "number"),
)

# What is wrong with DAG files now (R2.2).
dag_errors = Table(
    "dag_errors",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("tenant_id", String(63), nullable=False),
    Column("file", Text, nullable=False),
    Column("line", Integer, nullable=False),
    Column("cause", Text, nullable=False),
    Column("seen_at", String(40), nullable=False),
    Index(None, "tenant_id", "file"),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", String(250), primary_key=True),  # time-ordered, unique over all DAGs
    Column("dag_id", String(250), nullable=False),
    Column("tenant_id", String(63), nullable=False),
    Column("version_id", Integer, ForeignKey("dag_versions.id"), nullable=False),
    Column("run_type", String(20), nullable=False),  # scheduled | manual
    Column("state", String(20), nullable=False),
    CheckConstraint(_one_of("state", RunState), name="known_state"),
    Column("logical_date", String(40)),
    Column("data_interval_start", String(40)),
    Column("data_interval_end", String(40)),
    Column("run_after", String(40), nullable=False),
    Column("queued_at", String(40), nullable=False),
    Column("started_at", String(40)),
    Column("ended_at", String(40)),
    Column("conf", Text, nullable=False, server_default="{}"),
    Column("note", Text, nullable=False, server_default=""),
    Column("triggered_by", String(100), nullable=False, server_default=""),
    Column("stop", Text, nullable=False, server_default=""),  # why it was told to end; it fails once all tasks ended
    Column("timeout_due", Float),  # dagrun_timeout, on leader.up_seconds' clock; NULL: none, or ended
    Column("dirty", Boolean, nullable=False, server_default=text("true")),  # the scheduler should look at it
    UniqueConstraint("dag_id", "run_type", "logical_date"),
    Index(None, "dag_id", "state"),
    Index(None, "state", "ended_at"),
    Index(None, "queued_at", "run_id"),
    Index(None, "version_id"),  # which versions are still needed (`history.retention`)
    Index(None, "dag_id", "queued_at", "run_id"),
    Index(None, "dag_id", "started_at", "run_id"),
    Index(
        "ix_runs_queued",
        "dag_id",
        "queued_at",
        "run_id",
        sqlite_where=text("state = 'queued'"),
        postgresql_where=text("state = 'queued'"),
    ),
    Index("ix_runs_dirty", "run_id", sqlite_where=text("dirty"), postgresql_where=text("dirty")),
    Index(
        "ix_runs_timeout",
        "timeout_due",
        sqlite_where=text("timeout_due IS NOT NULL"),
        postgresql_where=text("timeout_due IS NOT NULL"),
    ),
)


def _attempt_columns() -> list[Column]:  # type: ignore[type-arg]  # columns of several types
    return [
        Column("attempt_id", String(40), nullable=False),  # this very try
        Column("run_id", String(250), nullable=False),
        Column("task_id", String(250), nullable=False),
        Column("dag_id", String(250), nullable=False),
        Column("tenant_id", String(63), nullable=False),
        Column("version_id", Integer, nullable=False),
        Column("try_number", Integer, nullable=False),
        Column("max_tries", Integer, nullable=False),  # tries in all, first included; clearing raises it
        Column("state", String(20), nullable=False),
        Column("operator", String(20), nullable=False),
        Column("pool", String(250), nullable=False),
        Column("pool_slots", Integer, nullable=False),
        Column("reason", Text, nullable=False, server_default=""),  # why it is where it is; cleaned (R4.4)
        Column("hook", String(250), nullable=False, server_default=""),  # which hook held or refused it
        Column("scheduled_at", String(40)),
        Column("queued_at", String(40)),
        Column("held_at", String(40)),  # since when without a break; NULL unless held
        Column("next_ask_at", String(40)),  # for people; NULL unless held
        Column("next_ask_due", Float),  # the same on leader.up_seconds' clock, which is what counts
        Column("launched_at", String(40)),
        Column("started_at", String(40)),
        Column("ended_at", String(40)),
        Column("retry_at", String(40)),  # for people; NULL unless up_for_retry
        Column("retry_due", Float),  # the same on leader.up_seconds' clock
        Column("turn", Integer, nullable=False, server_default="0"),  # orders held attempts by when last asked (R7.4)
        Column("broken_seconds", Float, nullable=False, server_default="0"),  # broken waiting before broken_since
        Column("broken_since", Float),  # leader.up_seconds when this stretch began; NULL: last answer not broken
        Column("launch_id", String(40)),
        Column("stop", Text),  # running, and told to end: "cleared", or why it fails
        Column("host", String(250), nullable=False, server_default=""),
        Column("pid", Integer),
        Column("heartbeat_at", String(40)),
        Column("exit_code", Integer),
        # What it would run, or ran with, and who set it (R9.2): JSON of {execution, resources, image, settings}.
        Column("placement", Text),
        Column("log_bytes", Integer, nullable=False, server_default="0"),
    ]


task_instances = Table(
    "task_instances",
    metadata,
    *_attempt_columns(),
    UniqueConstraint("run_id", "task_id"),
    UniqueConstraint("attempt_id"),
    CheckConstraint(_one_of("state", State), name="known_state"),
    CheckConstraint("try_number >= 1 AND pool_slots >= 1", name="from_one"),
    # A held attempt has no slots by its state, no launch by this line (R6.1).
    CheckConstraint("state <> 'held' OR (launch_id IS NULL AND next_ask_due IS NOT NULL)", name="held_waits"),
    CheckConstraint("state NOT IN ('launching', 'running') OR launch_id IS NOT NULL", name="launched"),
    CheckConstraint("state NOT IN ('none', 'scheduled', 'queued') OR launch_id IS NULL", name="not_launched"),
    Index(
        "ix_ti_occupying",
        "pool",
        "pool_slots",
        sqlite_where=text("state IN ('queued','launching','running')"),
        postgresql_where=text("state IN ('queued','launching','running')"),
    ),
    Index(
        "ix_ti_scheduled",
        "pool",
        "scheduled_at",
        "attempt_id",
        sqlite_where=text("state = 'scheduled'"),
        postgresql_where=text("state = 'scheduled'"),
    ),
    Index(
        "ix_ti_held_due",
        "tenant_id",
        "next_ask_due",
        sqlite_where=text("state = 'held'"),
        postgresql_where=text("state = 'held'"),
    ),
    Index(
        "ix_ti_held_hook", "hook", "turn", sqlite_where=text("state = 'held'"), postgresql_where=text("state = 'held'")
    ),
    Index(
        "ix_ti_retry",
        "retry_due",
        sqlite_where=text("state = 'up_for_retry'"),
        postgresql_where=text("state = 'up_for_retry'"),
    ),
    Index("ix_ti_state", "state", "run_id", "task_id"),  # in the order in which tasks are listed
    Index(
        "ix_ti_launch",
        "launch_id",
        sqlite_where=text("launch_id IS NOT NULL"),
        postgresql_where=text("launch_id IS NOT NULL"),
    ),
    Index("ix_ti_dag", "dag_id", "state"),
)

# Earlier tries, as they ended.
attempt_history = Table(
    "attempt_history",
    metadata,
    *_attempt_columns(),
    UniqueConstraint("run_id", "task_id", "try_number"),
    UniqueConstraint("attempt_id"),
)

ATTEMPT_COLUMNS = tuple(c.name for c in task_instances.columns)

# One hook's answers to one attempt; equal answers in a row are one entry (R9.2).
reviews = Table(
    "reviews",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("attempt_id", String(40), nullable=False),
    Column("run_id", String(250), nullable=False),
    Column("task_id", String(250), nullable=False),
    Column("try_number", Integer, nullable=False),
    Column("hook", String(250), nullable=False),
    Column("outcome", String(20), nullable=False),
    Column("reason", Text, nullable=False),
    Column("changes", Text, nullable=False),  # JSON, {} for none
    Column("uid", String(40), nullable=False),  # of the last question
    Column("incident", String(40), nullable=False),  # of the last one
    Column("seconds", Float, nullable=False),  # the last one took
    Column("first_at", String(40), nullable=False),
    Column("last_at", String(40), nullable=False),
    Column("count", Integer, nullable=False),  # asks in this entry
    Index(None, "attempt_id", "id"),
    Index(None, "run_id"),
)

# How many rows the large tables have, kept by triggers (see the migration): a list says how many there are in all, and
# counting a million task instances takes longer than showing a hundred. A table that is not here is counted.
totals = Table(
    "totals",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("count", Integer, nullable=False),
)

pools = Table(
    "pools",
    metadata,
    Column("pool", String(250), primary_key=True),
    Column("slots", Integer, nullable=False),
    CheckConstraint("slots >= 0", name="slots"),
    Column("description", Text, nullable=False, server_default=""),
)

# What tasks returned: small JSON (64 KiB).
results = Table(
    "results",
    metadata,
    Column("run_id", String(250), primary_key=True),
    Column("task_id", String(250), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
