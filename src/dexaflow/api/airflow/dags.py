"""DAGs, their tasks and versions, and what is wrong with their files."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, StrictBool
from starlette.responses import Response

from dexaflow.api.airflow import render, shapes
from dexaflow.api.answers import answer
from dexaflow.api.asking import MAX_INT, SORTING, AirflowPage, Name, Pattern, among, order_of, sortable
from dexaflow.api.problems import Problem, problem_docs
from dexaflow.api.services import Services, asked_by
from dexaflow.base.errors import NotFound
from dexaflow.store.reading_filters import DagFilter

__all__ = ["dag_routes"]

_DAG_ORDER = {
    "dag_id": "dag_id", "dag_display_name": "dag_id", "next_dagrun": "next_run_at", "is_paused": "is_paused",
    "last_parsed_time": "updated_at",
}  # fmt: skip


_VERSION_ORDER = {"version_number": "number", "created_at": "number", "id": "number"}
_ERROR_ORDER = {"id": "file", "import_error_id": "file", "filename": "file", "timestamp": "file"}
_TASK_ORDER = ("task_id", "task_display_name")


class DagQuery(AirflowPage):
    """Which DAGs."""

    order_by: Annotated[list[Annotated[str, sortable(_DAG_ORDER)]], SORTING]
    dag_id_pattern: Pattern | None = None
    dag_id_prefix_pattern: Pattern | None = None
    dag_display_name_pattern: Pattern | None = None
    exclude_stale: bool = True
    paused: bool | None = None
    has_import_errors: bool | None = None
    bundle_name: Name | None = None


class DagPatch(BaseModel):
    """What may be changed about a DAG."""

    model_config = ConfigDict(extra="forbid")

    is_paused: StrictBool


class VersionQuery(AirflowPage):
    """Which versions of a DAG."""

    order_by: Annotated[list[Annotated[str, sortable(_VERSION_ORDER)]], SORTING]
    version_number: Annotated[int, Query(ge=0, le=MAX_INT)] | None = None


class ImportErrorQuery(AirflowPage):
    """Which errors of DAG files."""

    order_by: Annotated[list[Annotated[str, sortable(_ERROR_ORDER)]], SORTING]
    filename: Annotated[str, Query(max_length=1000)] | None = None
    filename_pattern: Pattern | None = None
    bundle_name: Name | None = None


def dag_routes(services: Services) -> APIRouter:
    """Return the routes under /api/v2 about DAGs."""
    router = APIRouter(tags=["Airflow: DAGs"], responses=problem_docs(404))

    @router.get("/dags", response_model=shapes.DagCollection)
    async def get_dags(query: Annotated[DagQuery, Query()]) -> Response:
        """List DAGs. `bundle_name` is the tenant."""
        asked = DagFilter(
            pattern=query.dag_id_pattern or query.dag_display_name_pattern,
            prefix=query.dag_id_prefix_pattern,
            paused=query.paused,
            active_only=query.exclude_stale,
            tenant_id=query.bundle_name,
            has_errors=query.has_import_errors,
            order=order_of(query.order_by, _DAG_ORDER, DagFilter().order, "dag_id"),
        )
        page = await services.read(services.reader.dags, asked, **query.page)
        return answer({"dags": [render.dag(row) for row in page.rows], "total_entries": page.total})

    @router.get("/dags/{dag_id}", response_model=shapes.Dag)
    async def get_dag(dag_id: str) -> Response:
        """One DAG."""
        return answer(render.dag(await services.read(services.reader.dag, dag_id)))

    @router.get("/dags/{dag_id}/details", response_model=shapes.DagDetails)
    async def get_dag_details(dag_id: str) -> Response:
        """One DAG with everything Airflow says about it."""
        row = await services.read(services.reader.dag, dag_id)
        active = await services.read(services.reader.active_runs, dag_id)
        return answer(render.dag_details(row, active))

    @router.patch("/dags/{dag_id}", response_model=shapes.Dag)
    async def patch_dag(
        dag_id: str,
        body: DagPatch,
        request: Request,
        update_mask: Annotated[list[Annotated[str, among(["is_paused"])]] | None, Query(max_length=5)] = None,
    ) -> Response:
        """Pause or unpause a DAG."""
        if set(update_mask or ()) - {"is_paused"}:
            raise Problem(422, "update_mask: only is_paused can be changed", [("update_mask", "only is_paused")])
        await services.commands.set_paused(dag_id, paused=body.is_paused, by=asked_by(request))
        return answer(render.dag(await services.read(services.reader.dag, dag_id)))

    @router.get("/dags/{dag_id}/tasks", response_model=shapes.TaskCollection)
    async def get_tasks(dag_id: str, order_by: Annotated[str, sortable(_TASK_ORDER)] = "task_id") -> Response:
        """The tasks of a DAG's latest version."""
        if order_by.removeprefix("-") not in _TASK_ORDER:
            raise Problem(422, "order_by: tasks sort by task_id", [("order_by", "use task_id or -task_id")])
        spec = (await services.read(services.reader.dag, dag_id)).spec
        tasks = sorted(spec.tasks, key=lambda t: t.task_id, reverse=order_by.startswith("-"))
        return answer({"tasks": [render.task(spec, t) for t in tasks], "total_entries": len(tasks)})

    @router.get("/dags/{dag_id}/tasks/{task_id}", response_model=shapes.Task)
    async def get_task(dag_id: str, task_id: str) -> Response:
        """One task of a DAG's latest version."""
        spec = (await services.read(services.reader.dag, dag_id)).spec
        try:
            return answer(render.task(spec, spec.task(task_id)))
        except KeyError:
            raise NotFound(f"DAG '{dag_id}' has no task '{task_id}'") from None

    @router.get("/dags/{dag_id}/dagVersions", response_model=shapes.DagVersionCollection)
    async def get_dag_versions(dag_id: str, query: Annotated[VersionQuery, Query()]) -> Response:
        """The kept versions of a DAG."""
        order = order_of(query.order_by, _VERSION_ORDER, (("number", False),), "number")
        await services.read(services.reader.dag, dag_id)
        if query.version_number is not None:
            try:
                rows = [await services.read(services.reader.version, dag_id, query.version_number)]
            except NotFound:
                rows = []
            return answer({"dag_versions": [render.version(r) for r in rows], "total_entries": len(rows)})
        page = await services.read(services.reader.versions, dag_id, **query.page, newest_first=order[0][1])
        return answer({"dag_versions": [render.version(r) for r in page.rows], "total_entries": page.total})

    @router.get("/dags/{dag_id}/dagVersions/{version_number}", response_model=shapes.DagVersion)
    async def get_dag_version(dag_id: str, version_number: Annotated[int, Path(ge=0, le=MAX_INT)]) -> Response:
        """One version of a DAG."""
        return answer(render.version(await services.read(services.reader.version, dag_id, version_number)))

    @router.get("/importErrors", response_model=shapes.ImportErrorCollection)
    async def get_import_errors(query: Annotated[ImportErrorQuery, Query()]) -> Response:
        """What is wrong with DAG files now (R2.2). `bundle_name` is the tenant."""
        order_of(query.order_by, _ERROR_ORDER, (), "file")  # one order fits all; an unknown one is refused
        page = await services.read(
            services.reader.dag_errors,
            tenant_id=query.bundle_name,
            file=query.filename,
            pattern=query.filename_pattern,
            **query.page,
        )
        return answer({"import_errors": [render.import_error(r) for r in page.rows], "total_entries": page.total})

    @router.get("/importErrors/{import_error_id}", response_model=shapes.ImportErrorEntry)
    async def get_import_error(import_error_id: Annotated[int, Path(ge=0, le=MAX_INT)]) -> Response:
        """One thing that is wrong with a DAG file."""
        return answer(render.import_error(await services.read(services.reader.dag_error, import_error_id)))

    return router
