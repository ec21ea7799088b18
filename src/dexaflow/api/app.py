"""The HTTP API, put together.

- `/api/v2`: Airflow's REST API, as far as we have the same thing (`airflow/`).
- `/dexaflow/v1`: our own, for what Airflow has no words for (`own/`).
- `/agent/v1`: the agents' own routes, past all of this, with their own tokens.
- `/health`, `/health/live`, `/health/ready`, `/metrics`: open, for probes and Prometheus.

It reads the database itself, in a few threads, and asks `Commands` for everything else. It cannot import what
dispatches.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import dexaflow
from dexaflow.api import problems
from dexaflow.api.airflow.dags import dag_routes
from dexaflow.api.airflow.logs import log_routes
from dexaflow.api.airflow.monitor import monitor_routes
from dexaflow.api.airflow.pools import pool_routes
from dexaflow.api.airflow.runs import run_routes
from dexaflow.api.airflow.tasks import task_routes
from dexaflow.api.answers import answer
from dexaflow.api.asking import none_unknown_or_twice
from dexaflow.api.front import OPEN_PATHS, AgentDoor, Front
from dexaflow.api.own.dags import dag_routes as own_dag_routes
from dexaflow.api.own.events import event_routes
from dexaflow.api.own.holds import hold_routes
from dexaflow.api.own.runs import run_routes as own_run_routes
from dexaflow.api.ports import Commands, Health, LogReader, SleepingWatch, Watch
from dexaflow.api.services import Services
from dexaflow.observe.metrics import CONTENT_TYPE
from dexaflow.store.reading import Reader

__all__ = ["App", "create_app"]

_DESCRIPTION = """Two APIs at one address.

- `/api/v2`: Airflow's REST API, as far as Dexaflow has the same thing, in Airflow's states.
- `/dexaflow/v1`: Dexaflow's own, for the rest.
- `/health`, `/health/live`, `/health/ready`, `/metrics`: for probes and Prometheus, without a token.

Errors are RFC 9457 problems. Lists take `limit` and `offset`. Times are ISO 8601 in UTC.
"""
_REQUIREMENT = re.compile(r" \(R\d+\.\d+\)|, R\d+\.\d+")  # what a docstring keeps; no reader out there has those pages


class App(FastAPI):
    """The API behind its `Front`; an ASGI application."""

    def __init__(self, services: Services, agent_routes: Sequence[Route], api_token: Callable[[str], bool]) -> None:
        super().__init__(
            title="Dexaflow",
            version=dexaflow.__version__,
            description=_DESCRIPTION,
            docs_url=None,  # they load scripts from elsewhere
            redoc_url=None,
            redirect_slashes=False,
            generate_unique_id_function=lambda route: route.name,  # what generated clients call their functions
        )
        self.services = services
        self._front = Front(super().__call__, AgentDoor(agent_routes), api_token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._front(scope, receive, send)

    def stop_streams(self) -> None:
        """End the streams of watched runs at their next look: call it when the server begins to stop."""
        self.services.stopping = True

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, with what holds for every operation added to each."""
        if self.openapi_schema is None:
            self.openapi_schema = _completed(super().openapi())
        return self.openapi_schema

    def methods_at(self, path: str) -> str:
        """Return all methods that an address takes, as the header `Allow` has them; "" where there is none."""
        found = {
            method.upper()
            for template, operations in self.openapi()["paths"].items()
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path, re.DOTALL)
            for method in operations
        }
        return ", ".join(sorted(found))


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = dict(problems.PROBLEM_SCHEMA)
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"bearer": []}]
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path in OPEN_PATHS:
                operation["security"] = []
            statuses = [400, 500] if path in OPEN_PATHS else [400, 401, 408, 413, 415, 422, 500, 503]
            for status, said in problems.problem_docs(*statuses).items():
                said = {**said, "description": said["description"]}
                operation["responses"][str(status)] = operation["responses"].get(str(status), said)
                if status == 422:
                    operation["responses"]["422"] = said
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["AnyValue"] = _ANY_VALUE
    for operations in document["paths"].values():
        for operation in operations.values():
            _without_nul([operation.get("parameters"), operation.get("requestBody")], schemas, set())
    _without_requirements(document)
    return document


