"""Talking to the server until it is heard: the only place where the agent does HTTP."""

import contextlib
import http.client
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

__all__ = ["GaveUp", "Link", "NotAcceptable", "TurnedAway", "address_in_file"]

T = TypeVar("T")

_ANSWER_TIMEOUT_SECONDS = 10.0  # for one connect, send or receive; a server that hangs is asked again
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 5.0
_IDLE_SECONDS = 2.0  # servers close idle connections, most after 5 s: an older one is not used again
_MAX_ANSWER_BYTES = 64 * 1024 * 1024  # the inputs of a task with many upstream results are in one answer


class TurnedAway(Exception):  # noqa: N818 - what happened
    """The server says that this launch does not count (any more)."""


class NotAcceptable(Exception):  # noqa: N818 - HTTP's word
    """The server understood, and will never take this body."""


class GaveUp(Exception):  # noqa: N818 - on request, not an error
    """The caller wanted no more tries."""


def address_in_file(path: str) -> Callable[[], str]:
    """Return a function that reads the server's address from its file, anew each time.

    A file that is not there may come. Where even its folder is gone, with all that the server knew, nobody will ever
    hear an agent: `TurnedAway`.
    """

    def read() -> str:
        try:
            with open(path, "rb") as file:
                return str(json.loads(file.read(65_536))["url"])
        except FileNotFoundError:
            if not os.path.exists(os.path.dirname(path)):
                raise TurnedAway("the server's data folder is gone") from None
            raise

    return read


class Link:
    """One agent's line to the server. One thread at a time calls; `abort` may come from another."""

    def __init__(self, address: Callable[[], str], token: str) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0
        self.token = token  # a heartbeat renews it

    def call(
        self,
        path: str,
        body: bytes,
        understand: Callable[[Any], T],
        *,
        content_type: str = "application/json",
        until: threading.Event | None = None,
        tries: int | None = None,
    ) -> T:
        """POST until the server is heard, and return what `understand` makes of its JSON answer.

        An answer that `understand` cannot read (`KeyError`, `TypeError`, `ValueError`) is somebody else's: not heard.

        Raises:
            TurnedAway, NotAcceptable: as their names say.
            GaveUp: `until` is set, or the server was not heard in so many `tries`.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            if until is not None and until.is_set():
                raise GaveUp
            try:
                return understand(self._ask(path, body, content_type))
            except (OSError, http.client.HTTPException, KeyError, TypeError, ValueError, RecursionError):
                self.close()
            if tries is not None and (tries := tries - 1) <= 0:
                raise GaveUp
            wait = pause * random.uniform(0.5, 1.0)  # not all agents at once when the server is back
            if until is None:
                time.sleep(wait)
            else:
                until.wait(wait)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _ask(self, path: str, body: bytes, content_type: str) -> object:
        connection = self._connected()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        text = answer.read(_MAX_ANSWER_BYTES)
        if not answer.isclosed() and (answer.read(1) or answer.length):
            raise OSError("the answer is cut short, or too long")
        self._used_at = time.monotonic()
        if answer.status == 200:
            return json.loads(text)
        if answer.status in (401, 403, 409, 410):
            raise TurnedAway(f"HTTP {answer.status}")
        if answer.status in (400, 413, 422):
            raise NotAcceptable(f"HTTP {answer.status}")
        raise OSError(f"HTTP {answer.status}")

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is not None and time.monotonic() - self._used_at < _IDLE_SECONDS:
            return self._connection
        self.close()
        target = urlsplit(self._address())
        host, port = target.hostname, target.port
        if host is None:
            raise ValueError("no address")
        if target.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=_ANSWER_TIMEOUT_SECONDS
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_TIMEOUT_SECONDS)
        self._connection = connection
        return connection

    def close(self) -> None:
        """Close the connection; the next call opens one, to where the server is then."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def abort(self) -> None:
        """Wake a call that waits for an answer, from another thread; it then looks at its `until`."""
        connection = self._connection
        sock = None if connection is None else connection.sock
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
