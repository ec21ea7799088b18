"""Runs and their tasks in our own states: list, show, cancel, clear, explain, logs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr
from starlette.responses import Response

from dexaflow.admission.results import Outcome
from dexaflow.api.airflow.runs import Note
from dexaflow.api.answers import answer
from dexaflow.api.asking import MAX_INT, Name
from dexaflow.api.logs import read_piece
from dexaflow.api.own import render, shapes
from dexaflow.api.own.explain import explain
from dexaflow.api.own.paging import Page
from dexaflow.api.problems import problem_docs
from dexaflow.api.services import MAX_PAGE, Services, asked_by
from dexaflow.model.states import RunState, State
from dexaflow.store.reading_filters import AttemptFilter, ReviewFilter, RunFilter

__all__ = ["run_routes"]

TryNumber = Annotated[int, Query(ge=1, le=MAX_INT, description="The latest try unless named.")]
MAX_LOG_PIECE = 1024 * 1024


class RunQuery(Page):
    """Which runs; the newest first."""

    dag_id: Name | None = None
    tenant_id: Name | None = None
    state: Annotated[list[RunState], Field(default_factory=list, max_length=10)]


class TaskQuery(Page):
    """Which tasks of a run."""

    state: Annotated[list[State], Field(default_factory=list, max_length=20)]


class ReviewQuery(Page):
    """Which reviews of a run."""

    task_id: Name | None = None
    try_number: Annotated[int, Field(ge=1, le=MAX_INT)] | None = None
    hook: Name | None = None
    outcome: Outcome | None = None


class RunNote(BaseModel):
    """What may be changed about a run."""

    model_config = ConfigDict(extra="forbid")

    note: Note


class Clear(BaseModel):
    """Which tasks get a new try: all unless named."""

    model_config = ConfigDict(extra="forbid")

    task_ids: Annotated[list[StrictStr], Field(min_length=1, max_length=1000)] | None = None
    downstream: StrictBool = False
    only_failed: StrictBool = False


def run_routes(services: Services) -> APIRouter:
    """Return our own routes about runs and their tasks."""
    router = APIRouter(tags=["Runs"], responses=problem_docs(404))

    async def shown(run_id: str) -> Response:
        row = await services.read(services.reader.run, run_id)
        counts = await services.read(services.reader.state_counts, [run_id])
        asked = AttemptFilter(run_ids=(run_id,))
        page = await services.read(services.reader.attempts, asked, limit=MAX_PAGE)
        body: shapes.RunWithTasks = {
            **render.run(row, dict(counts[run_id])),
            "tasks": [render.task_instance(t) for t in page.rows],
            "task_count": page.total,
        }
        return answer(body)

    @router.get("/runs", response_model=shapes.RunPage)
    async def list_runs(query: Annotated[RunQuery, Query()]) -> Response:
        """List runs, the newest first."""
        asked = RunFilter(
            dag_ids=None if query.dag_id is None else (query.dag_id,),
            tenant_id=query.tenant_id,
            states=query.state or None,
            order=(("queued_at", True), ("run_id", True)),
        )
        page = await services.read(services.reader.runs, asked, **query.page)
        if not page.total and query.dag_id is not None:  # no run of it: or is there no such DAG?
            await services.read(services.reader.dag, query.dag_id)
        if not page.total and query.tenant_id is not None:
            await services.read(services.reader.check_tenant, query.tenant_id)
        counts = await services.read(services.reader.state_counts, [r.run_id for r in page.rows])
        runs = [render.run(r, dict(counts[r.run_id])) for r in page.rows]
        return answer({"runs": runs, "total_entries": page.total})

    @router.get("/runs/{run_id}", response_model=shapes.RunWithTasks)
    async def show_run(run_id: str) -> Response:
        """One run and its tasks."""
        return await shown(run_id)

    @router.patch("/runs/{run_id}", response_model=shapes.RunWithTasks)
    async def change_run(run_id: str, body: RunNote) -> Response:
        """Set a run's note."""
        await services.commands.set_note(run_id, body.note)
        return await shown(run_id)

    @router.post("/runs/{run_id}/cancel", response_model=shapes.RunWithTasks, responses=problem_docs(409))
    async def cancel_run(run_id: str, request: Request) -> Response:
        """End a run: what waits is skipped, its holds end at once, what runs is told to end (R6.3)."""
        await services.commands.cancel(run_id, by=asked_by(request))
        return await shown(run_id)

    @router.post("/runs/{run_id}/clear", response_model=shapes.Cleared, responses=problem_docs(409))
    async def clear_run(run_id: str, body: Clear, request: Request) -> Response:
        """Give tasks a new try with nothing carried over; a hold ends at once (R6.3)."""
        cleared = await services.commands.clear(
            run_id,
            task_ids=body.task_ids,
            downstream=body.downstream,
            only_failed=body.only_failed,
            by=asked_by(request),
        )
        return answer({"run_id": run_id, "task_ids": list(cleared)})

    @router.get("/runs/{run_id}/tasks", response_model=shapes.AttemptPage)
    async def list_tasks(run_id: str, query: Annotated[TaskQuery, Query()]) -> Response:
        """List the tasks of a run by their present tries."""
        await services.read(services.reader.run, run_id)
        asked = AttemptFilter(run_ids=(run_id,), states=query.state or None)
        page = await services.read(services.reader.attempts, asked, **query.page)
        return answer({"tasks": [render.task_instance(r) for r in page.rows], "total_entries": page.total})

    @router.get("/runs/{run_id}/tasks/{task_id}", response_model=shapes.TaskOut)
    async def show_task(run_id: str, task_id: str, try_number: TryNumber | None = None) -> Response:
        """One try of a task."""
        return answer(render.task_instance(await services.read(services.reader.attempt, run_id, task_id, try_number)))

    @router.get("/runs/{run_id}/tasks/{task_id}/explain", response_model=shapes.Explanation)
    async def explain_task(run_id: str, task_id: str, try_number: TryNumber | None = None) -> Response:
        """The walk of a try: slots, own checks, each hook's answer, launch, agent, end; and who set what (R9.2)."""
        run = await services.read(services.reader.run, run_id)
        row = await services.read(services.reader.attempt, run_id, task_id, try_number)
        latest = row if try_number is None else await services.read(services.reader.attempt, run_id, task_id)
        reviews = await services.read(services.reader.reviews_of, row.attempt_id)
        upstream = await services.read(services.reader.upstream, row)
        return answer(explain(run, row, reviews, latest.try_number, upstream))

    @router.get(
        "/runs/{run_id}/tasks/{task_id}/logs",
        response_class=Response,
        responses={
            200: {
                "content": {"text/plain": {"schema": {"type": "string"}}},
                "headers": {
                    "X-Dexaflow-Next-Offset": {"schema": {"type": "integer"}},
                    "X-Dexaflow-Log-Complete": {"schema": {"type": "string", "enum": ["true", "false"]}},
                },
            }
        },
    )
    async def read_log(
        run_id: str,
        task_id: str,
        try_number: TryNumber | None = None,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_LOG_PIECE)] = MAX_LOG_PIECE,
    ) -> Response:
        """A piece of a try's log as it was written, from byte `offset`.

        To follow a log, ask again from `X-Dexaflow-Next-Offset` until `X-Dexaflow-Log-Complete` is true.
        """
        row = await services.read(services.reader.attempt, run_id, task_id, try_number)
        piece = await read_piece(services, row, offset, limit)
        return Response(
            piece.data,
            media_type="text/plain",
            headers={
                "X-Dexaflow-Next-Offset": str(piece.next_offset),
                "X-Dexaflow-Log-Complete": "true" if piece.complete else "false",
            },
        )

    @router.get("/runs/{run_id}/reviews", response_model=shapes.ReviewPage)
    async def list_reviews(run_id: str, query: Annotated[ReviewQuery, Query()]) -> Response:
        """What hooks answered about the attempts of a run, in order (R9.2)."""
        asked = ReviewFilter(task_id=query.task_id, try_number=query.try_number, hook=query.hook, outcome=query.outcome)
        page = await services.read(services.reader.reviews, run_id, asked, **query.page)
        if not page.total and query.task_id is not None:  # it was never asked about: or is there no such task?
            await services.read(services.reader.attempt, run_id, query.task_id, query.try_number)
        return answer({"reviews": [render.review(r) for r in page.rows], "total_entries": page.total})

    return router