# What `front` and `bodies` refuse of any address and any body, in the document's words.
_NO_NUL = "^[^\\u0000]*$"
_ANY_OBJECT = {"propertyNames": {"pattern": _NO_NUL}, "additionalProperties": {"$ref": "#/components/schemas/AnyValue"}}
_ANY_VALUE = {
    "title": "AnyValue",
    "description": "JSON, without NUL characters.",
    "anyOf": [
        {"type": "string", "pattern": _NO_NUL},
        {"type": ["number", "boolean", "null"]},
        {"type": "array", "items": {"$ref": "#/components/schemas/AnyValue"}},
        {"type": "object", **_ANY_OBJECT},
    ],
}


def _without_nul(node: Any, schemas: dict[str, Any], seen: set[str]) -> None:  # Any: JSON
    """Say in all that a request may hold, as far as it follows from `node`, that no text has a NUL."""
    if isinstance(node, list):
        for value in node:
            _without_nul(value, schemas, seen)
    elif isinstance(node, dict):
        if node.get("type") == "string" and not node.keys() & {"pattern", "enum", "const", "format"}:
            node["pattern"] = _NO_NUL
        if node.get("additionalProperties") is True:
            node |= _ANY_OBJECT
            return
        name = str(node.get("$ref", "")).rpartition("/")[2]
        if name and name not in seen:
            seen.add(name)
            _without_nul(schemas[name], schemas, seen)
        for value in node.values():
            _without_nul(value, schemas, seen)


def _without_requirements(node: Any) -> None:  # Any: JSON
    if isinstance(node, dict):
        if isinstance(said := node.get("description"), str):
            node["description"] = _REQUIREMENT.sub("", said)
        for value in node.values():
            _without_requirements(value)
    elif isinstance(node, list):
        for value in node:
            _without_requirements(value)


def create_app(
    *,
    reader: Reader,
    commands: Commands,
    api_token: Callable[[str], bool],
    agent_routes: Sequence[Route],
    metrics: Callable[[], bytes],
    health: Callable[[], Health],
    logs: LogReader,
    watch: Watch | None = None,
) -> App:
    """Return the API as an ASGI application.

    Args:
        reader: Reads the database; called from up to `MAX_READERS` threads.
        commands: Does what people ask for.
        api_token: Whether a bearer token is the API's, in constant time: `front.token_check(token)`.
        agent_routes: The agents' routes, each with its whole path under `/agent/`.
        metrics: The Prometheus text; called in a thread, for it may read the database.
        health: How the control plane is; called on the event loop, so it answers from memory.
        logs: Where task logs are.
        watch: Tells when a run may have changed; looks again every 300 ms when None.
    """
    services = Services(
        reader=reader, commands=commands, logs=logs, health=health, metrics=metrics, watch=watch or SleepingWatch()
    )
    app = App(services, agent_routes, api_token)
    problems.install(app)
    airflow = APIRouter(prefix="/api/v2", dependencies=[Depends(none_unknown_or_twice)])
    for routes in (dag_routes, run_routes, task_routes, log_routes, pool_routes, monitor_routes):
        airflow.include_router(routes(services))
    own = APIRouter(prefix="/dexaflow/v1", dependencies=[Depends(none_unknown_or_twice)])
    for routes in (own_dag_routes, own_run_routes, event_routes, hold_routes):
        own.include_router(routes(services))
    app.include_router(airflow)
    app.include_router(own)
    app.include_router(_open_routes(services))
    return app


def _open_routes(services: Services) -> APIRouter:
    router = APIRouter(tags=["Probes"])

    def said(health: Health, well: bool) -> Response:
        body = {
            "live": health.live,
            "ready": health.ready,
            "database": health.database,
            "scheduler": health.scheduler,
            "why": health.why,
        }
        return answer(body, 200 if well else 503)

    unwell: dict[int | str, dict[str, Any]] = {
        503: {"description": "Not well; `why` says why", "content": {"application/json": {"schema": {}}}}
    }

    @router.get("/health", responses=unwell)
    async def health(request: Request) -> Response:
        """How the control plane is: 200 when it is live and ready, else 503."""
        found = services.health()
        return said(found, found.live and found.ready)

    @router.get("/health/live", responses=unwell)
    async def live(request: Request) -> Response:
        """Whether the process does its work; if not, restart it."""
        found = services.health()
        return said(found, found.live)

    @router.get("/health/ready", responses=unwell)
    async def ready(request: Request) -> Response:
        """Whether it can take requests."""
        found = services.health()
        return said(found, found.ready)

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def metrics(request: Request) -> Response:
        """Prometheus metrics. Open, as is usual; no tenant, DAG or run is in them (R9.1)."""
        return Response(await services.read(services.metrics), media_type=CONTENT_TYPE)

    return router
