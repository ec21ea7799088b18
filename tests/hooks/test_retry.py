"""A dead pooled connection is not a broken endpoint (R7.5)."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable

import pytest
import trustme

from tests.hooks.asking import LONG, SHORT, a_transport, broken, timed_out
from tests.hooks.misbehaving import Endpoint, Peer, answer, answering, in_a_thread
from tests.hooks.races import keep_alive_races

PATIENT = 0.6  # seconds; waited for, and long enough for what else is asked meanwhile
CLOSES: dict[str, Callable[[Peer], None]] = {"close": Peer.close, "reset": Peer.reset}


@pytest.mark.parametrize("how", CLOSES)
async def test_question_on_a_reused_connection_that_dies_is_sent_once_more(
    how: str, ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    """The same bytes, on a fresh connection, and the asker notices nothing."""

    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(answer(b"%d" % peer.number))
        if peer.number == 1:
            await peer.question()
            CLOSES[how](peer)
        await peer.gone()

    async with Endpoint(script, endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        assert (await transport.post(b"first")).body == b"1"
        assert (await transport.post(b"second")).body == b"2"
        first, second = endpoint.peers
        assert first.questions[1] == second.questions[0]


@pytest.mark.parametrize("how", CLOSES)
async def test_it_is_never_sent_a_third_time(how: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        if peer.number == 1:
            peer.send(answer())
            await peer.question()
        CLOSES[how](peer)

    async with Endpoint(script) as endpoint, a_transport(endpoint.url) as transport:
        await transport.post(b"first")
        await broken(transport, b"second")
        assert [len(peer.questions) for peer in endpoint.peers] == [2, 1]


@pytest.mark.parametrize("how", CLOSES)
async def test_question_on_a_fresh_connection_is_never_sent_again(
    how: str, ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        CLOSES[how](peer)

    async with Endpoint(script, endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        await broken(transport)
        assert len(endpoint.questions) == 1


async def test_retry_does_not_take_another_pooled_connection() -> None:
    """All of them may have died together; sixteen of them must not cost sixteen tries."""
    everybody = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.question()
        if peer.number > 3:
            peer.send(answer(b"fresh"))
        else:
            if peer.number == 3:
                everybody.set()
            await everybody.wait()
            peer.send(answer())
            await peer.question()
            peer.close()
        await peer.gone()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url) as transport:
        await asyncio.gather(*[transport.post(b"warm") for _ in range(3)])
        assert (await transport.post(b"again")).body == b"fresh"
        assert len(endpoint.peers) == 4


@pytest.mark.parametrize("first", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_once_anything_of_an_answer_has_come_it_is_not_sent_again(first: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(answer())
        await peer.question()
        peer.send(first)
        await peer.drain()
        await asyncio.sleep(0.02)
        peer.close()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url) as transport:
        await transport.post(b"first")
        await broken(transport, b"second")
        assert len(endpoint.peers) == 1


async def test_retry_ends_by_the_deadline_of_the_first_try() -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        if peer.number == 1:
            peer.send(answer())
            await peer.question()
            await asyncio.sleep(SHORT * 0.7)
            peer.close()
        await peer.gone()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url, timeout=SHORT) as transport:
        await transport.post(b"first")
        await timed_out(transport, b"second")
        assert len(endpoint.peers) == 2


@pytest.mark.parametrize("how", CLOSES)
async def test_connection_closed_while_idle_is_not_used(
    how: str, ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    """What the endpoint has closed, by its own keep-alive say, is dropped before anything is sent on it."""

    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(answer())
        await peer.drain()
        CLOSES[how](peer)

    async with Endpoint(script, endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        for number in range(1, 6):
            assert (await transport.post(b"{}")).body == b"ok"
            await endpoint.until(lambda: endpoint.open == 0)
            assert len(endpoint.peers) == number


UNASKED: dict[str, bytes] = {
    "a byte": b"x",
    "a line end": b"\r\n",
    "another answer": answer(b"not yours"),
    "a timeout notice": answer(b"", status="408 Request Timeout"),
}


@pytest.mark.parametrize("unasked", UNASKED)
@pytest.mark.parametrize("when", ["together", "later"])
async def test_bytes_that_nobody_asked_for_reach_nobody(
    unasked: str, when: str, ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    """After the answer, with it or while idle: that connection is closed, the next question goes on another."""

    async def script(peer: Peer) -> None:
        await peer.question()
        if when == "together":
            peer.send(answer(b"%d" % peer.number) + UNASKED[unasked])
        else:
            peer.send(answer(b"%d" % peer.number))
            await peer.drain()
            await asyncio.sleep(0.01)
            peer.send(UNASKED[unasked])
        await peer.gone()

    async with Endpoint(script, endpoint_tls) as endpoint, a_transport(endpoint.url, ca, timeout=LONG) as transport:
        for number in (b"1", b"2", b"3"):
            assert (await transport.post(b"{}")).body == number
            await endpoint.until(lambda: endpoint.open == 0)


async def test_unasked_bytes_that_lie_in_the_socket_are_not_taken_for_the_next_answer() -> None:
    """The event loop has not got round to them when the next question comes."""
    more, sent = threading.Event(), threading.Event()
    connections: list[socket.socket] = []

    def script(connection: socket.socket) -> None:
        connections.append(connection)
        connection.recv(65536)
        connection.sendall(answer(b"%d" % len(connections)))
        if len(connections) == 1:
            more.wait(10)
            connection.sendall(answer(b"not yours"))
            sent.set()
        connection.recv(65536)

    with in_a_thread(script) as url:
        async with a_transport(url) as transport:
            assert (await transport.post(b"{}")).body == b"1"
            more.set()
            assert sent.wait(10)
            assert (await transport.post(b"{}")).body == b"2"


async def test_host_that_is_gone_without_a_word_costs_one_question_and_not_one_for_each_connection(
    ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    """Nothing closes its connections: power lost, a firewall that forgets. The address leads to another one by now."""
    gone, everybody = asyncio.Event(), asyncio.Barrier(6)

    async def script(peer: Peer) -> None:
        if peer.number <= 6:
            await peer.question()
            await everybody.wait()
            peer.send(answer())
            await gone.wait()
            await asyncio.Event().wait()
        await answering()(peer)

    async with (
        Endpoint(script, endpoint_tls) as endpoint,
        a_transport(endpoint.url, ca, timeout=PATIENT) as transport,
    ):
        await asyncio.gather(*[transport.post(b"{}") for _ in range(6)])
        gone.set()
        await timed_out(transport, after=PATIENT)
        for _ in range(3):
            assert (await transport.post(b"{}")).body == b"ok"
        assert len(endpoint.peers) == 7


async def test_slow_answer_costs_no_connection_that_has_answered_meanwhile() -> None:
    async def script(peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            if body != b"never":
                peer.send(answer())

    async with Endpoint(script) as endpoint, a_transport(endpoint.url, timeout=PATIENT) as transport:
        await asyncio.gather(transport.post(b"{}"), transport.post(b"{}"))
        slow = asyncio.create_task(timed_out(transport, b"never", after=PATIENT))
        await asyncio.sleep(PATIENT / 2)
        await transport.post(b"{}")
        await slow
        await transport.post(b"{}")
        assert len(endpoint.peers) == 2


async def test_closing_that_crosses_a_question_on_the_way_is_no_failure(
    ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    """Thousands of times: each question is answered, with its own answer."""
    outcomes = await keep_alive_races(1.0, endpoint_tls, ca)
    assert outcomes["connections"] > 10
    assert set(outcomes) == {"answered", "connections"}, outcomes
