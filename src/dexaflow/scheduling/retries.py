"""Whether a failed try is followed by another, and when.

Only a try that failed comes here: its task failed or timed out, its agent died, it could not be started, or it waited
too long on a broken hook (`dispatch_failed`, R7.2). One that was rejected or refused fails at once (R1.4).
"""

from dexaflow.model.dags import TaskSpec

__all__ = ["seconds_to_retry"]


def seconds_to_retry(task: TaskSpec, try_number: int, max_tries: int) -> float | None:
    """Return the seconds until the next try, or None when no try is left.

    Always the task's `retry_delay`, without jitter: a next try is paced by its pool and by admission.

    Args:
        task: The task as the run's version of the DAG has it.
        try_number: The try that failed, from 1.
        max_tries: How many tries there may be in all, the first included; grows when a person clears the task.
    """
    return task.retry_delay if try_number < max_tries else None
