"""A DAG as registered: what the loader hands over and the scheduler reads. Plain JSON on the way.

`DagSpec.to_json` / `from_json` are each other's inverse; unknown keys are refused, so that a record written by a
newer version is never half understood.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from dexaflow.model import dag_rules as rules
from dexaflow.model.dag_rules import RuleError
from dexaflow.model.execution import EMPTY, Execution, Resources

__all__ = ["DagSpec", "TaskSpec"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task as its author wrote it, default arguments applied. Durations are seconds."""

    task_id: str
    operator: str  # "python" or "bash"
    upstream: tuple[str, ...] = ()  # task ids, sorted; both `>>` and passed results
    results_from: tuple[str, ...] = ()  # upstream tasks whose results its arguments or its `env_from` carry, sorted
    trigger_rule: str = "all_success"
    retries: int = 0
    retry_delay: float = 300.0
    execution_timeout: float | None = None
    pool: str = "default_pool"
    pool_slots: int = 1
    image: str = ""  # "": none of its own nor of its DAG
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    env_from: Mapping[str, str] = field(default_factory=lambda: EMPTY)  # bash: variable -> task whose result it holds
    bash_command: str = ""  # operator "bash" only
    resources: Resources | None = None  # None: declares none
    execution: Execution = field(default_factory=Execution)
    line: int = 0  # where it stands in its file

    def to_json(self) -> dict[str, Any]:
        """Return the task as JSON, every field present."""
        return {
            "task_id": self.task_id,
            "operator": self.operator,
            "upstream": list(self.upstream),
            "results_from": list(self.results_from),
            "trigger_rule": self.trigger_rule,
            "retries": self.retries,
            "retry_delay": self.retry_delay,
            "execution_timeout": self.execution_timeout,
            "pool": self.pool,
            "pool_slots": self.pool_slots,
            "image": self.image,
            "env": dict(self.env),
            "env_from": dict(self.env_from),
            "bash_command": self.bash_command,
            "resources": None
            if self.resources is None
            else {"requests": dict(self.resources.requests), "limits": dict(self.resources.limits)},
            "execution": {
                "service_account": self.execution.service_account,
                "node_selector": dict(self.execution.node_selector),
                "tolerations": [
                    {"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect}
                    for t in self.execution.tolerations
                ],
                "labels": dict(self.execution.labels),
                "annotations": dict(self.execution.annotations),
                "priority_class_name": self.execution.priority_class_name,
            },
            "line": self.line,
        }

    @classmethod
    def from_json(cls, value: object) -> "TaskSpec":
        """Return the task that `to_json` wrote; absent fields take their defaults.

        Raises:
            ValueError: An unknown field, a wrong type or a value out of range; the message names the field.
        """
        read = _Fields(value, cls, "task")
        task = cls(
            task_id=read.needed("task_id", rules.identifier),
            operator=read.needed("operator", _operator),
            upstream=read.get("upstream", _ids, ()),
            results_from=read.get("results_from", _ids, ()),
            trigger_rule=read.get("trigger_rule", rules.trigger_rule, "all_success"),
            retries=read.get("retries", lambda v: rules.whole(v, 0), 0),
            retry_delay=read.get("retry_delay", lambda v: rules.seconds(v, above_zero=False), 300.0),
            execution_timeout=read.get("execution_timeout", _timeout, None),
            pool=read.get("pool", rules.pool, "default_pool"),
            pool_slots=read.get("pool_slots", lambda v: rules.whole(v, 1), 1),
            image=read.get("image", rules.image, ""),
            env=read.get("env", rules.environment, EMPTY),
            env_from=read.get("env_from", rules.environment, EMPTY),
            bash_command=read.get("bash_command", rules.text, ""),
            resources=read.get("resources", rules.resources, None),
            execution=read.get("execution", rules.execution, Execution()),
            line=read.get("line", lambda v: rules.whole(v, 0), 0),
        )
        if (task.operator == "bash") != bool(task.bash_command):
            raise RuleError("task.bash_command: a bash task has one, others have none")
        if task.env_from and task.operator != "bash":
            raise RuleError("task.env_from: only a bash task has one")
        if not {*task.env_from.values()} <= {*task.results_from} <= {*task.upstream} - {task.task_id}:
            raise RuleError("task.results_from: must name upstream tasks, those of env_from among them")
        return task


@dataclass(frozen=True, slots=True)
class DagSpec:
    """One DAG as its author wrote it."""

    dag_id: str
    tasks: tuple[TaskSpec, ...]
    schedule: str | None = None  # five-field cron, or an @preset (`dag_rules.PRESETS` has its cron)
    timezone: str = "UTC"
    start_date: datetime | None = None  # aware
    catchup: bool = False
    max_active_runs: int = 16
    dagrun_timeout: float | None = None  # seconds
    description: str = ""
    tags: tuple[str, ...] = ()
    image: str = ""
    line: int = 0
    _by_id: Mapping[str, TaskSpec] = field(init=False, repr=False, compare=False)  # a DAG may have thousands

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {task.task_id: task for task in self.tasks})

    def task(self, task_id: str) -> TaskSpec:
        """Return the task of that id. Raises `KeyError`."""
        return self._by_id[task_id]

    def to_json(self) -> dict[str, Any]:
        """Return the DAG as JSON, every field present; `start_date` as ISO 8601 in UTC."""
        return {
            "dag_id": self.dag_id,
            "tasks": [task.to_json() for task in self.tasks],
            "schedule": self.schedule,
            "timezone": self.timezone,
            "start_date": None if self.start_date is None else self.start_date.astimezone(UTC).isoformat(),
            "catchup": self.catchup,
            "max_active_runs": self.max_active_runs,
            "dagrun_timeout": self.dagrun_timeout,
            "description": self.description,
            "tags": list(self.tags),
            "image": self.image,
            "line": self.line,
        }

    @classmethod
    def from_json(cls, value: object) -> "DagSpec":
        """Return the DAG that `to_json` wrote; absent fields take their defaults.

        Whether the schedule ever comes true and the time zone exists is not asked here: that needs a calendar.

        Raises:
            ValueError: An unknown field, a wrong type, a value out of range, a task twice, an upstream task that is
                not there, or a cycle; the message names the field.
        """
        read = _Fields(value, cls, "dag")
        dag = cls(
            dag_id=read.needed("dag_id", rules.identifier),
            tasks=read.needed("tasks", _tasks),
            schedule=read.get("schedule", rules.cron, None),
            timezone=read.get("timezone", lambda v: rules.text(v, least=1, most=100, one_line=True), "UTC"),
            start_date=read.get("start_date", _moment, None),
            catchup=read.get("catchup", rules.flag, False),
            max_active_runs=read.get("max_active_runs", lambda v: rules.whole(v, 1), 16),
            dagrun_timeout=read.get("dagrun_timeout", _timeout, None),
            description=read.get("description", rules.text, ""),
            tags=read.get("tags", rules.tags, ()),
            image=read.get("image", rules.image, ""),
            line=read.get("line", lambda v: rules.whole(v, 0), 0),
        )
        graph: dict[str, tuple[str, ...]] = {}
        for task in dag.tasks:
            if task.task_id in graph:
                raise RuleError(f"dag.tasks: '{task.task_id}' is there twice")
            graph[task.task_id] = task.upstream
        for task in dag.tasks:
            for upstream in task.upstream:
                if upstream not in graph:
                    raise RuleError(f"dag.tasks: '{task.task_id}' is downstream of '{upstream}', which is not there")
        cycle = rules.find_cycle(graph)
        if cycle:
            raise RuleError(f"dag.tasks: cycle {' >> '.join((*cycle, cycle[0]))}")
        return dag


