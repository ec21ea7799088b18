"""The API over a real database: in process for most tests, behind uvicorn on loopback for real clients."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Union

import httpx
import pytest
import uvicorn
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dexaflow.api.airflow import shapes as airflow_shapes
from dexaflow.api.app import App, create_app
from dexaflow.api.front import token_check
from dexaflow.api.own import shapes as own_shapes
from dexaflow.api.ports import Health
from tests.api.builders import Database, MemoryLogs, StoreCommands

TOKEN = "right-token"


class QuickWatch:
    """Looks again at once; counts how often."""

    looks = 0

    async def changed(self, run_id: str) -> None:
        self.looks += 1
        await asyncio.sleep(0.005)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(tmp_path)
    yield found
    found.close()


@pytest.fixture
def commands(database: Database) -> StoreCommands:
    return StoreCommands(database)


@pytest.fixture
def logs() -> MemoryLogs:
    return MemoryLogs()


@pytest.fixture
def health() -> dict[str, Any]:
    return {"live": True, "ready": True, "database": True, "scheduler": True}


async def _agent(request: Request) -> Response:
    if (await request.body()) == b"explode":
        raise RuntimeError("a marker that must not be shown")
    return JSONResponse({"authorization": request.headers.get("authorization")})


@pytest.fixture(scope="session")
def built() -> App:
    """The app, built once for all tests; what it works with is handed in anew for each."""
    nothing: Any = None
    return create_app(
        reader=nothing,
        commands=nothing,
        api_token=token_check(TOKEN),
        agent_routes=[Route("/agent/v1/report", _agent, methods=["POST"])],
        metrics=lambda: b"dexaflow_up 1\n",
        health=nothing,
        logs=nothing,
    )


@pytest.fixture
def app(built: App, database: Database, commands: StoreCommands, logs: MemoryLogs, health: dict[str, Any]) -> App:
    built.services.reader = database.reader
    built.services.commands = commands
    built.services.logs = logs
    built.services.health = lambda: Health(**{"scheduler_heartbeat": datetime.now(UTC), **health})
    built.services.watch = QuickWatch()
    built.services.stopping = False
    return built


class Operations:
    """The operations that OpenAPI publishes, and the type of each one's JSON answer."""

    def __init__(self, app: App) -> None:
        document = app.openapi()
        self.all: list[tuple[str, str]] = []  # (method, path template)
        self._types: list[tuple[str, re.Pattern[str], TypeAdapter[Any] | None]] = []
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                self.all.append((method.upper(), path))
                good = next(v for k, v in operation["responses"].items() if k.startswith("2"))
                schema = good.get("content", {}).get("application/json", {}).get("schema", {})
                pattern = re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path))
                self._types.append((method.upper(), pattern, _type_of(schema)))

    def type_of(self, method: str, path: str) -> TypeAdapter[Any] | None:
        """The first operation of that address, as the router finds it."""
        return next((t for m, p, t in self._types if m == method and p.fullmatch(path)), None)


def _type_of(schema: dict[str, Any]) -> TypeAdapter[Any] | None:
    names = [s["$ref"].rpartition("/")[2] for s in schema.get("anyOf", [schema]) if "$ref" in s]
    types = [getattr(airflow_shapes, n, None) or getattr(own_shapes, n) for n in names]
    one_of: Any = Union[tuple(types)] if types else None  # noqa: UP007 - of a list
    return TypeAdapter(one_of) if types else None


@pytest.fixture(scope="session")
def operations(built: App) -> Operations:
    return Operations(built)


def held_to_its_word(operations: Operations) -> Any:
    """A hook for httpx: every successful JSON answer must be what OpenAPI says of its operation."""

    async def check(response: httpx.Response) -> None:
        await response.aread()
        kind = response.headers.get("content-type", "")
        if response.status_code >= 400:
            assert kind in ("application/problem+json", "application/json")
            return
        found = operations.type_of(response.request.method, response.request.url.path)
        if found is not None and kind == "application/json":
            found.validate_json(response.content, strict=True)

    return check


@pytest.fixture
async def api(app: App, operations: Operations) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False),
        base_url="http://dexaflow",
        headers={"Authorization": f"Bearer {TOKEN}"},
        event_hooks={"response": [held_to_its_word(operations)]},
    ) as client:
        yield client


class Server(uvicorn.Server):
    """uvicorn in a thread, on a port of its choosing."""

    def install_signal_handlers(self) -> None:
        pass

    @property
    def url(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"


@pytest.fixture
def server(app: App) -> Iterator[Server]:
    found = Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", lifespan="on"))
    begun = threading.Event()
    startup = found.startup

    async def starting(sockets: Any = None) -> None:
        await startup(sockets)
        begun.set()

    found.startup = starting  # type: ignore[method-assign]  # to know when it listens
    thread = threading.Thread(target=found.run, daemon=True)
    thread.start()
    assert begun.wait(10)
    yield found
    app.stop_streams()
    found.should_exit = True
    thread.join(10)
    assert not thread.is_alive()
