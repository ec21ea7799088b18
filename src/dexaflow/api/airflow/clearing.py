"""Which tasks a clearing is about, in Airflow's words: chosen, with what depends on them, in some states."""

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from dexaflow.api.airflow import render, shapes
from dexaflow.api.airflow.states import in_airflows_words
from dexaflow.api.answers import answer
from dexaflow.api.services import MAX_PAGE, Services
from dexaflow.base.errors import NotFound
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import State
from dexaflow.store.reading_filters import AttemptFilter
from dexaflow.store.reading_rows import RunRow

__all__ = ["choose", "cleared_instances", "tasks_to_clear", "would_clear"]

_FAILED = frozenset({State.FAILED, State.UPSTREAM_FAILED})


def choose(
    spec: DagSpec,
    states: Mapping[str, str],
    task_ids: Sequence[str] | None,
    *,
    downstream: bool = False,
    upstream: bool = False,
    only_failed: bool = False,
    only_running: bool = False,
) -> tuple[str, ...]:
    """Return the tasks to clear, sorted. A task that is still waiting for its turn has nothing to clear.

    Args:
        states: The state of each task of the run.
        task_ids: None for all.

    Raises:
        NotFound: a task that the DAG does not have.
    """
    above = {t.task_id: set(t.upstream) for t in spec.tasks}
    wanted = set(above if task_ids is None else task_ids)
    if unknown := sorted(wanted - above.keys()):
        raise NotFound(f"DAG '{spec.dag_id}' has no task '{unknown[0]}'")
    chosen = set(wanted)
    if downstream:
        below = set(wanted)
        while more := {t for t, up in above.items() if t not in below and up & below}:
            below |= more
        chosen |= below
    if upstream:
        todo = list(wanted)
        while todo:
            more = above[todo.pop()] - chosen
            chosen |= more
            todo.extend(more)

    def fits(state: str | None) -> bool:
        if state is None or state == State.NONE:
            return False
        return (not only_failed or state in _FAILED) and (not only_running or state == State.RUNNING)

    return tuple(sorted(t for t in chosen if fits(states.get(t))))


async def tasks_to_clear(
    services: Services,
    run: RunRow,
    task_ids: Sequence[str] | None,
    *,
    downstream: bool = False,
    upstream: bool = False,
    only_failed: bool = False,
    only_running: bool = False,
) -> tuple[str, ...]:
    """Return what `choose` chooses for a run as it is now. Raises `NotFound`."""
    spec = await services.read(services.reader.spec, run.version_id)
    states = await services.read(services.reader.states, run.run_id)
    return choose(
        spec, states, task_ids, downstream=downstream, upstream=upstream, only_failed=only_failed,
        only_running=only_running,
    )  # fmt: skip


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
