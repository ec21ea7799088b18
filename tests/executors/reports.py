"""The server's side for tests of agents: the real routes over real HTTP, above a memory instead of a store."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dexaflow.api.agent_routes import Beat, Finish, Gone, Started, agent_routes
from dexaflow.tokens.mint import Minter
from dexaflow.tokens.token import Claims
from dexaflow.tokens.verify import Verifier

__all__ = ["Ledger", "Served", "bash", "python", "serve"]

Fault = Callable[[str], Awaitable[Response | None]]


def bash(command: str, **more: Any) -> dict[str, Any]:
    """Return work that runs `command`."""
    return {**_work(), "operator": "bash", "bash_command": command, **more}


def python(root: Path, source: str, **more: Any) -> dict[str, Any]:
    """Return work that runs task `t` of DAG `d` in the file with `source`."""
    (root / "dag.py").write_text(source)
    return {**_work(), "operator": "python", "root": str(root), "file": "dag.py", **more}


def _work() -> dict[str, Any]:
    ids = {"tenant_id": "acme", "dag_id": "d", "run_id": "run-1", "task_id": "t", "try_number": 1}
    moments = {
        "logical_date": "2026-11-29T12:00:00+00:00",
        "data_interval_start": None,
        "data_interval_end": None,
    }
    return {
        **ids,
        "env": {},
        "env_from": {},
        "execution_timeout": None,
        "context": {**ids, **moments, "conf": {"day": "monday"}},
        "root": "",
        "file": "",
        "inputs": {},
    }


@dataclass
class Ledger:
    """Keeps what agents report, as a store would: by launch, idempotent, and only for launches that count."""

    minter: Minter
    heartbeat_seconds: float = 30.0
    work: dict[str, dict[str, Any]] = field(default_factory=dict)
    accepted: dict[str, tuple[int, str]] = field(default_factory=dict)
    logs: dict[str, bytearray] = field(default_factory=dict)
    finishes: dict[str, Finish] = field(default_factory=dict)
    beats: Counter[str] = field(default_factory=Counter)
    stops: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def _counts(self, claims: Claims) -> bool:
        return claims.launch_id in self.work and claims.launch_id not in self.gone

    async def _note(self, what: str) -> None:
        self.said.append(what)
        async with self._changed:
            self._changed.notify_all()

    async def until(self, true: Callable[[], object], seconds: float = 30.0) -> None:
        """Return once `true()` holds; it is looked at after each report."""
        async with asyncio.timeout(seconds), self._changed:
            await self._changed.wait_for(lambda: bool(true()))

    async def finish(self, launch_id: str, seconds: float = 30.0) -> Finish:
        """Return how a launch ended, once it has."""
        await self.until(lambda: launch_id in self.finishes, seconds)
        return self.finishes[launch_id]

    def log_text(self, launch_id: str) -> str:
        """Return the whole log of a launch."""
        return self.logs.get(launch_id, bytearray()).decode()

    async def started(self, claims: Claims, launch_id: str, pid: int, host: str) -> Started | Gone:
        await self._note("started")
        if not self._counts(claims) or self.accepted.setdefault(launch_id, (pid, host)) != (pid, host):
            return Gone()
        await self._note("accepted")
        return Started(self.work[launch_id], self.heartbeat_seconds)

    async def heartbeat(self, claims: Claims) -> Beat | Gone:
        self.beats[claims.launch_id] += 1
        await self._note("heartbeat")
        if not self._counts(claims):
            return Gone()
        return Beat(self.minter.renew(claims).reveal(), self.stops.get(claims.launch_id))

    async def log(self, claims: Claims, offset: int, data: bytes) -> int | Gone:
        if not self._counts(claims):
            return Gone()
        kept = self.logs.setdefault(claims.launch_id, bytearray())
        if offset <= len(kept):
            kept += data[len(kept) - offset :]
        await self._note("log")
        return len(kept)

    async def finished(self, claims: Claims, finish: Finish) -> Gone | None:
        if not self._counts(claims):
            await self._note("finished")
            return Gone()
        await self.log(claims, finish.log_offset, finish.log_tail)
        self.finishes.setdefault(claims.launch_id, finish)
        await self._note("finished")
        return None


@dataclass
class Served:
    """A server that listens. `fault`, when set, answers or delays requests by their path instead."""

    url: str
    fault: Fault | None = None
    tokens: list[str] = field(default_factory=list)  # of each request


class _Faulty:
    def __init__(self, app: ASGIApp, served: Served) -> None:
        self._app = app
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._served.tokens += [v.decode() for k, v in scope["headers"] if k == b"authorization"]
        if scope["type"] == "http" and self._served.fault is not None:
            response = await self._served.fault(scope["path"])
            if response is not None:
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


@asynccontextmanager
async def serve(ledger: Ledger, verifier: Verifier, server_file: Path) -> AsyncIterator[Served]:
    """Serve the agents' routes on a free port of loopback, and write where to the server file."""
    listener = socket.create_server(("127.0.0.1", 0))
    served = Served(f"http://127.0.0.1:{listener.getsockname()[1]}")
    app = _Faulty(Starlette(routes=agent_routes(ledger, verifier)), served)
    config = uvicorn.Config(app, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=1)
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    _write(server_file, served.url)
    try:
        yield served
    finally:
        server.should_exit = server.force_exit = True
        await serving
        listener.close()


def _write(server_file: Path, url: str) -> None:
    server_file.write_text(json.dumps({"url": url}))


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Leave the signals of the test process alone."""
