"""An endpoint that does exactly what a test tells it to, byte by byte, over plain TCP or TLS."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType

__all__ = [
    "Endpoint",
    "Peer",
    "Script",
    "answer",
    "answering",
    "decided",
    "deciding",
    "full_backlog",
    "in_a_thread",
    "reset_on_close",
]

Script = Callable[["Peer"], Awaitable[None]]


def answer(body: bytes = b"ok", *headers: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    """Return a whole answer with a Content-Length."""
    lines = [f"HTTP/{version} {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def decided(question: bytes, *headers: str, **response: object) -> bytes:
    """Return a whole answer to that question, with its uid: `decision="hold", reason="later"`."""
    response = {"uid": json.loads(question)["request"]["uid"], **response}
    document = {"api_version": "dexaflow.io/admission/v1", "kind": "AdmissionReview", "response": response}
    return answer(json.dumps(document).encode(), *headers)


def answering(reply: bytes | None = None) -> Script:
    """Answer every question of a connection alike."""

    async def script(peer: "Peer") -> None:
        while await peer.question() is not None:
            peer.send(answer() if reply is None else reply)

    return script


def deciding(*, takes: float = 0.0, **response: object) -> Script:
    """Decide every question of a connection alike, each after `takes` seconds."""

    async def script(peer: "Peer") -> None:
        while (body := await peer.question()) is not None:
            await asyncio.sleep(takes)
            peer.send(decided(body, **response))

    return script


class Peer:
    """One connection, seen from the endpoint."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number  # from 1
        self.questions: list[bytes] = []  # heads and bodies, as they came
        self._reader = reader
        self._writer = writer

    async def question(self) -> bytes | None:
        """Return the next question's body; None once the other side has gone."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
            body = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            return None
        self.questions.append(head + body)
        return body

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until they are on their way."""
        await self._writer.drain()

    async def drip(self, data: bytes, every: float) -> None:
        """Send byte by byte until the other side has gone."""
        for byte in data:
            if self._writer.is_closing() or self._reader.at_eof():
                return
            self._writer.write(bytes([byte]))
            await asyncio.sleep(every)

    async def gone(self) -> None:
        """Wait until the other side has closed."""
        with contextlib.suppress(OSError):
            while await self._reader.read(65536):
                pass

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        await self._writer.start_tls(context)

    def close_half_below_tls(self) -> None:
        """Say that nothing more will be sent, below TLS, and go on reading."""
        with socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close in good order."""
        self._writer.close()

    def close_half(self) -> None:
        """Say that nothing more is coming, and go on listening; with TLS this cannot be said."""
        self._writer.write_eof()

    def cut(self) -> None:
        """Close without a farewell, as far as there is one (TLS)."""
        self._writer.transport.abort()

    def reset(self) -> None:
        """Close so that the other side sees a reset."""
        reset_on_close(self._writer.get_extra_info("socket"))
        self._writer.transport.abort()


class Endpoint:
    """Listens on a free port and runs the script for each connection. Use it as ``async with``."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.peers: list[Peer] = []
        self.changed = asyncio.Condition()  # a connection came or went
        self.open = 0
        self.most_open = 0
        self.port = 0
        self._script = script
        self._tls = tls
        self._host = host
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://{self._host}:{self.port}/admit?team=a%20b"

    @property
    def questions(self) -> list[bytes]:
        """All questions so far, connection by connection."""
        return [question for peer in self.peers for question in peer.questions]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds, looked at whenever a connection comes or goes."""
        async with self.changed:
            await self.changed.wait_for(condition)

    async def __aenter__(self) -> "Endpoint":
        self._server = await asyncio.start_server(self._connected, self._host, 0, ssl=self._tls, limit=4_194_304)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(len(self.peers) + 1, reader, writer)
        async with self.changed:
            self.peers.append(peer)
            self.open += 1
            self.most_open = max(self.open, self.most_open)
            self.changed.notify_all()
        try:
            await self._script(peer)
        except (asyncio.CancelledError, OSError):
            pass
        finally:
            writer.transport.abort() if task.cancelling() else writer.close()
            self._tasks.discard(task)
            self.open -= 1
            if not task.cancelling():
                async with self.changed:
                    self.changed.notify_all()


def reset_on_close(sock: socket.socket) -> None:
    """Make the closing of `sock` a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.contextmanager
def in_a_thread(script: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen in a thread, apart from the event loop, and run the script for each connection; gives the URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):  # the listener is closed
                while True:
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        script(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextlib.asynccontextmanager
async def full_backlog(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Listen on a port that drops every new connection's first packet, as a dead host does; gives the port."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):  # more than the queue takes
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield listener.getsockname()[1]
