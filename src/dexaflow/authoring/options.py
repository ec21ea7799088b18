"""The options of DAGs and tasks: their names and types for the author's editor, their rules for everybody."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, TypedDict
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dexaflow.authoring.errors import refused
from dexaflow.base.nearness import nearest
from dexaflow.model import dag_rules as rules
from dexaflow.model.dag_rules import RuleError

__all__ = ["DAG_OPTIONS", "TASK_OPTIONS", "DagOptions", "TaskOptions", "read_options", "zone_name", "zone_of"]


class TaskOptions(TypedDict, total=False):
    """What every task may be given; also the keys of a DAG's `default_args`."""

    retries: int  # tries after the first that failed; 0
    retry_delay: timedelta | float  # seconds between two tries; 5 minutes
    execution_timeout: timedelta | float | None  # seconds one try may run; None: no limit
    trigger_rule: str  # Airflow's; "all_success"
    pool: str  # "default_pool"
    pool_slots: int  # 1
    resources: Mapping[str, Mapping[str, str]] | None  # {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}
    execution: Mapping[str, Any] | None  # node_selector, tolerations, labels, annotations, priority_class_name, ...
    env: Mapping[str, Any]  # added to the DAG's; for bash, a value may be another task: its result
    image: str  # container image; the DAG's


class DagOptions(TypedDict, total=False):
    """What a DAG may be given besides its `dag_id`."""

    schedule: str | None  # five cron fields, a preset such as @daily, or @once; None: triggered only
    timezone: str | tzinfo  # in which the schedule and a naive start_date are read; that of start_date, else UTC
    start_date: datetime | None
    catchup: bool  # make the runs missed since start_date; False
    max_active_runs: int  # 16
    dagrun_timeout: timedelta | float | None  # seconds a run may take; None: no limit
    default_args: TaskOptions  # for its tasks that do not say otherwise
    image: str  # of its tasks that do not name their own
    description: str
    tags: Sequence[str] | set[str]
    env: Mapping[str, str]  # of all its tasks
    params: Mapping[str, Any]  # defaults of what a run's conf may set; `get_context().params`


def _duration(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _timeout(value: object) -> float | None:
    return None if value is None else rules.seconds(_duration(value), above_zero=True)


TASK_OPTIONS: Mapping[str, Callable[[object], object]] = {
    "retries": lambda v: rules.whole(v, 0),
    "retry_delay": lambda v: rules.seconds(_duration(v), above_zero=False),
    "execution_timeout": _timeout,
    "trigger_rule": rules.trigger_rule,
    "pool": rules.pool,
    "pool_slots": lambda v: rules.whole(v, 1),
    "resources": rules.resources,
    "execution": rules.execution,
    "env": rules.environment,
    "image": rules.image,
}


def zone_name(value: object) -> str:
    """Return the name of a time zone that exists here, given as its name or as a `ZoneInfo`."""
    name = "UTC" if value is UTC else getattr(value, "key", value)
    if not isinstance(name, str) or not name:
        raise RuleError(f"must name a time zone like Europe/Berlin, got {rules.shown(value)}")
    zone_of(name)
    return name


def zone_of(name: str) -> tzinfo:
    """Return the time zone of that name. UTC is there even where no time zone data are."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RuleError(f"{rules.shown(name)} is not known; write a name like Europe/Berlin") from None


def _start_date(value: object) -> datetime | None:
    if value is not None and not isinstance(value, datetime):
        raise RuleError(f"must be a datetime, got {rules.shown(value)}")
    return value


def _default_args(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise RuleError(f"must be a mapping of task options, got {rules.shown(value)}")
    return read_options("default_args", value, TASK_OPTIONS)


def _params(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise RuleError(f"must be a mapping with text keys, got {rules.shown(value)}")
    return dict(value)


DAG_OPTIONS: Mapping[str, Callable[[object], object]] = {
    "schedule": rules.cron,
    "timezone": zone_name,
    "start_date": _start_date,
    "catchup": rules.flag,
    "max_active_runs": lambda v: rules.whole(v, 1),
    "dagrun_timeout": _timeout,
    "default_args": _default_args,
    "image": rules.image,
    "description": rules.text,
    "tags": rules.tags,
    "env": rules.environment,
    "params": _params,
}


def read_options(
    where: str, given: Mapping[Any, object], known: Mapping[str, Callable[[object], object]]
) -> dict[str, Any]:
    """Return the options in their one form. Raises `AuthoringError` for the first that is unknown or wrong."""
    result = {}
    for name, value in given.items():
        rule = known.get(name) if isinstance(name, str) else None
        if rule is None:
            close = nearest(str(name), known)
            hint = f"did you mean '{close}'?" if close else f"known are {', '.join(known)}"
            raise refused(f"{where}: unknown option {rules.shown(name)}; {hint}")
        try:
            result[name] = rule(value)
        except RuleError as error:
            raise refused(f"{where}: {rules.joined(str(name), error)}") from None
    return result
