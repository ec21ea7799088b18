"""An endpoint served in this process over a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
import uvicorn

from dexaflow.endpoint.app import App
from dexaflow.endpoint.heads import BoundedHeads


@contextlib.asynccontextmanager
async def serving(app: App, http: type[BoundedHeads] = BoundedHeads) -> AsyncIterator[str]:
    """Serve `app` on a free port of loopback; give its base URL."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http=http, log_config=None, lifespan="on", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    config.load()
    socket = config.bind_socket()
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment]
    task = asyncio.ensure_future(server.serve(sockets=[socket]))
    while not server.started:
        await asyncio.sleep(0.005)
        assert not task.done()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@pytest.fixture
def serve() -> Callable[[App], contextlib.AbstractAsyncContextManager[str]]:
    """Serve an application for the length of a block; gives its base URL."""
    return serving
