"""A task instance as a row: what it does, since when, and why it waits."""

from datetime import datetime
from typing import TYPE_CHECKING

from dexaflow.base.text import NO_REASON
from dexaflow.cli.moments import short, span, until

if TYPE_CHECKING:
    from dexaflow.api.own import shapes

__all__ = ["TASK_COLUMNS", "task_row", "why"]

TASK_COLUMNS = ("task", "state", "try", "started", "took", "why")


def task_row(task: "shapes.TaskOut", now: datetime) -> tuple[object, ...]:
    """Return one task under `TASK_COLUMNS`."""
    return (
        task["task_id"],
        task["state"],
        f"{task['try_number']}/{task['max_tries']}",
        short(task["started_at"], now),
        span(task["seconds"]),
        why(task["state"], task["hook"], task["reason"], task["next_ask_at"], task["retry_at"], now) or None,
    )


def why(state: str, hook: str, reason: str, next_ask_at: str | None, retry_at: str | None, now: datetime) -> str:
    """Return why a task is where it is, which hook said so, and when something happens next; "" when nothing is known.

    The text is as it came: clean it before it is shown.
    """
    if state == "held" and not reason:
        reason = NO_REASON
    parts = [f"{hook}: {reason}" if hook and reason else hook or reason]
    if state == "held" and next_ask_at is not None:
        parts.append(f"asked again at {short(next_ask_at, now)} ({until(next_ask_at, now)})")
    if state == "up_for_retry" and retry_at is not None:
        parts.append(f"next try at {short(retry_at, now)} ({until(retry_at, now)})")
    return "; ".join(part for part in parts if part)
