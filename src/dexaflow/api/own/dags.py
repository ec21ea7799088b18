"""DAGs and what is wrong with their files, in our own shapes."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, StrictBool
from starlette.responses import Response

from dexaflow.api.airflow.runs import Note, RunId
from dexaflow.api.answers import answer
from dexaflow.api.asking import Moment, Name
from dexaflow.api.bodies import check_conf
from dexaflow.api.own import render, shapes
from dexaflow.api.own.paging import Page
from dexaflow.api.problems import problem_docs
from dexaflow.api.services import Services, asked_by
from dexaflow.store.reading_filters import DagFilter

__all__ = ["dag_routes"]


class DagQuery(Page):
    """Which DAGs."""

    tenant_id: Name | None = None
    is_paused: bool | None = None
    include_inactive: bool = False


class ErrorQuery(Page):
    """Which errors of DAG files."""

    tenant_id: Name | None = None


class DagPatch(BaseModel):
    """What may be changed about a DAG."""

    model_config = ConfigDict(extra="forbid")

    is_paused: StrictBool


class NewRun(BaseModel):
    """A run to be made. `conf` is a JSON object of at most 64 KiB."""

    model_config = ConfigDict(extra="forbid")

    run_id: RunId | None = None
    conf: dict[str, Any] = {}
    logical_date: Moment | None = None
    note: Note = ""


def dag_routes(services: Services) -> APIRouter:
    """Return our own routes about DAGs."""
    router = APIRouter(tags=["DAGs"])

    @router.get("/dags", response_model=shapes.DagPage, responses=problem_docs(404))
    async def list_dags(query: Annotated[DagQuery, Query()]) -> Response:
        """List DAGs; those whose file is gone only with `include_inactive`."""
        asked = DagFilter(tenant_id=query.tenant_id, paused=query.is_paused, active_only=not query.include_inactive)
        page = await services.read(services.reader.dags, asked, **query.page)
        if not page.total and query.tenant_id is not None:
            await services.read(services.reader.check_tenant, query.tenant_id)
        return answer({"dags": [render.dag(r) for r in page.rows], "total_entries": page.total})

    @router.get("/dag-errors", response_model=shapes.DagErrorPage, responses=problem_docs(404))
    async def list_dag_errors(query: Annotated[ErrorQuery, Query()]) -> Response:
        """What is wrong with DAG files now (R2.2)."""
        page = await services.read(services.reader.dag_errors, tenant_id=query.tenant_id, **query.page)
        if not page.total and query.tenant_id is not None:
            await services.read(services.reader.check_tenant, query.tenant_id)
        return answer({"errors": [render.dag_error(r) for r in page.rows], "total_entries": page.total})

    @router.get("/dags/{dag_id}", response_model=shapes.DagWithTasks, responses=problem_docs(404))
    async def show_dag(dag_id: str) -> Response:
        """One DAG and its tasks, as the latest version has them."""
        return answer(render.dag_with_tasks(await services.read(services.reader.dag, dag_id)))

    @router.patch("/dags/{dag_id}", response_model=shapes.DagWithTasks, responses=problem_docs(404))
    async def change_dag(dag_id: str, body: DagPatch, request: Request) -> Response:
        """Pause or unpause a DAG."""
        await services.commands.set_paused(dag_id, paused=body.is_paused, by=asked_by(request))
        return answer(render.dag_with_tasks(await services.read(services.reader.dag, dag_id)))

    @router.post("/dags/{dag_id}/runs", response_model=shapes.Run, status_code=201, responses=problem_docs(404, 409))
    async def trigger_run(dag_id: str, body: NewRun, request: Request) -> Response:
        """Make a run of the DAG's latest version."""
        run_id = await services.commands.trigger(
            dag_id,
            run_id=body.run_id,
            conf=check_conf(body.conf),
            logical_date=body.logical_date,
            by=asked_by(request),
            note=body.note,
        )
        row = await services.read(services.reader.run, run_id)
        counts = await services.read(services.reader.state_counts, [run_id])
        return answer(render.run(row, dict(counts[run_id])), 201)

    return router
