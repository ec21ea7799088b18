"""Running one try of a task; what the agent's runner calls in the task's own process."""

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from dexaflow.authoring.context import as_variable, context_environment, read_context, running_in
from dexaflow.authoring.files import load_dags
from dexaflow.authoring.results import ResultError, checked_result
from dexaflow.authoring.task import resolved
from dexaflow.base.errors import NotFound

__all__ = ["bash_environment", "run_task"]


def run_task(
    file: str, root: str, dag_id: str, task_id: str, inputs: Mapping[str, Any], context: Mapping[str, Any]
) -> Any:
    """Run a Python task in this process and return its result.

    Args:
        file: The DAG file, relative to `root`, parts separated by "/".
        root: The folder it was loaded from: the snapshot that its run began with.
        inputs: The results of the tasks that it takes results from, by task id. One that is absent is None: its task
            was skipped or failed, and the trigger rule let this one run all the same.
        context: See `read_context`; ids, try number, moments, conf.

    Raises:
        NotFound: The file makes no such DAG, or the DAG no such Python task.
        ContextError: `context` cannot be used.
        ResultError: What the function returned is not JSON, or too large.
        BaseException: Whatever the file or the function raises.
    """
    sys.dont_write_bytecode = True  # the snapshot stays as it was kept
    dag = next((made for made in load_dags(root, file) if made.dag_id == dag_id), None)
    if dag is None:
        raise NotFound(f"{file}: makes no DAG '{dag_id}' when it is executed for the task; it must do so every time")
    if not dag.has(task_id):
        raise NotFound(
            f"{file}: DAG '{dag_id}' has no task '{task_id}' when it is executed for the task; "
            "it must make the same tasks every time"
        )
    task = dag.get_task(task_id)
    if task.function is None:
        raise NotFound(f"{file}: task '{task_id}' of DAG '{dag_id}' runs bash, not a function")
    with running_in(read_context(context, dag.params)):
        result = task.function(*resolved(task.args, inputs), **resolved(task.kwargs, inputs))
        if inspect.iscoroutine(result):
            import asyncio  # late: every agent imports this module, and few tasks are coroutines

            result = asyncio.run(result)
    return checked_result(result)


def bash_environment(
    env: Mapping[str, str], env_from: Mapping[str, str], inputs: Mapping[str, Any], context: Mapping[str, Any]
) -> dict[str, str]:
    """Return what the environment of a bash task holds besides the agent's PATH and the like.

    Args:
        env, env_from: As in `TaskSpec`.
        inputs: The results named in `env_from`, by task id. Text is taken as it is, anything else as JSON; a result
            that is absent or null gives an empty variable.
        context: See `read_context`.

    Raises:
        ContextError: `context` cannot be used.
        ResultError: A result cannot be an environment variable.
    """
    result = dict(env)
    for name, task_id in env_from.items():
        value = inputs.get(task_id)
        text = value if isinstance(value, str) else "" if value is None else as_variable(value)
        if "\0" in text:
            raise ResultError(f"env[{name!r}]: the result of '{task_id}' holds a NUL character; pass it to a @task")
        result[name] = text
    return result | context_environment(read_context(context))
