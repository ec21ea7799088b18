"""Tasks: functions under `@task`, commands by `bash`, and their order."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, overload

from dexaflow.authoring.dag import DAG, current_dag
from dexaflow.authoring.errors import NoAttributeError, Place, call_place, owner_place, refused
from dexaflow.authoring.options import TASK_OPTIONS, TaskOptions, read_options
from dexaflow.model import dag_rules as rules
from dexaflow.model.dag_rules import RuleError
from dexaflow.model.dags import TaskSpec

__all__ = ["Task", "TaskFunction", "bash", "chain", "resolved", "task"]

_MAX_DEPTH = 100  # of lists and dicts in arguments


class Task:
    """One task of a DAG, and the handle on its result: pass it to other tasks, or order tasks with ``>>`` and ``<<``.

    Made by calling a `@task` function or by `bash`, never directly.
    """

    def __init__(
        self,
        dag: DAG,
        task_id: str,
        operator: str,
        options: dict[str, Any],
        line: int,
        *,
        function: Callable[..., Any] | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        bash_command: str = "",
        env_from: Mapping[str, "Task"] | None = None,
    ) -> None:
        self.dag, self.task_id, self.operator, self.line = dag, task_id, operator, line
        self.function, self.args, self.kwargs = function, args, dict(kwargs or {})
        self._options = dag.task_options(options)
        self._bash_command = bash_command
        self._env_from = dict(env_from or {})
        self._results = {t.task_id: t for t in _tasks_in([self.args, self.kwargs, self._env_from])}
        for needed in self._results.values():
            if needed.dag is not dag:
                raise refused(f"task '{task_id}' takes the result of '{needed.task_id}', a task of {needed.dag!r}")
            if needed.operator == "bash":
                raise refused(f"bash task '{needed.task_id}' leaves no result to pass to '{task_id}'; order them by >>")
        self._upstream = dict(self._results)
        dag.add(self)

    def __repr__(self) -> str:
        return f"<Task {self.dag.dag_id}.{self.task_id}>"

    def set_upstream(self, others: "Task | Iterable[Task]") -> None:
        """Run this task after `others`."""
        for other in _flat(others, "set_upstream"):
            self._after(other)

    def set_downstream(self, others: "Task | Iterable[Task]") -> None:
        """Run `others` after this task."""
        for other in _flat(others, "set_downstream"):
            other._after(self)

    def _after(self, other: "Task") -> None:
        if other is self:
            raise refused(f"task '{self.task_id}' cannot depend on itself")
        if other.dag is not self.dag:
            raise refused(f"'{other.task_id}' and '{self.task_id}' are tasks of two DAGs; they cannot be ordered")
        self._upstream[other.task_id] = other

    def __rshift__(self, others: Any) -> Any:
        for other in _flat(others, ">>"):
            other._after(self)
        return others

    def __lshift__(self, others: Any) -> Any:
        for other in _flat(others, "<<"):
            self._after(other)
        return others

    def __rrshift__(self, others: Any) -> "Task":  # [a, b] >> self
        self.__lshift__(others)
        return self

    def __rlshift__(self, others: Any) -> "Task":  # [a, b] << self
        self.__rshift__(others)
        return self

    def _unknown(self) -> str:
        return (
            f"the result of '{self.task_id}' is not known while the file is loaded; "
            "pass it to another task, or to bash in env="
        )

    def _not_yet(self, *_: object) -> NoReturn:
        raise refused(self._unknown())

    # What a result would be good for, and what stands for it is not: some of it would quietly do the wrong thing.
    __format__ = __str__ = __iter__ = __getitem__ = __len__ = __contains__ = _not_yet
    __bool__ = __int__ = __float__ = __index__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = _not_yet
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _not_yet
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = _not_yet

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Task):
            self._not_yet()
        return self is other

    __hash__ = object.__hash__

    if not TYPE_CHECKING:  # else every attribute would be there

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):  # Python asks for such ones itself
                raise AttributeError(name)
            raise NoAttributeError(*call_place(), self._unknown())

    def spec(self) -> TaskSpec:
        """Return the task as it is registered."""
        return TaskSpec(
            task_id=self.task_id,
            operator=self.operator,
            upstream=tuple(sorted(self._upstream)),
            results_from=tuple(sorted(self._results)),
            bash_command=self._bash_command,
            env_from={name: source.task_id for name, source in self._env_from.items()},
            line=self.line,
            **self._options,
        )


class TaskFunction:
    """A function under `@task`. Calling it inside a DAG makes a task; ``.function`` is the plain function."""

    def __init__(self, function: Callable[..., Any], task_id: str, dag: DAG | None, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._task_id, self._dag, self._options = task_id, dag, options

    def __call__(self, *args: Any, **kwargs: Any) -> Task:
        dag = self._dag or current_dag()
        if dag is None:
            raise refused(
                f"{self._task_id}() makes a task and needs a DAG around it; to run the function itself, "
                f"call {self._task_id}.function()"
            )
        try:
            inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError as error:
            raise refused(f"{self._task_id}(): {error}") from None
        task_id = _free_id(dag, self._task_id)
        line = _line(self.function, owner_place())
        return Task(dag, task_id, "python", self._options, line, function=self.function, args=args, kwargs=kwargs)

    def override(self, **options: Unpack["_FunctionOptions"]) -> "TaskFunction":
        """Return the same function with other options, as in Airflow: ``load.override(task_id="load_eu")(rows)``."""
        task_id, dag, read = _function_options(self._task_id, dict(options))
        return TaskFunction(self.function, task_id or self._task_id, dag or self._dag, {**self._options, **read})


class _FunctionOptions(TaskOptions, total=False):
    task_id: str  # the function's name
    dag: DAG  # instead of the `with` block it is called in


@overload
def task(function: Callable[..., Any], /) -> TaskFunction: ...
@overload
def task(**options: Unpack[_FunctionOptions]) -> Callable[[Callable[..., Any]], TaskFunction]: ...
def task(
    function: Callable[..., Any] | None = None, /, **options: Unpack[_FunctionOptions]
) -> TaskFunction | Callable[[Callable[..., Any]], TaskFunction]:
    """Make a function a task: ``@task`` or ``@task(retries=2)``; async functions too. Options: see `TaskOptions`.

    Calling it inside a DAG makes a task of the function's name (``name__1`` the second time) and returns its handle.
    What the function returns is its result: JSON of at most 64 KiB.

    Raises:
        AuthoringError: An option is unknown, of the wrong type or out of range.
    """
    if function is not None:
        return task(**options)(function)
    given_id, dag, read = _function_options("@task", dict(options))

    def decorate(function: Callable[..., Any]) -> TaskFunction:
        if isinstance(function, TaskFunction):
            raise refused(f"{function.function.__name__} is under @task already")
        if not inspect.isfunction(function) or inspect.isasyncgenfunction(function):
            raise refused(f"@task goes on a function, got {rules.shown(function)}")
        task_id = given_id or _id("@task: task_id, which is the function's name unless given,", function.__name__)
        if meant_for := dag or current_dag():
            meant_for.meant(function.__name__)
        return TaskFunction(function, task_id, dag, read)

    return decorate


def bash(task_id: str, command: str, *, dag: DAG | None = None, **options: Unpack[TaskOptions]) -> Task:
    """Make a task that runs `command` with bash. Options: see `TaskOptions`.

    The try's context is in its environment (``DEXAFLOW_RUN_ID`` ...). A value of `env` may be another task: the
    variable then holds that task's result, text as it is, anything else as JSON.

    Raises:
        AuthoringError: An option is unknown, of the wrong type or out of range, or there is no DAG around it.
    """
    task_id = _id("bash(): task_id", task_id)
    dag = dag or current_dag()
    if not isinstance(dag, DAG):
        raise refused(f"bash('{task_id}') makes a task and needs a DAG around it")
    given: dict[str, Any] = dict(options)
    env_from: dict[str, Task] = {}
    if isinstance(given.get("env"), Mapping):
        env_from = {name: value for name, value in given["env"].items() if isinstance(value, Task)}
        given["env"] = {name: value for name, value in given["env"].items() if name not in env_from}
    read = read_options(f"bash('{task_id}')", given, TASK_OPTIONS)
    read_options(f"bash('{task_id}')", {"env": dict.fromkeys(env_from, "")}, TASK_OPTIONS)  # their names
    try:
        command = rules.text(command, least=1)
    except RuleError as error:
        raise refused(f"bash('{task_id}'): command {error}") from None
    return Task(dag, task_id, "bash", read, owner_place()[1], bash_command=command, env_from=env_from)


def chain(*tasks: "Task | list[Task]") -> None:
    """Order tasks one after the other: ``chain(a, [b, c], d)`` is ``a >> [b, c] >> d``."""
    for before, after in pairwise(tasks):
        for upstream in _flat(before, "chain()"):
            upstream.set_downstream(_flat(after, "chain()"))


def resolved(value: Any, results: Mapping[str, Any]) -> Any:
    """Return `value` with every task in it replaced by its result; None for a task that left none."""
    if isinstance(value, Task):
        return results.get(value.task_id)
    if isinstance(value, list | tuple | Mapping) and next(_tasks_in(value), None) is not None:
        if isinstance(value, Mapping):
            return {key: resolved(item, results) for key, item in value.items()}
        items = [resolved(item, results) for item in value]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _function_options(name: str, given: dict[str, Any]) -> tuple[str, DAG | None, dict[str, Any]]:
    task_id = _id(f"{name}: task_id", given.pop("task_id")) if "task_id" in given else ""
    dag = given.pop("dag", None)
    if dag is not None and not isinstance(dag, DAG):
        raise refused(f"{name}: dag must be a DAG, got {rules.shown(dag)}")
    if isinstance(given.get("env"), Mapping) and any(isinstance(v, Task) for v in given["env"].values()):
        raise refused(f"{name}: env holds a task; pass its result as an argument instead")
    return task_id, dag, read_options(task_id or name, given, {**TASK_OPTIONS})


def _id(name: str, value: object) -> str:
    try:
        return rules.identifier(value)
    except RuleError as error:
        raise refused(f"{name} {error}") from None


def _free_id(dag: DAG, task_id: str) -> str:
    """Return the id, or the next ``id__1``, ``id__2`` when it is taken; Airflow's way."""
    if not dag.has(task_id):
        return task_id
    stem = re.sub(r"__\d{1,9}\Z", "", task_id) or task_id
    pattern = re.compile(re.escape(stem) + r"__(\d{1,9})")
    taken = [int(m[1]) for t in dag.tasks if (m := pattern.fullmatch(t.task_id))]
    return _id(f"the next task_id of '{task_id}'", f"{stem}__{max(taken, default=0) + 1}")


