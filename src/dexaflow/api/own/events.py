"""Watching a run: its tasks' changes as server-sent events, until it ends."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from dexaflow.api.answers import encode
from dexaflow.api.own import render
from dexaflow.api.problems import Problem, problem_docs
from dexaflow.api.services import MAX_STREAMS, Services
from dexaflow.base.errors import DexaflowError, NotFound
from dexaflow.model.states import RUN_ENDED, RunState
from dexaflow.store.reading_rows import RunRow, WatchedTask

__all__ = ["event_routes", "run_events"]

KEEP_ALIVE_LOOKS = 50  # a comment after so many looks without news: proxies drop what is silent


def _event(name: str, data: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"


def _task(task: WatchedTask) -> dict[str, Any]:
    return {name: getattr(task, name) for name in WatchedTask.__dataclass_fields__}


async def run_events(services: Services, first: tuple[RunRow, list[WatchedTask]]) -> AsyncIterator[bytes]:
    """Yield a run and all its tasks, then whatever changes about them, then `end` with the run's last state.

    A stream that ends without `end` was cut off by the server's stop: come again.
    """
    run, tasks = first
    seen_run: RunRow | None = None
    seen: dict[str, WatchedTask] = {}
    silent = 0
    while True:
        news = False
        if run != seen_run:
            seen_run, news = run, True
            yield _event("run", render.run(run, {}))
        for task in tasks:
            if seen.get(task.task_id) != task:
                seen[task.task_id], news = task, True
                yield _event("task", _task(task))
        if RunState(run.state) in RUN_ENDED:
            yield _event("end", {"run_id": run.run_id, "state": run.state})
            return
        silent = 0 if news else silent + 1
        if silent >= KEEP_ALIVE_LOOKS:
            silent = 0
            yield b": still here\n\n"
        await services.watch.changed(run.run_id)
        if services.stopping:
            return
        try:
            run, found = await services.read(services.reader.watched, run.run_id)
        except NotFound:  # retention took it
            yield _event("end", {"run_id": run.run_id, "state": "removed"})
            return
        except DexaflowError as error:
            yield _event("error", {"detail": str(error)})
            return
        tasks = list(found)


def event_routes(services: Services) -> APIRouter:
    """Return our own route for watching a run."""
    router = APIRouter(tags=["Runs"], responses=problem_docs(404))

    async def counted(first: tuple[RunRow, list[WatchedTask]]) -> AsyncIterator[bytes]:
        services.streams += 1
        try:
            async with aclosing(run_events(services, first)) as events:  # type: ignore[type-var]  # a generator
                async for event in events:
                    yield event
        finally:
            services.streams -= 1

    @router.get(
        "/runs/{run_id}/events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},  # OpenAPI 3.1 has no words for events
    )
    async def watch_run(run_id: str) -> Response:
        """The run, each task, then every change as it happens (server-sent events `run`, `task`), at last `end`."""
        if services.streams >= MAX_STREAMS:
            raise Problem(503, f"{MAX_STREAMS} runs are being watched already; try again later")
        run, tasks = await services.read(services.reader.watched, run_id)
        return StreamingResponse(
            counted((run, list(tasks))), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    return router
