"""The endpoint that all sides of a comparison ask: TLS, one process of its own, as little work as possible."""

import asyncio
import contextlib
import multiprocessing
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import trustme
import uvloop

__all__ = ["ADMIT", "ADMIT_ANEW", "HOLD", "TOKEN", "Counts", "Endpoint", "endpoint", "pin", "pinned"]

TOKEN = "a-token"
ADMIT = b'"decision":"admit","changes":{"node_selector":{"tenant":"acme"},"labels":{"cost-center":"4711"}}'
# {uid} becomes the question's: no two answers say the same, so that nothing remembered helps.
ADMIT_ANEW = ADMIT.replace(b'"4711"', b'"4711","question":"{uid}"')
HOLD = b'"decision":"hold","reason":"held by the bench"'
_ANSWER = b'{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview","response":{"uid":"%b",%b}}'
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def pin(core: int) -> None:
    """Keep this process on one core, as far as the machine has that many."""
    with contextlib.suppress(OSError, AttributeError):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Keep every process that is started meanwhile on one core."""
    before = os.sched_getaffinity(0)
    pin(core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Counts:
    """What the endpoint has seen so far."""

    questions: int
    opened: int  # connections
    most_open: int  # at the same time


class _Seen:
    def __init__(self) -> None:
        self.questions = self.opened = self.open = self.most_open = 0


class _Answering(asyncio.Protocol):
    def __init__(self, seen: _Seen, decision: bytes, takes: float) -> None:
        self._all = seen
        self._decision = decision
        self._takes = takes
        self._transport: asyncio.Transport | None = None
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is none by inheritance
        self._all.opened += 1
        self._all.open += 1
        self._all.most_open = max(self._all.most_open, self._all.open)

    def connection_lost(self, error: Exception | None) -> None:
        self._all.open -= 1

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._seen += data
        while True:
            head, blank, rest = self._seen.partition(b"\r\n\r\n")
            if not blank:
                return
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            if len(rest) < length:
                return
            self._seen = rest[length:]
            self._all.questions += 1
            uid = rest[:length].partition(b'"uid":')[2].lstrip(b' "')[:36]  # with or without a blank before it
            answer = _ANSWER % (uid, self._decision.replace(b"{uid}", uid))
            whole = _HEAD % len(answer) + answer
            if self._takes:
                asyncio.get_running_loop().call_later(self._takes, self._transport.write, whole)
            else:
                self._transport.write(whole)


def _serve(pipe: Connection, certificate: bytes, decision: bytes, takes: float) -> None:
    pin(0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with trustme.Blob(certificate).tempfile() as path:
            context.load_cert_chain(path)
        seen = _Seen()
        server = await loop.create_server(
            lambda: _Answering(seen, decision, takes), "127.0.0.1", 0, ssl=context, backlog=1024
        )

        def count() -> None:
            pipe.recv()
            pipe.send(Counts(seen.questions, seen.opened, seen.most_open))

        loop.add_reader(pipe.fileno(), count)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main())


class Endpoint:
    """Where it is, the bundle that its certificate is checked against, and a token for whoever asks it."""

    def __init__(self, port: int, folder: Path, pipe: Connection) -> None:
        self.url = f"https://127.0.0.1:{port}/admit"
        self.ca_file = folder / "ca.pem"
        self.token_file = folder / "token"
        self._pipe = pipe

    def counts(self) -> Counts:
        """Return what it has seen so far."""
        self._pipe.send("count")
        found = self._pipe.recv()
        assert isinstance(found, Counts)
        return found


@contextlib.contextmanager
def endpoint(folder: Path, *, decision: bytes = ADMIT, takes: float = 0.0) -> Iterator[Endpoint]:
    """Give an endpoint that is up; unless told otherwise it admits every attempt with two changes, at once.

    `takes` is how many seconds it waits before it answers.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "token").write_text(TOKEN)
    certificate = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes()
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(there, certificate, decision, takes), daemon=True
    )
    process.start()
    try:
        yield Endpoint(here.recv(), folder, here)
    finally:
        process.terminate()
        process.join()