def _line(function: Callable[..., Any], owner: Place) -> int:
    """Return where the function's options are written, when that is in the DAG's file; else where it is called."""
    code = inspect.unwrap(function).__code__
    return code.co_firstlineno if code.co_filename == owner[0] else owner[1]


def _flat(others: object, word: str) -> list[Task]:
    if isinstance(others, Task):
        return [others]
    if isinstance(others, list | tuple | set | frozenset):
        return [task for other in others for task in _flat(other, word)]
    called = f"; call it: {others.function.__name__}()" if isinstance(others, TaskFunction) else ""
    raise refused(f"{word} takes tasks and lists of tasks, got {rules.shown(others)}{called}")


def _tasks_in(value: object, depth: int = 0) -> Iterator[Task]:
    if isinstance(value, Task):
        yield value
    elif isinstance(value, TaskFunction):
        raise refused(f"{value.function.__name__} is passed where its result is meant; call it")
    elif isinstance(value, Mapping | list | tuple | set | frozenset):
        if depth > _MAX_DEPTH:
            raise refused("an argument holds itself, or lists and dicts deeper than a hundred")
        if isinstance(value, Mapping):
            if any(isinstance(key, Task) for key in value):
                raise refused("a task's result cannot be the key of a dict")
            value = list(value.values())
        for item in value:
            if isinstance(item, Task) and isinstance(value, set | frozenset):
                raise refused(f"put the result of '{item.task_id}' in a list; a set cannot hold every result")
            yield from _tasks_in(item, depth + 1)
