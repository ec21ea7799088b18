"""A DAG being written."""

import functools
from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack

from dexaflow.authoring.errors import owner_place, refused
from dexaflow.authoring.options import DAG_OPTIONS, DagOptions, read_options, zone_name, zone_of
from dexaflow.model import dag_rules as rules
from dexaflow.model.dag_rules import RuleError
from dexaflow.model.dags import DagSpec

if TYPE_CHECKING:
    from dexaflow.authoring.task import Task

__all__ = ["DAG", "current_dag", "dag", "dags_of", "forget_dags_of"]

P = ParamSpec("P")

_made: list["DAG"] = []  # every DAG of this process, oldest first; a process loads one file
_open: list["DAG"] = []  # the `with` blocks we are in, innermost last


class DAG:
    """A workflow: tasks, their order, and when it runs. Used as ``with DAG("etl", schedule="@daily"):``.

    Options and their defaults are in `DagOptions`. Nothing runs here; a file's DAGs are registered when it is loaded.

    Raises:
        AuthoringError: An option is unknown, of the wrong type or out of range.
    """

    def __init__(self, dag_id: str, **options: Unpack[DagOptions]) -> None:
        self.file, self.line = owner_place()
        try:
            self.dag_id = rules.identifier(dag_id)
        except RuleError as error:
            raise refused(f"DAG: dag_id {error}") from None
        read = read_options(f"DAG '{dag_id}'", options, DAG_OPTIONS)
        self.default_args: dict[str, Any] = read.pop("default_args", {})
        self.params: dict[str, Any] = read.pop("params", {})
        self._env = {**read.pop("env", {}), **self.default_args.pop("env", {})}
        try:
            read["timezone"], read["start_date"] = _when(read.get("timezone"), read.get("start_date"))
        except RuleError as error:
            raise refused(f"DAG '{dag_id}': start_date {error}") from None
        self._options = read
        self._tasks: dict[str, Task] = {}
        self._functions: list[str] = []
        _made.append(self)

    def __repr__(self) -> str:
        return f"<DAG {self.dag_id}>"

    def __enter__(self) -> "DAG":
        _open.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        _open.remove(self)

    @property
    def tasks(self) -> tuple["Task", ...]:
        """Its tasks, in the order in which they were made."""
        return tuple(self._tasks.values())

    def get_task(self, task_id: str) -> "Task":
        """Return the task of that id. Raises `KeyError`."""
        return self._tasks[task_id]

    def add(self, task: "Task") -> None:
        """Take in a new task; called by the task itself."""
        if task.task_id in self._tasks:
            raise refused(f"DAG '{self.dag_id}' has a task '{task.task_id}' already; choose another task_id")
        self._tasks[task.task_id] = task

    def meant(self, function: str) -> None:
        """Note a function that was put under `@task` in the `with` block; called by the decorator itself."""
        self._functions.append(function)

    def has(self, task_id: str) -> bool:
        """Tell whether there is a task of that id."""
        return task_id in self._tasks

    def task_options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return a task's options with the defaults under them. `env` is merged, every other option replaced."""
        result = {**self.default_args, **given}
        result["env"] = MappingProxyType({**self._env, **given.get("env", {})})
        result["image"] = result.get("image") or self._options.get("image", "")
        return result

    def spec(self) -> DagSpec:
        """Return the DAG as it is registered.

        Raises:
            AuthoringError: Its tasks depend on each other in a circle, or nobody calls the functions meant as tasks.
        """
        if self._functions and not self._tasks:
            names = ", ".join(f"{name}()" for name in self._functions)
            cause = (
                f"DAG '{self.dag_id}' has no tasks: call {names}; under @task a function makes one where it is called"
            )
            raise refused(cause, (self.file, self.line))
        tasks = tuple(task.spec() for task in self.tasks)
        cycle = rules.find_cycle({task.task_id: task.upstream for task in tasks})
        if cycle:
            ring = " >> ".join((*cycle, cycle[0]))
            raise refused(f"DAG '{self.dag_id}' has a cycle: {ring}", (self.file, self.line))
        return DagSpec(dag_id=self.dag_id, tasks=tasks, line=self.line, **self._options)


def _when(timezone: str | None, start: datetime | None) -> tuple[str, datetime | None]:
    """Return the zone's name and the start in UTC; a naive start is read in the zone, an aware one may name it."""
    if timezone is None:
        timezone = "UTC"
        if start is not None and isinstance(getattr(start.tzinfo, "key", None), str):
            timezone = zone_name(start.tzinfo)
    if start is None:
        return timezone, None
    return timezone, rules.moment(start if start.tzinfo is not None else start.replace(tzinfo=zone_of(timezone)))


def current_dag() -> DAG | None:
    """Return the DAG of the innermost ``with`` block."""
    return _open[-1] if _open else None


def dags_of(file: str) -> tuple[DAG, ...]:
    """Return the DAGs that belong to `file`, oldest first."""
    return tuple(made for made in _made if made.file == file)


def forget_dags_of(file: str) -> None:
    """Forget the DAGs that an earlier execution of `file` made in this process."""
    _made[:] = [made for made in _made if made.file != file]


def dag(dag_id: str | None = None, **options: Unpack[DagOptions]) -> Callable[[Callable[P, object]], Callable[P, DAG]]:
    """Turn a function that makes tasks into one that makes a DAG: ``@dag(schedule="@daily") def etl(): ...``.

    The DAG exists once the function is called; its id is the function's name unless given.
    """
    if callable(dag_id):
        raise refused("@dag takes options only; write @dag()")

    def decorate(function: Callable[P, object]) -> Callable[P, DAG]:
        @functools.wraps(function)
        def make(*args: P.args, **kwargs: P.kwargs) -> DAG:
            with DAG(dag_id or function.__name__, **options) as made:
                function(*args, **kwargs)
            return made

        return make

    return decorate
