"""One try of one task in one run: the value that walks the line."""

from dataclasses import dataclass

from dexaflow.model.dags import TaskSpec

__all__ = ["Attempt"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a task instance.

    `id` is the store's key of this very try: unique over all tries, drawn anew for each. Whatever is decided is
    decided about this id, so a decision cannot leak into the next try (R1.6).
    """

    id: str
    tenant_id: str
    dag_id: str
    run_id: str
    task_id: str
    try_number: int  # from 1
    task: TaskSpec
