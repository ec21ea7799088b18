"""Task instances: list, tries, results, clearing."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema
from starlette.responses import Response

from dexaflow.api.airflow import render, shapes
from dexaflow.api.airflow.clearing import chosen, cleared_instances
from dexaflow.api.airflow.queries import AttemptQuery
from dexaflow.api.airflow.runs import Note, refuse_other_version, run_of_dag
from dexaflow.api.answers import answer, kept_json
from dexaflow.api.asking import MAX_INT, WHOLE, Never, NotChosen
from dexaflow.api.problems import Problem, problem_docs
from dexaflow.api.services import Services, asked_by
from dexaflow.base.errors import Conflict, NotFound
from dexaflow.model.states import State

__all__ = ["task_routes"]

_INSTANCE = "/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}"
TryNumber = Annotated[int, Path(ge=0, le=MAX_INT)]
MapIndex = Annotated[int, Query(ge=-1, le=MAX_INT, description="No task of ours is mapped: only -1 finds one.")]


Unmapped = Annotated[StrictInt, WHOLE, WithJsonSchema({"const": -1})]


class ClearBody(BaseModel):
    """Clear tasks of a run. With `dry_run`, Airflow's default, nothing is cleared: the answer says what would be."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"required": ["dag_run_id"]})

    dag_run_id: Annotated[StrictStr | None, WithJsonSchema({"type": "string"})] = None
    task_ids: Annotated[list[StrictStr | tuple[StrictStr, Unmapped]], Field(max_length=1000)] | None = None
    dry_run: StrictBool | None = True
    only_failed: StrictBool | None = True
    only_running: StrictBool | None = False
    include_downstream: StrictBool | None = False
    include_upstream: StrictBool | None = False
    include_future: Never = False
    include_past: Never = False
    reset_dag_runs: StrictBool | None = True
    prevent_running_task: StrictBool | None = False
    run_on_latest_version: Never = None
    start_date: NotChosen = None
    end_date: NotChosen = None
    note: Note | None = None


def _task_ids(asked: list[str | tuple[str, int]] | None) -> list[str] | None:
    if asked is None:
        return None
    found: list[str] = []
    for one in asked:
        task_id, map_index = one if isinstance(one, tuple) else (one, -1)
        if map_index != -1:
            raise Problem(422, "task_ids: no task of ours is mapped", [("body.task_ids", "map index must be -1")])
        found.append(task_id)
    return found


def _unmapped(map_index: int, task_id: str) -> None:
    if map_index != -1:
        raise NotFound(f"task '{task_id}' is not mapped; leave map_index out")


