"""Sixteen connections, and fair waiting for them (R7.1)."""

import asyncio
import ssl

import pytest
import trustme

from dexaflow.base.errors import HookBroken
from tests.hooks.asking import LONG, SHORT, a_transport, timed_out
from tests.hooks.misbehaving import Endpoint, Peer, answer, answering, full_backlog


class Gate:
    """A script that answers when told to, and keeps the order in which it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.arrived = asyncio.Condition()
        self._go = asyncio.Semaphore(0)

    async def __call__(self, peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            async with self.arrived:
                self.asked.append(body)
                self.arrived.notify_all()
            await self._go.acquire()
            peer.send(answer(body))

    def answer(self, count: int = 1) -> None:
        """Let so many questions be answered."""
        for _ in range(count):
            self._go.release()

    async def until_asked(self, count: int) -> None:
        """Wait until so many have been asked."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.asked) >= count)


async def test_no_more_than_sixteen_connections_and_everybody_is_answered(
    ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    async with Endpoint(answering(), endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        answers = await asyncio.gather(*[transport.post(b"%d" % n) for n in range(200)])
        assert [a.body for a in answers] == [b"ok"] * 200
        assert endpoint.most_open <= 16
        assert len(endpoint.peers) <= 16


async def test_waiting_questions_are_put_in_the_order_in_which_they_came() -> None:
    gate = Gate()
    async with Endpoint(gate) as endpoint, a_transport(endpoint.url, max_connections=2) as transport:
        asks = [asyncio.create_task(transport.post(b"%d" % n)) for n in range(10)]
        for done in range(2, 11):
            await gate.until_asked(done)
            gate.answer()
        gate.answer(2)
        assert [(await ask).body for ask in asks] == [b"%d" % n for n in range(10)]
        assert sorted(gate.asked[:2]) == [b"0", b"1"]
        assert gate.asked[2:] == [b"%d" % n for n in range(2, 10)]


async def test_newcomer_does_not_overtake_those_who_wait() -> None:
    gate = Gate()
    async with Endpoint(gate) as endpoint, a_transport(endpoint.url, max_connections=1) as transport:
        first, second = (asyncio.create_task(transport.post(body)) for body in (b"1", b"2"))
        await gate.until_asked(1)
        gate.answer()
        await first
        third = asyncio.create_task(transport.post(b"3"))
        await gate.until_asked(2)
        gate.answer(2)
        await asyncio.gather(second, third)
        assert gate.asked == [b"1", b"2", b"3"]


async def test_waiting_for_a_connection_is_no_failure_and_costs_no_time() -> None:
    """Each of twelve questions takes half of the timeout; the last has waited for six times the timeout."""

    async def script(peer: Peer) -> None:
        while await peer.question() is not None:
            await asyncio.sleep(SHORT / 2)
            peer.send(answer())

    async with Endpoint(script) as endpoint, a_transport(endpoint.url, timeout=SHORT, max_connections=1) as transport:
        answers = await asyncio.gather(*[transport.post(b"{}") for _ in range(12)])
        assert all(response.seconds < SHORT for response in answers)


async def test_question_that_times_out_lets_the_next_one_go() -> None:
    async def script(peer: Peer) -> None:
        if await peer.question() == b"answer me":
            peer.send(answer())
        await peer.gone()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url, timeout=SHORT, max_connections=1) as transport:
        silent, answered = asyncio.create_task(timed_out(transport)), asyncio.create_task(transport.post(b"answer me"))
        await silent
        assert (await answered).body == b"ok"
        assert len(endpoint.peers) == 2  # never on the connection on which the other's answer may still come


@pytest.mark.parametrize("when", ["connecting", "asking"])
async def test_cancelled_question_gives_its_place_away_and_closes_its_connection(
    when: str, ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    gate = Gate()
    async with Endpoint(gate, endpoint_tls) as endpoint, a_transport(endpoint.url, ca, max_connections=1) as transport:
        cancelled = asyncio.create_task(transport.post(b"cancelled"))
        await asyncio.sleep(0)
        if when == "asking":
            await gate.until_asked(1)
        next_one = asyncio.create_task(transport.post(b"next"))
        await asyncio.sleep(0)
        assert transport.waiting == 1
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert transport.waiting == 0  # at once
        await gate.until_asked(2 if when == "asking" else 1)
        gate.answer(2)
        assert (await next_one).body == b"next"
        assert transport.open_connections == 1
        await endpoint.until(lambda: endpoint.open == 1)


async def test_late_answer_to_a_cancelled_question_finds_its_connection_closed(
    ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.question()
        asked.set()
        await peer.gone()
        gone.set()

    async with Endpoint(script, endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        ask = asyncio.create_task(transport.post(b"{}"))
        await asked.wait()
        ask.cancel()
        await asyncio.gather(ask, return_exceptions=True)
        await asyncio.wait_for(gone.wait(), LONG)


async def test_cancelled_while_waiting_leaves_the_queue() -> None:
    gate = Gate()
    async with Endpoint(gate) as endpoint, a_transport(endpoint.url, max_connections=1) as transport:
        asks = [asyncio.create_task(transport.post(b"%d" % n)) for n in range(4)]
        await gate.until_asked(1)
        for ask in asks[1:3]:
            ask.cancel()
        await asyncio.gather(*asks[1:3], return_exceptions=True)
        gate.answer(2)
        assert (await asks[0]).body == b"0"
        assert (await asks[3]).body == b"3"
        assert gate.asked == [b"0", b"3"]


async def test_no_place_is_lost_whatever_ends_a_question() -> None:
    """A hundred questions cancelled at every stage, and then sixteen at once are answered."""
    gate = Gate()
    async with Endpoint(gate) as endpoint, a_transport(endpoint.url) as transport:
        for steps in range(100):
            ask = asyncio.create_task(transport.post(b"x"))
            for _ in range(steps % 25):
                await asyncio.sleep(0)
            ask.cancel()
            await asyncio.gather(ask, return_exceptions=True)
        assert transport.open_connections == 0
        gate.answer(200)
        answers = await asyncio.gather(*[transport.post(b"y") for _ in range(16)])
        assert [a.body for a in answers] == [b"y"] * 16
        assert transport.waiting == 0


async def test_closing_ends_every_question() -> None:
    gate = Gate()
    async with Endpoint(gate) as endpoint:
        transport = a_transport(endpoint.url, max_connections=1)
        asks = [asyncio.create_task(transport.post(b"x")) for _ in range(3)]
        await gate.until_asked(1)
        await transport.close()
        results = await asyncio.gather(*asks, return_exceptions=True)
        assert all(isinstance(result, HookBroken) and "closed" in result.cause for result in results)
        gate.answer()  # too late
        await endpoint.until(lambda: endpoint.open == 0)


async def test_closing_while_connecting_ends_the_question() -> None:
    async with full_backlog() as port:
        transport = a_transport(f"http://127.0.0.1:{port}/")
        ask = asyncio.create_task(transport.post(b"x"))
        await asyncio.sleep(0.01)
        await transport.close()
        with pytest.raises(HookBroken):
            await ask


async def test_connection_that_has_been_idle_is_closed(ca: trustme.CA, endpoint_tls: ssl.SSLContext | None) -> None:
    async with Endpoint(answering(), endpoint_tls) as endpoint:
        async with a_transport(endpoint.url, ca, idle_seconds=0.1) as transport:
            await asyncio.gather(*[transport.post(b"{}") for _ in range(3)])
            await endpoint.until(lambda: endpoint.open == 0)
            assert transport.open_connections == 0
            assert (await transport.post(b"{}")).body == b"ok"
