"""DAG runs: list, trigger, cancel, clear."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictStr, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from dexaflow.api.airflow import render, shapes
from dexaflow.api.airflow.clearing import chosen, would_clear
from dexaflow.api.airflow.queries import RunQuery
from dexaflow.api.answers import answer
from dexaflow.api.asking import Moment, Never, NotChosen, among
from dexaflow.api.bodies import check_conf
from dexaflow.api.problems import Problem, problem_docs
from dexaflow.api.services import Services, asked_by
from dexaflow.base.errors import NotFound
from dexaflow.model.states import RUN_ENDED, RunState
from dexaflow.store.reading_rows import RunRow

__all__ = ["Note", "RunId", "run_of_dag", "run_routes"]

# Airflow's characters, so that a run id stands in a path, a file name and a shell word as it is. One of them at least
# is no dot and no tilde: `..` is a way out of a path, and `~` means all runs, so nobody could ask for that run.
_RUN_ID = "[.~]*[A-Za-z0-9_:+-][A-Za-z0-9_.~:+-]*"


def _run_id(value: str) -> str:
    if not value.strip(".~"):
        raise PydanticCustomError("run_id", "must hold more than dots and tildes")
    if not re.fullmatch(_RUN_ID, value):
        raise PydanticCustomError("run_id", "may hold ASCII letters, digits and _ . ~ : + - only")
    return value


RunId = Annotated[
    StrictStr,
    Field(min_length=1, max_length=250, json_schema_extra={"pattern": f"^{_RUN_ID}$"}),
    AfterValidator(_run_id),
]
Note = Annotated[StrictStr, Field(max_length=1000)]
_CHANGES = ("state", "note")


class TriggerBody(BaseModel):
    """A run to be made. `conf` is a JSON object of at most 64 KiB."""

    model_config = ConfigDict(extra="forbid")

    dag_run_id: RunId | None = None
    conf: dict[str, Any] | None = None
    logical_date: Moment | None = None
    note: Note | None = None
    data_interval_start: NotChosen = None
    data_interval_end: NotChosen = None
    run_after: NotChosen = None
    partition_key: Annotated[StrictStr | None, WithJsonSchema({"type": "null"})] = None


class RunPatch(BaseModel):
    """What may be changed about a run: `state` to `failed`, which cancels it, and the note."""

    model_config = ConfigDict(extra="forbid")

    state: Annotated[
        Literal["queued", "success", "failed"] | None,
        WithJsonSchema({"anyOf": [{"const": "failed"}, {"type": "null"}]}),
    ] = None
    note: Note | None = None


class RunClear(BaseModel):
    """Clear a run. With `dry_run`, Airflow's default, nothing is cleared: the answer says what would be."""

    model_config = ConfigDict(extra="forbid")

    dry_run: StrictBool | None = True
    only_failed: StrictBool | None = False
    only_new: Never = False
    run_on_latest_version: Never = None
    note: Note | None = None


async def run_of_dag(services: Services, dag_id: str, run_id: str) -> RunRow:
    """Return a run, which must be of that DAG unless the DAG is Airflow's wildcard `~`. Raises `NotFound`."""
    row = await services.read(services.reader.run, run_id)
    if dag_id not in ("~", row.dag_id):
        raise NotFound(f"DAG '{dag_id}' has no run '{run_id}'; `dexaflow runs list --dag {dag_id}` shows its runs")
    return row


