"""Holds, hooks and pools: what a platform engineer looks after."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictInt, StrictStr, model_validator
from starlette.responses import Response

from dexaflow.api.airflow import render as airflow_render
from dexaflow.api.airflow import shapes as airflow_shapes
from dexaflow.api.airflow.pools import POOL_NAME, Description
from dexaflow.api.answers import answer
from dexaflow.api.asking import MAX_INT, WHOLE, Name
from dexaflow.api.own import render, shapes
from dexaflow.api.own.paging import Page
from dexaflow.api.problems import problem_docs
from dexaflow.api.services import Services
from dexaflow.base.errors import Conflict, not_found
from dexaflow.model.states import State
from dexaflow.store.reading_filters import AttemptFilter

__all__ = ["hold_routes"]


class HoldQuery(Page):
    """Which holds; the oldest first."""

    hook: Name | None = None
    tenant_id: Name | None = None
    dag_id: Name | None = None
    run_id: Name | None = None


def _one_of(*choices: str) -> list[JsonValue]:
    """Return what the document says: the fields of one choice are text, all others null or absent."""
    fields = " ".join(choices).split()
    return [
        {
            "required": list(choice.split()),
            "properties": {field: {"type": "string" if field in choice.split() else "null"} for field in fields},
        }
        for choice in choices
    ]


class AskNow(BaseModel):
    """One held attempt, by `attempt_id` or by `run_id` and `task_id`; or all that one `hook` holds."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"oneOf": _one_of("attempt_id", "run_id task_id", "hook")}
    )

    attempt_id: StrictStr | None = None
    run_id: StrictStr | None = None
    task_id: StrictStr | None = None
    hook: StrictStr | None = None

    @model_validator(mode="after")
    def _one_of(self) -> "AskNow":
        given = (self.attempt_id is not None, self.run_id is not None, self.task_id is not None, self.hook is not None)
        if given not in (
            (True, False, False, False),
            (False, True, True, False),
            (False, False, False, True),
        ):
            raise ValueError("give attempt_id, or run_id and task_id, or hook")
        return self


class PoolPut(BaseModel):
    """A pool as it shall be; a description that is absent stays."""

    model_config = ConfigDict(extra="forbid")

    slots: Annotated[StrictInt, Field(ge=0, le=MAX_INT), WHOLE]
    description: Description | None = None


def hold_routes(services: Services) -> APIRouter:
    """Return our own routes about holds, hooks and pools."""
    router = APIRouter(tags=["Admission"])

    async def hook_names() -> list[str]:
        return [h.name for h in await services.commands.hooks_status()]

    @router.get("/holds", response_model=shapes.HoldPage, responses=problem_docs(404))
    async def list_holds(query: Annotated[HoldQuery, Query()]) -> Response:
        """List held attempts: who holds them, why, since when, and when each is asked again; the oldest first."""
        asked = AttemptFilter(
            states=(State.HELD,),
            hook=query.hook,
            tenant_id=query.tenant_id,
            dag_ids=None if query.dag_id is None else (query.dag_id,),
            run_ids=None if query.run_id is None else (query.run_id,),
            order=(("held_at", False), ("attempt_id", False)),
        )
        page = await services.read(services.reader.attempts, asked, **query.page)
        if not page.total:  # nothing is held: or is there no such thing?
            if query.dag_id is not None:
                await services.read(services.reader.dag, query.dag_id)
            if query.run_id is not None:
                await services.read(services.reader.run, query.run_id)
            if query.tenant_id is not None:
                await services.read(services.reader.check_tenant, query.tenant_id)
            if query.hook is not None and query.hook not in await hook_names():
                raise not_found("hook", query.hook)
        return answer({"holds": [render.hold(r) for r in page.rows], "total_entries": page.total})

    @router.post("/holds/ask-now", response_model=shapes.AskedNow, responses=problem_docs(404, 409))
    async def ask_now(body: AskNow) -> Response:
        """Have one held attempt, or all of a hook, asked now instead of when it is due (R6.3)."""
        if body.hook is not None:
            count = await services.commands.ask_now(attempt_id=None, hook=body.hook)
            if not count and body.hook not in await hook_names():
                raise not_found("hook", body.hook)
            return answer({"count": count})
        attempt_id = body.attempt_id
        if body.run_id is not None and body.task_id is not None:
            attempt_id = (await services.read(services.reader.attempt, body.run_id, body.task_id)).attempt_id
        if not await services.commands.ask_now(attempt_id=attempt_id, hook=None):
            raise Conflict("this attempt is not held; `dexaflow holds list` shows those that are")
        return answer({"count": 1})

    @router.get("/hooks", response_model=shapes.Hooks)
    async def list_hooks() -> Response:
        """Each hook with its breaker, failures in a row, next probe and last cause."""
        return answer({"hooks": [render.hook(h) for h in await services.commands.hooks_status()]})

    @router.put("/pools/{pool_name}", response_model=airflow_shapes.Pool)
    async def set_pool(
        pool_name: Annotated[str, Path(min_length=1, max_length=250, pattern=POOL_NAME)], body: PoolPut
    ) -> Response:
        """Make a pool, or change the one of that name."""
        await services.commands.set_pool(pool_name, slots=body.slots, description=body.description)
        return answer(airflow_render.pool(await services.read(services.reader.pool, pool_name)))

    return router
