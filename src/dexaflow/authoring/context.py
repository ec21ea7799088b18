"""What a running task knows about itself."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from dexaflow.authoring.errors import refused
from dexaflow.base.errors import DexaflowError

__all__ = [
    "Context",
    "ContextError",
    "as_variable",
    "context_environment",
    "get_context",
    "read_context",
    "running_in",
]


class ContextError(DexaflowError):
    """What the agent was given about the try cannot be used."""


@dataclass(frozen=True, slots=True)
class Context:
    """The try that is running. Also readable as a mapping, as in Airflow: ``get_context()["run_id"]``.

    The three moments are aware datetimes, or None for a run that has none; `conf` is what the run was triggered with;
    `params` are the DAG's `params` with `conf` over them.
    """

    tenant_id: str
    dag_id: str
    run_id: str
    task_id: str
    try_number: int  # from 1
    logical_date: datetime | None
    data_interval_start: datetime | None
    data_interval_end: datetime | None
    conf: Mapping[str, Any]
    params: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        if name not in _NAMES:
            raise KeyError(f"the context has no {name!r}; it has {', '.join(_NAMES)}")
        return getattr(self, name)


_NAMES = tuple(f.name for f in fields(Context))
_MOMENTS = ("logical_date", "data_interval_start", "data_interval_end")

# One process runs one task, so this is a plain variable: the task's own threads see it too, unlike a ContextVar.
_running: Context | None = None


def get_context() -> Context:
    """Return the context of the task that is running.

    Raises:
        AuthoringError: No task is running: the file is being loaded, or this is not an agent's process.
    """
    if _running is None:
        raise refused("get_context() works inside a running task only, not while a file is loaded")
    return _running


@contextmanager
def running_in(context: Context) -> Iterator[None]:
    """Make `context` what `get_context` returns."""
    global _running
    before, _running = _running, context
    try:
        yield
    finally:
        _running = before


def read_context(given: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> Context:
    """Return the context of the agent's JSON; moments are ISO 8601 text, datetimes or None.

    `conf` may be absent, as may the moments and `tenant_id`; `params` in `given` wins over the DAG's.

    Raises:
        ContextError: Something is missing, unknown or of the wrong type.
    """
    values: dict[str, Any] = {"tenant_id": "", "conf": {}, "params": None, **dict.fromkeys(_MOMENTS), **given}
    for name in values:
        if name not in _NAMES:
            raise ContextError(f"task context: unknown field {name!r}")
    for name in ("tenant_id", "dag_id", "run_id", "task_id"):
        if not isinstance(values.get(name), str):
            raise ContextError(f"task context: {name} must be text")
    if type(values.get("try_number")) is not int or values["try_number"] < 1:
        raise ContextError("task context: try_number must be a whole number from 1")
    for name in _MOMENTS:
        values[name] = _moment(name, values[name])
    values["conf"] = {} if values["conf"] is None else values["conf"]
    if values["params"] is None:
        values["params"] = {**(params or {}), **(values["conf"] if isinstance(values["conf"], Mapping) else {})}
    for name in ("conf", "params"):
        if not isinstance(values[name], Mapping):
            raise ContextError(f"task context: {name} must be an object")
    return Context(**values)


def _moment(name: str, value: object) -> datetime | None:
    if isinstance(value, str) and value:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ContextError(f"task context: {name} must be ISO 8601") from None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if value is None or value == "":
        return None
    raise ContextError(f"task context: {name} must be a moment with an offset")


def as_variable(value: object) -> str:
    """Return a value as JSON for a variable.

    Characters stand as they are: escaped, what is 64 KiB would be more than the 128 KiB that Linux takes in a variable.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def context_environment(context: Context) -> dict[str, str]:
    """Return the context as environment variables, for a bash task. A moment that is not there is empty."""
    result = {
        "DEXAFLOW_TENANT_ID": context.tenant_id,
        "DEXAFLOW_DAG_ID": context.dag_id,
        "DEXAFLOW_RUN_ID": context.run_id,
        "DEXAFLOW_TASK_ID": context.task_id,
        "DEXAFLOW_TRY_NUMBER": str(context.try_number),
        "DEXAFLOW_CONF": as_variable(dict(context.conf)),
    }
    for name in _MOMENTS:
        moment = getattr(context, name)
        result[f"DEXAFLOW_{name.upper()}"] = "" if moment is None else moment.isoformat()
    return result
