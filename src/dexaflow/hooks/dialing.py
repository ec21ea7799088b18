"""Opening a connection: addresses race, one after another, so that a dead one costs a live one little (RFC 8305)."""

import asyncio
import os
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from dexaflow.hooks.addresses import Address
from dexaflow.hooks.connection import Connection

__all__ = ["Unreachable", "dial", "stagger"]

STAGGER_SECONDS: Final = 0.1  # RFC 8305 allows 100 ms to 2 s between two attempts


class Unreachable(Exception):  # noqa: N818 - says what the endpoint is
    """No address gave a connection; ``str()`` says why, each with its address."""


def stagger(addresses: int, timeout: float) -> float:
    """Return the seconds between two attempts: all have begun by half of the timeout."""
    return min(STAGGER_SECONDS, timeout / (2 * max(1, addresses)))


async def dial(
    addresses: Sequence[Address], *, tls: ssl.SSLContext | None, server_name: str, generation: int, delay: float
) -> Connection:
    """Return the first connection that is ready, TLS included; the others are given up.

    A host that takes connections and then is silent is as dead as one that takes none, so the race ends with the
    handshake, not before it. Waits as long as the caller does; cancelled, it leaves nothing open.

    Args:
        delay: Seconds after which the next address is tried beside those under way. One that fails is followed at once.

    Raises:
        Unreachable: every address failed.
    """
    if len(addresses) == 1:
        try:
            return await _attempt(addresses[0], tls, server_name, generation)
        except Exception as error:
            raise Unreachable(_described(addresses[0], error)) from error
    race = _Race(tls, server_name, generation)
    try:
        return await race.run(list(addresses), delay)
    finally:
        await race.end()


class _Race:
    """Attempts under way, of which the first that is ready wins."""

    def __init__(self, tls: ssl.SSLContext | None, server_name: str, generation: int) -> None:
        self._tls = tls
        self._server_name = server_name
        self._generation = generation
        self._running: dict[asyncio.Task[Connection], Address] = {}
        self._won: Connection | None = None

    async def run(self, untried: list[Address], delay: float) -> Connection:
        failures: list[str] = []
        while True:
            if untried:
                address = untried.pop(0)
                attempt = _attempt(address, self._tls, self._server_name, self._generation)
                self._running[asyncio.get_running_loop().create_task(attempt)] = address
            elif not self._running:
                raise Unreachable("; ".join(failures))
            done, _ = await asyncio.wait(
                self._running, timeout=delay if untried else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is not None:
                    failures.append(_described(self._running.pop(task), error))
                elif self._won is None:
                    del self._running[task]
                    self._won = task.result()
            if self._won is not None:
                return self._won

    async def end(self) -> None:
        """Give up what has not won, and see it end; each attempt closes what it has opened."""
        for task in self._running:
            task.add_done_callback(_discard)
            task.cancel()
        if not self._running:
            return
        try:
            await asyncio.wait(self._running)
        except asyncio.CancelledError:
            if self._won is not None:
                self._won.abort()  # nobody will get it
            raise


def _discard(task: asyncio.Task[Connection]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().abort()  # it was ready all the same


async def _attempt(address: Address, tls: ssl.SSLContext | None, server_name: str, generation: int) -> Connection:
    loop = asyncio.get_running_loop()
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(sock, address.sockaddr)
    except BaseException:
        sock.close()
        raise
    connection = Connection(sock, generation)
    try:
        # From here on the socket is the transport's, which closes it. The caller's deadline is the only one that
        # counts; the event loop's own for the handshake, a minute, is longer than any.
        if tls is None:
            await loop.create_connection(lambda: connection, sock=sock)
        else:
            await loop.create_connection(lambda: connection, sock=sock, ssl=tls, server_hostname=server_name)
    except BaseException:
        connection.abort()
        raise
    return connection


def _described(address: Address, error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{address}: its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        if error.reason == "WRONG_VERSION_NUMBER":  # OpenSSL's way to say that what came back is something else
            return f"{address}: TLS failed: what answers there does not speak TLS"
        return f"{address}: TLS failed: {error.reason or error}"
    if isinstance(error, ConnectionRefusedError):
        return f"{address}: the connection was refused"
    if isinstance(error, OSError) and error.errno:
        return f"{address}: {os.strerror(error.errno)}"  # `strerror` is the event loop's: which call failed, not why
    return f"{address}: {str(error) or type(error).__name__}"
