"""`dexaflow endpoint serve`: the endpoint as a process of its own, over TLS."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import uvicorn

from dexaflow.admission.hook_shape import Hook
from dexaflow.base.errors import UsageError
from dexaflow.endpoint.app import HOOK_SECONDS, Endpoint, usable_path
from dexaflow.endpoint.calling import HookCalls
from dexaflow.endpoint.heads import BoundedHeads
from dexaflow.observe.logs import get_logger

__all__ = ["TokenFile", "serve"]

RELOAD_SECONDS = 2.0  # how often certificate and token are looked at
KEEP_ALIVE_SECONDS = 75  # longer than a control plane leaves a connection idle, so that it is the one to close
GRACE_SECONDS = 2  # for questions under way when the process is told to stop
CLOSE_SECONDS = 1  # after that, for connections to close

_log = get_logger("dexaflow.endpoint")


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes when the file does; through symlinks, which Kubernetes swaps."""
    stat = os.stat(path)
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


@dataclass(slots=True)
class TokenFile:
    """The bearer token in a file; read again when it changes, the last good one kept when it cannot be used.

    Raises:
        UsageError: at the beginning only: there is no such file, or no usable token in it. The token is not named.
    """

    path: Path
    token: str = field(init=False, repr=False)
    _seen: tuple[int, int, int] = field(init=False, repr=False)
    _unseen: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        try:
            self._seen, self.token = _stamp(self.path), _token(self.path.read_bytes())
        except OSError as error:
            raise UsageError(f"--token-file cannot be read: {error.strerror}; name a file with the token") from None
        except ValueError as error:
            raise UsageError(f"--token-file: {error}") from None

    def __call__(self) -> str:
        return self.token

    def refresh(self) -> None:
        """Read the file again if it changed. That it cannot be found is said once, until it is there again."""
        unseen, self._unseen = self._unseen, True
        try:
            stamp = _stamp(self.path)
            unseen = self._unseen = False
            if stamp == self._seen:
                return
            self._seen = stamp
            self.token = _token(self.path.read_bytes())
        except (OSError, ValueError) as error:
            if not unseen:
                cause = error.strerror if isinstance(error, OSError) else str(error)
                _log.error("token_not_reloaded", cause=cause)


def _token(content: bytes) -> str:
    """Return the token in a file's content, one trailing line end dropped (R2.3)."""
    body = content.removesuffix(b"\n").removesuffix(b"\r") if content.endswith(b"\n") else content
    if not body:
        raise ValueError("the token is empty; write one into the file")
    if not all(0x21 <= byte <= 0x7E for byte in body):
        raise ValueError("the token holds blanks, line ends or other bytes that no header may; write visible ASCII")
    return body.decode("ascii")


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
    announce: Callable[[str], None],
) -> None:
    """Serve `hook` until SIGTERM or SIGINT.

    Questions under way then have two seconds to be answered; the others get status 503. After two more the process is
    ended, whatever the hook does. Certificate, key and token are read again when their files change.

    Args:
        port: 0 takes any free one.
        announce: Called with the URL once questions are taken.

    Raises:
        UsageError: no TLS and not on loopback, a file cannot be used, or the address is taken.
    """
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together; give both")
    if tls_cert is None and not _is_loopback(host):
        raise UsageError(
            f"without --tls-cert and --tls-key only loopback is served; {host} is not, give both or 127.0.0.1"
        )
    token = TokenFile(token_file) if token_file is not None else None
    try:
        endpoint = Endpoint(HookCalls(hook, timeout=HOOK_SECONDS), token, usable_path(path))
    except ValueError as error:
        raise UsageError(f"--path: {error}") from None
    for name in ("uvicorn", "uvicorn.error"):  # what there is to say of starts, stops and faults, we say ourselves
        logging.getLogger(name).setLevel(logging.CRITICAL)
    context = _tls(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
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
            asyncio.run(_run(server, listener, _Reloading(context, tls_cert, tls_key, token)))
        finally:
            ended.set()


async def _run(server: _Server, listener: socket.socket, reloading: "_Reloading") -> None:
    watching = asyncio.ensure_future(reloading.watch())
    try:
        await server.serve(sockets=[listener])
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


@dataclass(slots=True)
class _Reloading:
    """Keeps certificate and token as their files are; a certificate holds from the next connection on."""

    context: ssl.SSLContext | None
    cert: Path | None
    key: Path | None
    token: TokenFile | None

    async def watch(self) -> None:
        seen = self._cert_stamp()
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            if self.token is not None:
                self.token.refresh()
            stamp = self._cert_stamp()
            if stamp == seen or stamp is None or self.context is None or self.cert is None:
                continue
            seen = stamp
            try:
                _tls(self.cert, self.key)  # tried on another context first: a pair that does not match spoils this one
                self.context.load_cert_chain(self.cert, self.key)
                _log.info("certificate_reloaded")
            except (OSError, UsageError) as error:
                _log.error("certificate_not_reloaded", cause=str(error))

    def _cert_stamp(self) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
        if self.cert is None or self.key is None:
            return None
        try:
            return _stamp(self.cert), _stamp(self.key)
        except OSError:
            return None  # being swapped


def _tls(cert: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for option, path in (("--tls-cert", cert), ("--tls-key", key)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise UsageError(f"{option} {path} cannot be read: {error.strerror}; name a PEM file") from None
    try:
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not a certificate and its key"
        raise UsageError(
            f"--tls-cert and --tls-key cannot be used ({reason}); give a PEM chain and its key without a passphrase"
        ) from None
    return context


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=256)
    except socket.gaierror as error:
        raise UsageError(f"--host {host} is no address: {error.strerror}; give one of this machine") from None
    except OSError as error:
        # Python puts the address into `strerror`, a second time.
        reason = os.strerror(error.errno) if error.errno is not None else "not possible"
        raise UsageError(f"cannot listen on {host} port {port}: {reason}; choose another --port") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