def run_routes(services: Services) -> APIRouter:
    """Return the routes under /api/v2 about runs."""
    router = APIRouter(tags=["Airflow: runs"], responses=problem_docs(404))

    @router.get("/dags/{dag_id}/dagRuns", response_model=shapes.DagRunCollection)
    async def get_dag_runs(dag_id: str, query: Annotated[RunQuery, Query()]) -> Response:
        """List runs of a DAG; of all DAGs with `~`."""
        if dag_id != "~":
            await services.read(services.reader.dag, dag_id)
        page = await services.read(services.reader.runs, query.filter(dag_id), **query.page)
        return answer(
            {
                "dag_runs": [render.dag_run(row) for row in page.rows],
                "total_entries": page.total,
                "next_cursor": None,
                "previous_cursor": None,
                "total_entries_limit": None,
            }
        )

    @router.post("/dags/{dag_id}/dagRuns", response_model=shapes.DagRun, responses=problem_docs(409))
    async def trigger_dag_run(dag_id: str, body: TriggerBody, request: Request) -> Response:
        """Make a run of the DAG's latest version."""
        for field in ("data_interval_start", "data_interval_end", "run_after", "partition_key"):
            if getattr(body, field) is not None:
                raise Problem(
                    422, f"{field}: cannot be chosen; it follows from logical_date", [(f"body.{field}", "leave it out")]
                )
        run_id = await services.commands.trigger(
            dag_id,
            run_id=body.dag_run_id,
            conf=check_conf(body.conf or {}),
            logical_date=body.logical_date,
            by=asked_by(request),
            note=body.note or "",
        )
        return answer(render.dag_run(await services.read(services.reader.run, run_id)))

    @router.get("/dags/{dag_id}/dagRuns/{dag_run_id}", response_model=shapes.DagRun)
    async def get_dag_run(dag_id: str, dag_run_id: str) -> Response:
        """One run."""
        return answer(render.dag_run(await run_of_dag(services, dag_id, dag_run_id)))

    @router.patch("/dags/{dag_id}/dagRuns/{dag_run_id}", response_model=shapes.DagRun, responses=problem_docs(409))
    async def patch_dag_run(
        dag_id: str,
        dag_run_id: str,
        body: RunPatch,
        request: Request,
        update_mask: Annotated[list[Annotated[str, among(_CHANGES)]] | None, Query(max_length=5)] = None,
    ) -> Response:
        """Cancel a run (`state: failed`, R6.3), or set its note."""
        if unknown := [m for m in update_mask or () if m not in _CHANGES]:
            raise Problem(422, f"update_mask: {unknown[0][:100]!r} cannot be changed", [("update_mask", "unknown")])
        wanted = set(update_mask or _CHANGES)
        row = await run_of_dag(services, dag_id, dag_run_id)
        if "state" in wanted and body.state in ("queued", "success"):
            raise Problem(
                422,
                f"state: a run cannot be set to {body.state}; set it to failed to cancel it, or clear it to run again",
                [("body.state", "only failed")],
            )
        cancels = "state" in wanted and body.state == "failed"
        refused = cancels and RunState(row.state) in RUN_ENDED  # then nothing is changed
        if "note" in wanted and body.note is not None and not refused:
            await services.commands.set_note(dag_run_id, body.note)
        if cancels:
            await services.commands.cancel(dag_run_id, by=asked_by(request))
        return answer(render.dag_run(await services.read(services.reader.run, dag_run_id)))

    @router.post(
        "/dags/{dag_id}/dagRuns/{dag_run_id}/clear",
        response_model=shapes.ToClearCollection | shapes.DagRun,
        responses=problem_docs(409),
    )
    async def clear_dag_run(dag_id: str, dag_run_id: str, body: RunClear, request: Request) -> Response:
        """Give a run's tasks a new try with nothing carried over (R6.3). `dry_run` is true unless said otherwise."""
        row = await run_of_dag(services, dag_id, dag_run_id)
        refuse_other_version(body.run_on_latest_version)
        if body.only_new:
            raise Problem(422, "only_new: a run keeps the version it began with", [("body.only_new", "leave it out")])
        only_failed = bool(body.only_failed)
        if body.dry_run is None or body.dry_run:
            wanted = await chosen(services, row, None, only_failed=only_failed)
            return await would_clear(services, row.run_id, wanted)
        if body.note is not None:
            await services.commands.set_note(row.run_id, body.note)
        await services.commands.clear(
            row.run_id, task_ids=None, downstream=False, only_failed=only_failed, by=asked_by(request)
        )
        return answer(render.dag_run(await services.read(services.reader.run, dag_run_id)))

    return router


def refuse_other_version(run_on_latest_version: bool | None) -> None:
    """Raise `Problem` if a cleared run is to move to another version: it keeps the one it began with."""
    if run_on_latest_version:
        raise Problem(
            422,
            "run_on_latest_version: a run keeps the version it began with; trigger a new run",
            [("body.run_on_latest_version", "must be false")],
        )
