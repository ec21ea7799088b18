"""The deadline covers everything from the name to the last byte, and nothing before it (R7.1)."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trustme

from dexaflow.hooks.addresses import Address, Resolver
from tests.hooks.asking import SHORT, a_transport, timed_out
from tests.hooks.misbehaving import Endpoint, Peer, answer, full_backlog, in_a_thread

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


@pytest.mark.parametrize("stall", STALLS)
async def test_answer_that_does_not_end_ends_at_the_deadline(
    stall: str, ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    """And its connection is closed, so that whatever is still to come reaches nobody."""
    at_once, dripping = STALLS[stall]

    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(at_once)
        await peer.drip(dripping, every=0.003)
        await peer.gone()

    async with Endpoint(script, endpoint_tls) as endpoint, a_transport(endpoint.url, ca, timeout=SHORT) as transport:
        await timed_out(transport)
        await endpoint.until(lambda: endpoint.open == 0)
        assert transport.open_connections == 0
        assert len(endpoint.peers) == 1


async def test_endpoint_that_takes_no_connection_ends_at_the_deadline() -> None:
    async with full_backlog() as port, a_transport(f"http://127.0.0.1:{port}/", timeout=SHORT) as transport:
        assert "while connecting" in (await timed_out(transport)).cause


async def test_endpoint_that_is_silent_in_the_tls_handshake_ends_at_the_deadline(ca: trustme.CA) -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    async with Endpoint(script) as endpoint:
        async with a_transport(endpoint.url.replace("http:", "https:"), ca, timeout=SHORT) as transport:
            assert "while connecting" in (await timed_out(transport)).cause
            await endpoint.until(lambda: endpoint.open == 0)


async def test_endpoint_that_drips_garbage_into_the_tls_handshake_ends_at_the_deadline(ca: trustme.CA) -> None:
    async def script(peer: Peer) -> None:
        await peer.drip(b"\x16\x03\x03\x40\x00\x02" + b"\x00" * 10_000, every=0.003)

    async with Endpoint(script) as endpoint:
        async with a_transport(endpoint.url.replace("http:", "https:"), ca, timeout=SHORT) as transport:
            await timed_out(transport)
            await endpoint.until(lambda: endpoint.open == 0)


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
