"""The same promises with endpoints that we did not write (R4.1, R7.1, R7.5, R7.6)."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trustme

from dexaflow.base.errors import HookBroken
from dexaflow.hooks.transport import Transport
from tests.hooks.asking import LONG, SHORT, a_transport, broken, timed_out
from tests.hooks.servers import ANSWER, HTTP2_ONLY, IDLE_SECONDS, RELOAD_SIGNALS, RELOADING, SERVERS, Server, running


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One of them."""
    pem = ca.issue_cert("localhost").private_key_and_cert_chain_pem.bytes()
    with running(request.param, tmp_path_factory.mktemp(request.param), pem) as started:
        yield started


async def test_questions_are_answered_many_at_once(server: Server, ca: trustme.CA) -> None:
    """More than one connection carries by the server's own limit (nginx), and through `Connection: close`."""
    async with a_transport(server.url("/admit"), ca, token="t0ken") as transport:
        answers = await asyncio.gather(*[transport.post(b'{"n": %d}' % n) for n in range(300)])
    assert {(answer.status, answer.body) for answer in answers} == {(200, ANSWER)}


async def test_large_question_is_answered(server: Server, ca: trustme.CA) -> None:
    async with a_transport(server.url("/admit"), ca) as transport:
        for _ in range(3):
            assert (await transport.post(b"x" * 1_000_000)).body == ANSWER


@pytest.mark.parametrize(("path", "status"), [("/moved", 307), ("/missing", 404)])
async def test_other_status_is_what_it_is(server: Server, ca: trustme.CA, path: str, status: int) -> None:
    async with a_transport(server.url(path), ca) as transport:
        for _ in range(3):
            assert (await transport.post(b"{}")).status == status


async def test_answer_above_64_kib_is_broken(server: Server, ca: trustme.CA) -> None:
    async with a_transport(server.url("/big"), ca) as transport:
        for _ in range(3):
            assert "65536" in (await broken(transport)).cause


async def test_silence_ends_at_the_deadline(server: Server, ca: trustme.CA) -> None:
    async with a_transport(server.url("/silent"), ca, timeout=SHORT * 2) as transport:
        ended = await asyncio.gather(*[transport.post(b"{}") for _ in range(4)], return_exceptions=True)
        assert all(isinstance(end, HookBroken) and end.timed_out for end in ended)


async def test_connections_that_the_server_closes_are_no_failure(server: Server, ca: trustme.CA) -> None:
    """Each question comes just about when the server closes what has been idle (R7.5)."""

    async def ask_after(pause: float) -> None:
        async with a_transport(server.url("/admit"), ca, timeout=LONG) as transport:
            await asyncio.gather(*[transport.post(b"{}") for _ in range(8)])
            await asyncio.sleep(IDLE_SECONDS * pause)
            answers = await asyncio.gather(*[transport.post(b"{}") for _ in range(8)])
            assert {answer.body for answer in answers} == {ANSWER}

    await asyncio.gather(*[ask_after(pause) for pause in (0.995, 1.0, 1.003, 1.006)])


async def test_restart_between_two_questions_is_no_failure(server: Server, ca: trustme.CA) -> None:
    async with a_transport(server.url("/admit"), ca, timeout=LONG) as transport:
        await asyncio.gather(*[transport.post(b"{}") for _ in range(4)])
        server.stop()
        server.start()
        answers = await asyncio.gather(*[transport.post(b"{}") for _ in range(4)])
        assert {answer.body for answer in answers} == {ANSWER}


@contextlib.asynccontextmanager
async def under_load(transport: Transport) -> AsyncIterator[Counter[str]]:
    """Ask without a pause, twenty at once, for the length of a block; counts what came of it."""
    outcomes: Counter[str] = Counter()
    ended = False

    async def ask() -> None:
        while not ended:
            try:
                assert (await transport.post(b"{}")).body == ANSWER
                outcomes["answered"] += 1
            except HookBroken as error:
                outcomes["late" if error.timed_out else "broken"] += 1
            await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(ask())
        try:
            yield outcomes
        finally:
            ended = True


async def more(outcomes: Counter[str], answers: int) -> None:
    """Wait for so many answers more."""
    wanted = outcomes["answered"] + answers
    while outcomes["answered"] < wanted:
        await asyncio.sleep(0.005)


async def test_restart_under_load_costs_what_was_asked_meanwhile_and_no_more(server: Server, ca: trustme.CA) -> None:
    """Killed, away and back: nobody waits for what is gone, no place in the pool is lost."""
    async with a_transport(server.url("/admit"), ca, timeout=LONG) as transport:
        async with under_load(transport) as outcomes:
            await more(outcomes, 100)
            server.stop()
            while not outcomes["broken"]:
                await asyncio.sleep(0.005)
            await asyncio.to_thread(server.start)
            await more(outcomes, 100)
            before = outcomes["broken"]
            await more(outcomes, 100)
            assert outcomes["broken"] == before
        assert outcomes["late"] == 0
        answers = await asyncio.gather(*[transport.post(b"{}") for _ in range(40)])
        assert {answer.body for answer in answers} == {ANSWER}
        assert (transport.waiting, transport.open_connections <= 16) == (0, True)


@pytest.mark.parametrize("name", RELOADING)
async def test_reload_in_good_order_under_load_costs_nothing(name: str, ca: trustme.CA, tmp_path: Path) -> None:
    """Old workers close what is idle, just when we ask (R7.5)."""
    pem = ca.issue_cert("localhost").private_key_and_cert_chain_pem.bytes()
    with running(name, tmp_path, pem, RELOADING) as reloading:
        async with a_transport(reloading.url("/admit"), ca, timeout=LONG) as transport:
            async with under_load(transport) as outcomes:
                for _ in range(3):
                    await more(outcomes, 200)
                    reloading.signal(RELOAD_SIGNALS[name])
                await more(outcomes, 400)
            assert set(outcomes) == {"answered"}
        await asyncio.to_thread(reloading.end)


async def test_server_of_another_authority_or_name_is_not_asked(server: Server, ca: trustme.CA) -> None:
    async with a_transport(server.url("/admit"), trustme.CA()) as transport:
        assert "certificate is not accepted" in (await broken(transport)).cause
    async with a_transport(server.url("/admit").replace("localhost", "127.0.0.1"), ca) as transport:
        assert "certificate is not accepted" in (await broken(transport)).cause


async def test_server_that_is_stopped_dead_ends_at_the_deadline(server: Server, ca: trustme.CA) -> None:
    async with a_transport(server.url("/admit"), ca, timeout=SHORT) as transport:
        with server.frozen():
            await timed_out(transport)
    async with a_transport(server.url("/admit"), ca, timeout=LONG) as transport:
        assert (await transport.post(b"{}")).body == ANSWER


@pytest.mark.parametrize("name", HTTP2_ONLY)
async def test_server_that_knows_http_2_only_is_broken_and_said_so_at_once(
    name: str, ca: trustme.CA, tmp_path: Path
) -> None:
    pem = ca.issue_cert("localhost").private_key_and_cert_chain_pem.bytes()
    with running(name, tmp_path, pem, HTTP2_ONLY) as http2:
        async with a_transport(http2.url("/admit"), ca, max_connections=1) as transport:
            for _ in range(3):
                await broken(transport)
