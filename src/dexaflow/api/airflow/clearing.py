"""What a clearing would clear, or has cleared, in Airflow's shapes."""

from collections.abc import Sequence

from starlette.responses import Response

from dexaflow.api.airflow import render, shapes
from dexaflow.api.airflow.states import in_airflows_words
from dexaflow.api.answers import answer
from dexaflow.api.services import MAX_PAGE, Services
from dexaflow.model.clearing import tasks_to_clear
from dexaflow.store.reading_filters import AttemptFilter
from dexaflow.store.reading_rows import RunRow

__all__ = ["chosen", "cleared_instances", "would_clear"]


async def chosen(services: Services, run: RunRow, task_ids: Sequence[str] | None, **how: bool) -> tuple[str, ...]:
    """Return what `tasks_to_clear` chooses, told how, of a run as it is now. Raises `NotFound`."""
    spec = await services.read(services.reader.spec, run.version_id)
    states = await services.read(services.reader.states, run.run_id)
    return tasks_to_clear(spec, states, task_ids, **how)


async def would_clear(services: Services, run_id: str, task_ids: Sequence[str]) -> Response:
    """Return what clearing a run would clear, in the one form that Airflow's client takes there."""
    asked = AttemptFilter(run_ids=(run_id,), task_ids=tuple(task_ids))
    page = await services.read(services.reader.attempts, asked, limit=MAX_PAGE)
    found: list[shapes.ToClear] = [
        {
            "task_id": row.task_id,
            "task_display_name": row.task_id,
            "dag_id": row.dag_id,
            "dag_run_id": row.run_id,
            "state": in_airflows_words(row.state),
            "try_number": row.try_number,
            "note": render.note_of(row),
        }
        for row in page.rows
    ]
    return answer({"task_instances": found, "total_entries": len(task_ids)})


async def cleared_instances(services: Services, run_id: str, task_ids: Sequence[str]) -> Response:
    """Return the task instances of a clearing as Airflow's collection; a page of them at most, counted in full."""
    asked = AttemptFilter(run_ids=(run_id,), task_ids=tuple(task_ids))
    page = await services.read(services.reader.attempts, asked, limit=MAX_PAGE)
    return answer(
        {
            "task_instances": [render.task_instance(row) for row in page.rows],
            "total_entries": len(task_ids),
            "next_cursor": None,
            "previous_cursor": None,
            "total_entries_limit": None,
        }
    )
