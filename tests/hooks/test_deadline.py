"""The deadline covers everything from the name to the last byte, and nothing before it (R7.1)."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
import trustme

from dexaflow.base.errors import HookBroken
from dexaflow.hooks.addresses import Address, Resolver
from dexaflow.hooks.transport import Transport
from tests.hooks.asking import SHORT, a_transport, timed_out
from tests.hooks.misbehaving import Endpoint, Peer, answer, answering, full_backlog, in_a_thread

Script = Callable[[Peer], Awaitable[None]]

STALLS: dict[str, tuple[bytes, bytes]] = {  # what comes at once, and what drips in after it
    "silence": (b"", b""),
    "dripping status": (b"", b"HTTP/1.1 200 " + b"O" * 10_000),
    "half the headers": (b"HTTP/1.1 200 OK\r\nContent-", b""),
    "dripping headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
    "dripping header": (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 10_000),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "half the body": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", b""),
    "dripping body": (b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n", b"x" * 10_000),
    "dripping chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1000),
    "body until the end": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 10_000),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X: y\r\n" * 1000),
}


async def ends_in_time(transport: Transport, *, after: float = SHORT) -> HookBroken:
    """Ask; a second question waits for the only connection meanwhile, and is answered when the first has ended."""
    stalled = asyncio.create_task(timed_out(transport, after=after))
    await asyncio.sleep(0)
    next_one = asyncio.create_task(transport.post(b"{}"))
    error = await stalled
    assert (await next_one).body == b"ok"
    assert transport.open_connections == 1
    return error


@pytest.mark.parametrize("stall", STALLS)
async def test_answer_that_does_not_end_ends_at_the_deadline(
    stall: str, ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    """On a fresh connection and on a reused one; it is closed, so that what is still to come reaches nobody."""
    at_once, dripping = STALLS[stall]

    async def ask(reused: bool) -> None:
        async def script(peer: Peer) -> None:
            if peer.number == 2:
                await answering()(peer)
                return
            if reused:
                await peer.question()
                peer.send(answer())
            await peer.question()
            peer.send(at_once)
            await peer.drip(dripping, every=0.003)
            await peer.gone()

        async with (
            Endpoint(script, endpoint_tls) as endpoint,
            a_transport(endpoint.url, ca, timeout=SHORT, max_connections=1) as transport,
        ):
            if reused:
                await transport.post(b"{}")
            await ends_in_time(transport)
            await endpoint.until(lambda: endpoint.open == 1)
            assert len(endpoint.peers) == 2

    await asyncio.gather(ask(reused=False), ask(reused=True))


@contextlib.asynccontextmanager
async def moving(tls: ssl.SSLContext | None, ca: trustme.CA, first: int) -> AsyncIterator[Transport]:
    """Give a transport of one connection to a host that is at another port first, then at one that answers."""
    async with Endpoint(answering(), tls) as endpoint:
        ports = iter([first])
        resolver = Resolver(
            "localhost", 1, lookup=lambda *_: [Address(socket.AF_INET, ("127.0.0.1", next(ports, endpoint.port)))]
        )
        url = f"{'https' if tls else 'http'}://localhost/"
        async with a_transport(url, ca, timeout=SHORT, resolver=resolver, max_connections=1) as transport:
            yield transport


async def test_endpoint_that_takes_no_connection_ends_at_the_deadline(
    ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    async with full_backlog() as port, moving(endpoint_tls, ca, port) as transport:
        assert "while connecting" in (await ends_in_time(transport)).cause


HANDSHAKES: dict[str, bytes] = {
    "silence": b"",
    "half a record": b"\x16\x03\x03",
    "garbage that drips": b"\x16\x03\x03\x40\x00\x02" + b"\x00" * 10_000,
}


@pytest.mark.parametrize("handshake", HANDSHAKES)
async def test_tls_handshake_that_does_not_end_ends_at_the_deadline(
    handshake: str, ca: trustme.CA, server_tls: ssl.SSLContext
) -> None:
    async def script(peer: Peer) -> None:
        await peer.drip(HANDSHAKES[handshake], every=0.003)
        await peer.gone()

    async with Endpoint(script) as silent, moving(server_tls, ca, silent.port) as transport:
        assert "while connecting" in (await ends_in_time(transport)).cause
        await silent.until(lambda: silent.open == 0)


async def test_look_ups_that_are_stuck_cost_the_next_question_nothing(
    ca: trustme.CA, server_tls: ssl.SSLContext
) -> None:
    """The first gets no answer in time, though it began another itself; the next relies on neither."""
    patient = 0.6  # seconds: time for two
    release = threading.Event()
    lookups: list[str] = []

    async with Endpoint(answering(), server_tls) as endpoint:

        def first_two_are_stuck(host: str, port: int) -> Sequence[Address]:
            lookups.append(host)
            if len(lookups) <= 2:
                release.wait()
            return [Address(socket.AF_INET, ("127.0.0.1", endpoint.port))]

        resolver = Resolver("localhost", endpoint.port, lookup=first_two_are_stuck)
        url = f"https://localhost:{endpoint.port}/"
        async with a_transport(url, ca, timeout=patient, resolver=resolver, max_connections=1) as transport:
            assert "was looked up" in (await ends_in_time(transport, after=patient)).cause
        assert len(lookups) == 3
    release.set()


async def test_name_server_that_is_silent_ends_at_the_deadline_and_blocks_nothing() -> None:
    """Its thread is left to itself; the event loop, other questions and the closing go on."""
    answered = threading.Event()
    began: list[str] = []

    def stuck(host: str, port: int) -> Sequence[Address]:
        began.append(host)
        answered.wait()
        return []

    resolver = Resolver("admission.test", 443, lookup=stuck)
    transport = a_transport("https://admission.test/", timeout=SHORT, resolver=resolver)
    asks = [asyncio.create_task(timed_out(transport)) for _ in range(5)]
    for error in await asyncio.gather(*asks):
        assert "was looked up" in error.cause
    await transport.close()
    assert began == ["admission.test"]  # five questions, one look-up
    answered.set()


async def test_deadline_is_one_for_all_phases(ca: trustme.CA, server_tls: ssl.SSLContext) -> None:
    """Each phase takes most of the timeout; together they may not take more than one."""

    def slow(host: str, port: int) -> Sequence[Address]:
        threading.Event().wait(SHORT * 0.7)
        return [Address(socket.AF_INET, ("127.0.0.1", port))]

    async def script(peer: Peer) -> None:
        await peer.question()
        await asyncio.sleep(SHORT * 0.7)
        peer.send(answer())
        await peer.gone()

    async with Endpoint(script, server_tls) as endpoint:
        resolver = Resolver("localhost", endpoint.port, lookup=slow)
        url = f"https://localhost:{endpoint.port}/"
        async with a_transport(url, ca, timeout=SHORT, resolver=resolver) as transport:
            await timed_out(transport)


async def test_answer_in_time_counts_even_if_our_own_event_loop_is_late() -> None:
    """A control plane that is held up must not take that for the endpoint's failure."""
    answered = threading.Event()

    def script(connection: socket.socket) -> None:
        while connection.recv(65536):
            connection.sendall(answer())
            answered.set()

    with in_a_thread(script) as url:
        async with a_transport(url, timeout=SHORT) as transport:
            await transport.post(b"warm")
            answered.clear()
            ask = asyncio.create_task(transport.post(b"{}"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert answered.wait(10)
            threading.Event().wait(SHORT * 2)  # the answer lies in the socket, and nothing runs on this event loop
            assert (await ask).body == b"ok"
