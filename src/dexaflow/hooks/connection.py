"""One connection to the endpoint: one question at a time, and its answer."""

import asyncio
import socket
import ssl
from typing import Final, Protocol, cast

from dexaflow.hooks.reading import AnswerReader

__all__ = ["Connection", "Owner"]

_PEEK: Final = socket.MSG_PEEK | socket.MSG_DONTWAIT


class Owner(Protocol):
    """What a connection tells the pool. Each is told synchronously, from the event loop."""

    def answered(self, connection: "Connection") -> None:
        """The answer, or a fault, is in `connection.reader`. The connection asks nothing until it is told to."""
        ...

    def lost(self, connection: "Connection", cause: str) -> None:
        """The connection is gone, or must not be used again; it closes itself. Told once, unless `abort` came first."""
        ...


class Connection(asyncio.Protocol):
    """A connection, made by `loop.create_connection`, then owned by the pool.

    `generation` is the pool's when it was dialled: connections made under an old CA bundle are not kept. `owner` is
    told nothing before `own` is called.
    """

    __slots__ = (
        "_owner",
        "_sock",
        "_transport",
        "busy",
        "closed",
        "generation",
        "gone",
        "idle_since",
        "reader",
        "touched",
        "used",
    )

    def __init__(self, sock: socket.socket, generation: int) -> None:
        self.generation = generation
        self.reader = AnswerReader()
        self.busy = False  # a question is out
        self.touched = False  # something of its answer has come
        self.used = False  # it has carried a question before this one
        self.closed = False
        self.idle_since = 0.0  # monotonic seconds; the pool's to keep
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # its socket is closed
        self._owner: Owner | None = None
        self._sock = sock
        self._transport: asyncio.Transport | None = None

    def own(self, owner: Owner) -> None:
        """Tell `owner` what happens from now on."""
        self._owner = owner

    def quiet(self) -> bool:
        """Whether nothing has come from the peer since the last answer: no bytes to nobody, no end, no reset.

        Asks the socket, since the event loop may not have got round to it: what lies there would be taken for the
        next question's answer, or for a failure of the endpoint.
        """
        transport = self._transport
        if self.closed or transport is None or transport.is_closing():
            return False
        try:
            self._sock.recv(1, _PEEK)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return False

    def send(self, request: bytes) -> None:
        """Put one question."""
        assert self._transport is not None
        self.busy = True
        self.touched = False
        self.reader.begin()
        self._transport.write(request)

    def settled(self) -> None:
        """The question is over and the connection may carry another."""
        self.busy = False
        self.used = True

    def abort(self) -> None:
        """Close at once, without a farewell that a dead peer could draw out. The owner is not told."""
        self.closed = True
        self.busy = False
        self._owner = None
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        if self.closed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        if not self.busy:
            self._lost("it sent bytes that nobody had asked for")
            return
        self.touched = True
        if self.reader.feed(data):
            self._answered()

    def eof_received(self) -> None:
        if self.closed:
            return
        if self.busy and self._orderly() and self.reader.end_of_stream():
            self._answered()
        else:
            self._lost(f"the connection was closed {self.reader.place if self.busy else 'while idle'}")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.gone.done():
            self.gone.set_result(None)
        how = "closed" if exc is None else f"lost ({exc})"
        self._lost(f"the connection was {how} {self.reader.place if self.busy else 'while idle'}")

    def _orderly(self) -> bool:
        """Whether the peer itself has said that this is the end: with TLS, anybody on the way can close the wire."""
        assert self._transport is not None
        ssl_object = self._transport.get_extra_info("ssl_object")
        if ssl_object is None:
            return True
        try:
            return not ssl_object.read(1)  # nothing: its farewell has come
        except ssl.SSLZeroReturnError:
            return True
        except ssl.SSLError:
            return False

    def _answered(self) -> None:
        if self._owner is not None:
            self._owner.answered(self)

    def _lost(self, cause: str) -> None:
        owner = self._owner
        if self.closed:
            return
        touched = self.touched
        self.abort()
        self.touched = touched
        if owner is not None:
            owner.lost(self, cause)
