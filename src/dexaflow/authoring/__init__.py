"""What a DAG file imports, in Airflow's words. Standard library only; it rides in the task's image.

A file is executed twice in its life: once when it is loaded, to learn which DAGs and tasks it makes, and once for each
try of a Python task, to get at the function. Calling a `@task` function inside a DAG does not run it: it makes a
`Task`, which stands for the result until the task has run. What is wrong is an `AuthoringError` that names the line in
the author's file.
"""

from dexaflow.authoring.context import Context, get_context
from dexaflow.authoring.dag import DAG, dag
from dexaflow.authoring.errors import AuthoringError
from dexaflow.authoring.task import Task, TaskFunction, bash, chain, task

__all__ = [
    "DAG",
    "AuthoringError",
    "Context",
    "Task",
    "TaskFunction",
    "bash",
    "chain",
    "dag",
    "get_context",
    "task",
]