def task_routes(services: Services) -> APIRouter:
    """Return the routes under /api/v2 about task instances."""
    router = APIRouter(tags=["Airflow: task instances"], responses=problem_docs(404))

    @router.get("/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances", response_model=shapes.TaskInstanceCollection)
    async def get_task_instances(dag_id: str, dag_run_id: str, query: Annotated[AttemptQuery, Query()]) -> Response:
        """List task instances of a run; `~` stands for all DAGs, or all runs. States are Airflow's, in filters too."""
        if dag_run_id != "~":
            await run_of_dag(services, dag_id, dag_run_id)
        elif dag_id != "~":
            await services.read(services.reader.dag, dag_id)
        page = await services.read(services.reader.attempts, query.filter(dag_id, dag_run_id), **query.page)
        return answer(
            {
                "task_instances": [render.task_instance(row) for row in page.rows],
                "total_entries": page.total,
                "next_cursor": None,
                "previous_cursor": None,
                "total_entries_limit": None,
            }
        )

    @router.get(_INSTANCE, response_model=shapes.TaskInstance)
    async def get_task_instance(dag_id: str, dag_run_id: str, task_id: str) -> Response:
        """One task instance; `note` says why it is where it is."""
        await run_of_dag(services, dag_id, dag_run_id)
        return answer(render.task_instance(await services.read(services.reader.attempt, dag_run_id, task_id)))

    @router.get(_INSTANCE + "/tries", response_model=shapes.TaskInstanceTryCollection)
    async def get_task_instance_tries(dag_id: str, dag_run_id: str, task_id: str, map_index: MapIndex = -1) -> Response:
        """All tries of a task instance, the first one first."""
        await run_of_dag(services, dag_id, dag_run_id)
        _unmapped(map_index, task_id)
        rows = await services.read(services.reader.tries, dag_run_id, task_id)
        return answer({"task_instances": [render.task_instance_try(r) for r in rows], "total_entries": len(rows)})

    @router.get(_INSTANCE + "/tries/{task_try_number}", response_model=shapes.TaskInstanceTry)
    async def get_task_instance_try_details(
        dag_id: str, dag_run_id: str, task_id: str, task_try_number: TryNumber, map_index: MapIndex = -1
    ) -> Response:
        """One try of a task instance."""
        await run_of_dag(services, dag_id, dag_run_id)
        _unmapped(map_index, task_id)
        row = await services.read(services.reader.attempt, dag_run_id, task_id, task_try_number)
        return answer(render.task_instance_try(row))

    @router.get(_INSTANCE + "/xcomEntries", response_model=shapes.XComCollection)
    async def get_xcom_entries(
        dag_id: str,
        dag_run_id: str,
        task_id: str,
        limit: Annotated[int, Query(ge=0)] = 50,
        offset: Annotated[int, Query(ge=0, le=MAX_INT)] = 0,
    ) -> Response:
        """What a task returned, without the value."""
        await run_of_dag(services, dag_id, dag_run_id)
        await services.read(services.reader.attempt, dag_run_id, task_id)
        row = await services.read(services.reader.result, dag_run_id, task_id)
        entries = [] if row is None else [render.xcom(row)]
        return answer({"xcom_entries": entries[offset:][:limit], "total_entries": len(entries)})

    @router.get(_INSTANCE + "/xcomEntries/{xcom_key}", response_model=shapes.XComValue)
    async def get_xcom_entry(
        dag_id: str,
        dag_run_id: str,
        task_id: str,
        xcom_key: str,
        map_index: MapIndex = -1,
        deserialize: bool = False,
        stringify: bool = False,
    ) -> Response:
        """What a task returned: `return_value` is the one key there is. `deserialize` changes nothing: it is JSON."""
        await run_of_dag(services, dag_id, dag_run_id)
        _unmapped(map_index, task_id)
        await services.read(services.reader.attempt, dag_run_id, task_id)
        row = await services.read(services.reader.result, dag_run_id, task_id)
        if row is None or xcom_key != render.RESULT_KEY:
            raise NotFound(f"task '{task_id}' of run '{dag_run_id}' left no '{xcom_key}'")
        value: Any = kept_json(row.value, None)
        return answer({**render.xcom(row), "value": msgspec.json.encode(value).decode() if stringify else value})

    @router.post(
        "/dags/{dag_id}/clearTaskInstances",
        response_model=shapes.TaskInstanceCollection,
        responses=problem_docs(409),
    )
    async def post_clear_task_instances(dag_id: str, body: ClearBody, request: Request) -> Response:
        """Give tasks of one run a new try with nothing carried over (R6.3). `dry_run` is true unless said otherwise."""
        for field in ("include_future", "include_past", "start_date", "end_date"):
            if getattr(body, field):
                raise Problem(422, f"{field}: name one run by dag_run_id", [(f"body.{field}", "leave it out")])
        if body.dag_run_id is None:
            raise Problem(422, "dag_run_id: name the run whose tasks to clear", [("body.dag_run_id", "is needed")])
        refuse_other_version(body.run_on_latest_version)
        run = await run_of_dag(services, dag_id, body.dag_run_id)
        only_failed = body.only_failed is None or body.only_failed
        wanted = await chosen(
            services,
            run,
            _task_ids(body.task_ids),
            downstream=bool(body.include_downstream),
            upstream=bool(body.include_upstream),
            only_failed=only_failed,
            only_running=bool(body.only_running),
        )
        if body.prevent_running_task:
            states = await services.read(services.reader.states, run.run_id)
            if running := [t for t in wanted if states.get(t) == State.RUNNING]:
                raise Conflict(f"task '{running[0]}' is running; wait for it, or clear it without prevent_running_task")
        if (body.dry_run is None or body.dry_run) or not wanted:
            return await cleared_instances(services, run.run_id, wanted)
        if body.note is not None:
            await services.commands.set_note(run.run_id, body.note)
        cleared = await services.commands.clear(
            run.run_id, task_ids=wanted, downstream=False, only_failed=only_failed, by=asked_by(request)
        )
        return await cleared_instances(services, run.run_id, cleared)

    return router
