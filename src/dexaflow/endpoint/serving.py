"""`dexaflow endpoint serve`: the endpoint as a process of its own, over TLS."""

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn

from dexaflow.admission.hook_shape import Hook
from dexaflow.base.errors import UsageError
from dexaflow.base.hosts import is_loopback
from dexaflow.endpoint.app import HOOK_SECONDS, Endpoint, usable_path
from dexaflow.endpoint.calling import HookCalls
from dexaflow.endpoint.files import Reloading, TokenFile, tls_context
from dexaflow.endpoint.heads import BoundedHeads
from dexaflow.observe.logs import get_logger

__all__ = ["serve"]

KEEP_ALIVE_SECONDS = 75  # longer than a control plane leaves a connection idle, so that it is the one to close
GRACE_SECONDS = 2  # for questions under way when the process is told to stop
CLOSE_SECONDS = 1  # after that, for connections to close

_log = get_logger("dexaflow.endpoint")


class _Server(uvicorn.Server):
    """Stops in order at a signal and then ends with 0, where uvicorn would die of the signal.

    Questions under way have `GRACE_SECONDS`, or until the second signal.
    """

    def __init__(self, config: uvicorn.Config, endpoint: Endpoint, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._endpoint = endpoint
        self._announce = announce
        self._loop: asyncio.AbstractEventLoop | None = None
        self.told_to_stop = threading.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._endpoint.end)
            return
        self.should_exit = True
        self.told_to_stop.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        grace = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._endpoint.end)
        try:
            await super().shutdown(sockets)
        finally:
            grace.cancel()


def _end_in_time(told_to_stop: threading.Event, ended: threading.Event) -> None:
    """End the process when it was told to stop and does not get there: a hook blocks its event loop, say."""
    told_to_stop.wait()
    seconds = GRACE_SECONDS + CLOSE_SECONDS + 1
    if ended.wait(seconds):
        return
    said = threading.Thread(target=_say_held_up, args=(seconds,), daemon=True)
    try:
        said.start()
        said.join(1.0)  # whoever holds the lock of standard error has no say in this
    except RuntimeError:
        pass  # no thread to be had
    os._exit(0)


def _say_held_up(seconds: float) -> None:
    _log.warning("stop_held_up", after_seconds=seconds)


def serve(
    hook: Hook,
    *,
    host: str,
    port: int,
    path: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
    hook_seconds: float = HOOK_SECONDS,
    announce: Callable[[str], None],
) -> None:
    """Serve `hook` until SIGTERM or SIGINT.

    Questions under way then have two seconds to be answered; the others get status 503. After two more the process is
    ended, whatever the hook does. Certificate, key and token are read again when their files change.

    Args:
        port: 0 takes any free one.
        hook_seconds: How long one call of the hook may take.
        announce: Called with the URL once questions are taken.

    Raises:
        UsageError: no TLS and not on loopback, a file cannot be used, or the address is taken.
    """
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together; give both")
    if tls_cert is None and not is_loopback(host):
        raise UsageError(
            f"without --tls-cert and --tls-key only loopback is served; {host} is not, give both or 127.0.0.1"
        )
    token = TokenFile(token_file) if token_file is not None else None
    try:
        endpoint = Endpoint(HookCalls(hook, timeout=hook_seconds), token, usable_path(path))
    except ValueError as error:
        raise UsageError(f"--path: {error}") from None
    for name in ("uvicorn", "uvicorn.error"):  # what there is to say of starts, stops and faults, we say ourselves
        logging.getLogger(name).setLevel(logging.CRITICAL)
    context = tls_context(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    with _listen(host, port) as listener:
        bound_port = listener.getsockname()[1]
        scheme = "http" if context is None else "https"
        name = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            endpoint,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            http=BoundedHeads,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS + CLOSE_SECONDS,
            server_header=False,
            date_header=True,
        )
        config.load()
        config.ssl = context  # ours, so that a new certificate can be loaded into it
        server = _Server(config, endpoint, lambda: announce(f"{scheme}://{name}:{bound_port}{path}"))
        ended = threading.Event()
        threading.Thread(
            target=_end_in_time, args=(server.told_to_stop, ended), name="dexaflow-endpoint-end", daemon=True
        ).start()
        try:
            asyncio.run(_run(server, listener, Reloading(context, tls_cert, tls_key, token)))
        finally:
            ended.set()


async def _run(server: _Server, listener: socket.socket, reloading: Reloading) -> None:
    watching = asyncio.ensure_future(reloading.watch())
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=256)
    except socket.gaierror as error:
        raise UsageError(f"--host {host} is no address: {error.strerror}; give one of this machine") from None
    except OSError as error:
        # Python puts the address into `strerror`, a second time.
        reason = os.strerror(error.errno) if error.errno is not None else "not possible"
        raise UsageError(f"cannot listen on {host} port {port}: {reason}; choose another --port") from None
    # For all that it accepts. asyncio sets it only where a socket names its protocol; without, the body of every answer
    # waits for the asker to acknowledge the head, which it does after 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
