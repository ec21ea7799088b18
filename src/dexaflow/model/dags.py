"""A DAG as registered: what the loader hands over and the scheduler reads. Plain JSON on the way.

`DagSpec.to_json` / `from_json` are each other's inverse; unknown keys are refused, so that a record written by a
newer version is never half understood.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dexaflow.model.execution import EMPTY, Execution, Resources

__all__ = ["DagSpec", "TaskSpec"]


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task as its author wrote it, default arguments applied. Durations are seconds."""

    task_id: str
    operator: str  # "python" or "bash"
    upstream: tuple[str, ...] = ()  # task ids, sorted; both `>>` and passed results
    results_from: tuple[str, ...] = ()  # upstream tasks whose results its arguments carry
    trigger_rule: str = "all_success"
    retries: int = 0
    retry_delay: float = 300.0
    execution_timeout: float | None = None
    pool: str = "default_pool"
    pool_slots: int = 1
    image: str = ""  # "": none of its own nor of its DAG
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    bash_command: str = ""  # operator "bash" only
    resources: Resources | None = None  # None: declares none
    execution: Execution = field(default_factory=Execution)
    line: int = 0  # where it stands in its file


@dataclass(frozen=True, slots=True)
class DagSpec:
    """One DAG as its author wrote it."""

    dag_id: str
    tasks: tuple[TaskSpec, ...]
    schedule: str | None = None  # five-field cron, or an @preset
    timezone: str = "UTC"
    start_date: datetime | None = None  # aware
    catchup: bool = False
    max_active_runs: int = 16
    dagrun_timeout: float | None = None  # seconds
    description: str = ""
    tags: tuple[str, ...] = ()
    image: str = ""
    line: int = 0

    def task(self, task_id: str) -> TaskSpec:
        """Return the task of that id. Raises `KeyError`."""
        for task in self.tasks:
            if task.task_id == task_id:
                return task
        raise KeyError(task_id)
