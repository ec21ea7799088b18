"""Pools."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr
from starlette.responses import Response

from dexaflow.api.airflow import render, shapes
from dexaflow.api.answers import answer
from dexaflow.api.asking import MAX_INT, SORTING, WHOLE, AirflowPage, Never, Pattern, among, order_of, sortable
from dexaflow.api.problems import Problem, problem_docs
from dexaflow.api.services import Services
from dexaflow.base.errors import Conflict, NotFound

__all__ = ["POOL_NAME", "pool_routes"]

# Not dots alone: `..` is a way out of a path, so nobody could ask for that pool.
POOL_NAME = r"^\.*[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]*$"
PoolName = Annotated[StrictStr, Field(min_length=1, max_length=250, pattern=POOL_NAME)]
# -1, Airflow's word for no bound, is told that there is none.
Slots = Annotated[StrictInt, Field(ge=-1, le=MAX_INT, json_schema_extra={"minimum": 0}), WHOLE]
Description = Annotated[StrictStr, Field(max_length=1000)]


_ORDER = {"id": "pool", "name": "pool", "pool": "pool"}
_CHANGES = ("slots", "description", "include_deferred", "pool", "name")


class PoolQuery(AirflowPage):
    """Which pools."""

    order_by: Annotated[list[Annotated[str, sortable(_ORDER)]], SORTING]
    pool_name_pattern: Pattern | None = None
    pool_name_prefix_pattern: Pattern | None = None


class PoolBody(BaseModel):
    """A new pool."""

    model_config = ConfigDict(extra="forbid")

    name: PoolName
    slots: Slots
    description: Description | None = None
    include_deferred: Never = False
    team_name: None = None


class PoolPatch(BaseModel):
    """What may be changed about a pool; what is absent stays."""

    model_config = ConfigDict(extra="forbid")

    pool: StrictStr | None = None
    slots: Slots | None = None
    description: Description | None = None
    include_deferred: Never = None
    team_name: None = None


def _bounded(slots: int) -> int:
    if slots < 0:
        raise Problem(422, "slots: a pool without a bound is not available; give 0 or more", [("slots", "below 0")])
    return slots


def _no_deferred(include_deferred: bool | None) -> None:
    if include_deferred:
        raise Problem(
            422,
            "include_deferred: held attempts give their slots back, so it cannot be true",
            [("include_deferred", "must be false")],
        )


def pool_routes(services: Services) -> APIRouter:
    """Return the routes under /api/v2 about pools."""
    router = APIRouter(tags=["Airflow: pools"])

    @router.get("/pools", response_model=shapes.PoolCollection)
    async def get_pools(query: Annotated[PoolQuery, Query()]) -> Response:
        """List pools and what their slots are doing."""
        order = order_of(query.order_by, _ORDER, (("pool", False),), "pool")
        page = await services.read(
            services.reader.pools,
            **query.page,
            pattern=query.pool_name_pattern,
            prefix=query.pool_name_prefix_pattern,
            descending=order[0][1],
        )
        return answer({"pools": [render.pool(r) for r in page.rows], "total_entries": page.total})

    @router.post("/pools", response_model=shapes.Pool, status_code=201, responses=problem_docs(409))
    async def post_pool(body: PoolBody) -> Response:
        """Make a pool."""
        slots = _bounded(body.slots)
        _no_deferred(body.include_deferred)
        try:
            await services.read(services.reader.pool, body.name)
        except NotFound:
            await services.commands.set_pool(body.name, slots=slots, description=body.description or "")
            return answer(render.pool(await services.read(services.reader.pool, body.name)), 201)
        raise Conflict(f"a pool '{body.name}' exists already; change it with PATCH or `dexaflow pools set`")

    @router.get("/pools/{pool_name}", response_model=shapes.Pool, responses=problem_docs(404))
    async def get_pool(pool_name: str) -> Response:
        """One pool and what its slots are doing."""
        return answer(render.pool(await services.read(services.reader.pool, pool_name)))

    @router.patch("/pools/{pool_name}", response_model=shapes.Pool, responses=problem_docs(404, 409))
    async def patch_pool(
        pool_name: str,
        body: PoolPatch,
        update_mask: Annotated[list[Annotated[str, among(_CHANGES)]] | None, Query(max_length=10)] = None,
    ) -> Response:
        """Change a pool's slots or description."""
        if unknown := [m for m in update_mask or () if m not in _CHANGES]:
            raise Problem(422, f"update_mask: {unknown[0][:100]!r} cannot be changed", [("update_mask", "unknown")])
        row = await services.read(services.reader.pool, pool_name)
        if body.pool is not None and body.pool != pool_name:
            raise Conflict("pool: a pool keeps its name; make another one")
        _no_deferred(body.include_deferred)
        wanted = set(update_mask or _CHANGES)
        slots = row.slots if body.slots is None or "slots" not in wanted else _bounded(body.slots)
        description = body.description if "description" in wanted else None
        await services.commands.set_pool(pool_name, slots=slots, description=description)
        return answer(render.pool(await services.read(services.reader.pool, pool_name)))

    @router.delete("/pools/{pool_name}", status_code=204, response_class=Response, responses=problem_docs(404, 409))
    async def delete_pool(pool_name: str) -> Response:
        """Remove a pool that is not in use."""
        await services.commands.delete_pool(pool_name)
        return Response(status_code=204)

    return router
