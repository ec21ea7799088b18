"""The socket and the HTTP server on it."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from dexaflow.base.errors import DexaflowError

__all__ = ["HttpServer", "listen", "url_of"]


def listen(host: str, port: int) -> socket.socket:
    """Bind, before anything else starts: a port in use is a clear line and not a half-started server.

    Raises:
        DexaflowError: it cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, UnicodeError) as error:
        listener.close()
        cause = error.strerror if isinstance(error, OSError) else "this is no host name"
        raise DexaflowError(
            f"cannot listen on {host} port {port}: {cause}; choose another with --host or --port"
        ) from error
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL by which this machine reaches a listener."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers of its own: stopping has an order, and it is ours."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app, log_config=None, access_log=False, lifespan="off", http="httptools", loop="none", ws="none",
                timeout_graceful_shutdown=5, server_header=False, backlog=1024,
            )
        )  # fmt: skip
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets=sockets)
        self.up.set()