class _Fields:
    """The fields of one JSON object, each read by the rule of its kind."""

    def __init__(self, value: object, cls: type, where: str) -> None:
        if not isinstance(value, Mapping):
            raise RuleError(f"{where}: must be an object, got {rules.shown(value)}")
        known = {f.name for f in fields(cls) if f.init}
        for key in value:
            if key not in known:
                raise RuleError(f"{where}: unknown field {rules.shown(key)}")
        self._value = cast(Mapping[str, object], value)
        self._where = where

    def needed(self, name: str, rule: Callable[[object], T]) -> T:
        if name not in self._value:
            raise RuleError(f"{self._where}.{name}: is missing")
        try:
            return rule(self._value[name])
        except RuleError as error:
            raise RuleError(f"{self._where}.{name}: {error}") from None

    def get(self, name: str, rule: Callable[[object], T], default: T) -> T:
        return self.needed(name, rule) if name in self._value else default


def _operator(value: object) -> str:
    if value not in rules.OPERATORS:
        raise RuleError(f"must be one of {', '.join(rules.OPERATORS)}, got {rules.shown(value)}")
    return str(value)


def _timeout(value: object) -> float | None:
    return None if value is None else rules.seconds(value, above_zero=True)


def _ids(value: object) -> tuple[str, ...]:
    ids = tuple(rules.identifier(item) for item in _list(value))
    if list(ids) != sorted(set(ids)):
        raise RuleError("must be sorted, none twice")
    return ids


def _tasks(value: object) -> tuple[TaskSpec, ...]:
    return tuple(TaskSpec.from_json(item) for item in _list(value))


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise RuleError(f"must be a list, got {rules.shown(value)}")
    return value


def _moment(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise RuleError(f"must be ISO 8601 text, got {rules.shown(value)}")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise RuleError(f"must be ISO 8601 with an offset, got {rules.shown(value)}") from None
    return rules.moment(moment)
