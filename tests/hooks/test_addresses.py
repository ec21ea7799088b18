"""Looking up names without blocking, and a dead address beside a live one (R2.4, R7.1)."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.hooks.addresses import (
    MAX_ADDRESSES,
    MAX_LOOKUPS,
    PATIENCE_SECONDS,
    Address,
    NotLoopback,
    Resolver,
    in_turns,
)
from dexaflow.hooks.dialing import stagger
from tests.hooks.asking import LONG, SHORT, a_transport, broken, timed_out
from tests.hooks.misbehaving import Endpoint, Peer, answering, full_backlog


def v4(host: str, port: int = 443) -> Address:
    return Address(socket.AF_INET, (host, port))


def v6(host: str, port: int = 443) -> Address:
    return Address(socket.AF_INET6, (host, port, 0, 0))


def resolving_to(*addresses: Address, loopback_only: bool = False) -> Resolver:
    """A resolver whose name server always says the same."""
    return Resolver("admission.test", 443, loopback_only=loopback_only, lookup=lambda host, port: addresses)


# -- a dead first address


@pytest.mark.parametrize("dead", ["no answer to the first packet", "refused", "silent in the handshake", "unreachable"])
async def test_dead_first_address_does_not_eat_the_time_of_a_live_second(
    dead: str, ca: trustme.CA, server_tls: ssl.SSLContext
) -> None:
    """The live one gets its turn well before the deadline, whatever is wrong with the first."""

    async def silent(peer: Peer) -> None:
        await peer.gone()

    async with Endpoint(answering(), server_tls, host="127.0.0.2") as live, Endpoint(silent) as mute:
        async with full_backlog() as full:
            first = {
                "no answer to the first packet": v4("127.0.0.1", full),
                "refused": v4("127.0.0.3", live.port),
                "silent in the handshake": v4("127.0.0.1", mute.port),
                "unreachable": v6("100::1", live.port),
            }[dead]
            resolver = resolving_to(first, v4("127.0.0.2", live.port))
            url = f"https://localhost:{live.port}/"
            async with a_transport(url, ca, timeout=2.0, resolver=resolver) as transport:
                assert (await transport.post(b"{}")).body == b"ok"
                await mute.until(lambda: mute.open == 0)  # the loser is closed
                assert transport.open_connections == 1


async def test_first_address_wins_when_it_is_alive(ca: trustme.CA, server_tls: ssl.SSLContext) -> None:
    async with Endpoint(answering(), server_tls) as first, Endpoint(answering(), server_tls) as second:
        resolver = resolving_to(v4("127.0.0.1", first.port), v4("127.0.0.1", second.port))
        async with a_transport(f"https://localhost:{first.port}/", ca, resolver=resolver) as transport:
            await transport.post(b"{}")
            assert (len(first.peers), len(second.peers)) == (1, 0)


async def test_all_addresses_dead_ends_at_the_deadline() -> None:
    async with full_backlog() as one, full_backlog("127.0.0.2") as two:
        resolver = resolving_to(v4("127.0.0.1", one), v4("127.0.0.2", two))
        async with a_transport("https://localhost/", timeout=SHORT, resolver=resolver) as transport:
            await timed_out(transport)


async def test_all_addresses_refusing_is_told_with_each_of_them() -> None:
    async with Endpoint(answering()) as closed:
        pass
    resolver = resolving_to(v4("127.0.0.2", closed.port), v4("127.0.0.3", closed.port))
    async with a_transport("https://localhost/", resolver=resolver) as transport:
        cause = (await broken(transport)).cause
    assert "127.0.0.2" in cause
    assert "127.0.0.3" in cause


async def test_cancelled_while_addresses_race_leaves_nothing_open(ca: trustme.CA) -> None:
    async def silent(peer: Peer) -> None:
        await peer.gone()

    async with Endpoint(silent) as one, Endpoint(silent) as two:
        resolver = resolving_to(v4("127.0.0.1", one.port), v4("127.0.0.1", two.port))
        async with a_transport("https://localhost/", ca, resolver=resolver) as transport:
            ask = asyncio.create_task(transport.post(b"{}"))
            await two.until(lambda: two.open == 1)
            ask.cancel()
            await asyncio.gather(ask, return_exceptions=True)
            await one.until(lambda: one.open == 0)
            await two.until(lambda: two.open == 0)


@given(count=st.integers(1, 50), timeout=st.floats(0.01, 30))
def test_every_address_has_its_turn_by_half_of_the_timeout(count: int, timeout: float) -> None:
    assert 0 < stagger(count, timeout) <= 0.1
    assert stagger(count, timeout) * (count - 1) <= timeout / 2


def test_families_take_turns_and_the_first_stays_first() -> None:
    """RFC 8305, section 4."""
    assert in_turns([v6("::1"), v6("::2"), v6("::3"), v4("1.1.1.1"), v4("1.1.1.2"), v6("::1")]) == [
        v6("::1"),
        v4("1.1.1.1"),
        v6("::2"),
        v4("1.1.1.2"),
        v6("::3"),
    ]
    assert len(in_turns([v4(f"10.0.0.{n}") for n in range(100)])) == MAX_ADDRESSES


# -- loopback


@pytest.mark.parametrize(
    "addresses",
    [
        [v4("10.0.0.1")],
        [v4("127.0.0.1"), v4("10.0.0.1")],
        [v4("0.0.0.0")],
        [v6("::")],
        [v6("::ffff:127.0.0.1")],
        [v6("fe80::1%lo")],
    ],
)
async def test_localhost_that_resolves_elsewhere_is_not_asked(addresses: list[Address]) -> None:
    """R2.4: whole answers are refused, not picked from."""
    with pytest.raises(NotLoopback):
        await resolving_to(*addresses, loopback_only=True).resolve()


async def test_localhost_is_looked_at_every_time() -> None:
    said = [[v4("127.0.0.1")], [v4("127.9.9.9"), v6("::1")], [v4("10.0.0.1")]]
    resolver = Resolver("localhost", 80, loopback_only=True, lookup=lambda host, port: said.pop(0))
    assert await resolver.resolve() == [v4("127.0.0.1")]
    assert await resolver.resolve() == [v4("127.9.9.9"), v6("::1")]
    with pytest.raises(NotLoopback):
        await resolver.resolve()


async def test_question_for_localhost_elsewhere_is_never_sent() -> None:
    resolver = Resolver("localhost", 80, loopback_only=True, lookup=lambda host, port: [v4("192.0.2.1", 80)])
    async with a_transport("http://localhost/", resolver=resolver) as transport:
        assert "not loopback" in (await broken(transport)).cause


async def test_localhost_of_this_machine_is_asked() -> None:
    async with Endpoint(answering()) as endpoint:
        async with a_transport(f"http://localhost:{endpoint.port}/") as transport:
            assert (await transport.post(b"{}")).body == b"ok"


# -- look-ups


@pytest.mark.parametrize("error", [socket.gaierror(socket.EAI_NONAME, "Name or service not known"), UnicodeError("x")])
async def test_name_that_cannot_be_looked_up_is_broken(error: Exception) -> None:
    def failing(host: str, port: int) -> Sequence[Address]:
        raise error

    async with a_transport(
        "https://admission.test/", resolver=Resolver("admission.test", 443, lookup=failing)
    ) as transport:
        assert "admission.test cannot be looked up" in (await broken(transport)).cause


async def test_name_without_addresses_is_broken() -> None:
    async with a_transport("https://admission.test/", resolver=resolving_to()) as transport:
        assert "no address" in (await broken(transport)).cause


async def test_address_needs_no_look_up() -> None:
    def never(host: str, port: int) -> Sequence[Address]:
        raise AssertionError(host)

    assert await Resolver("127.0.0.1", 80, lookup=never).resolve() == [v4("127.0.0.1", 80)]
    assert await Resolver("::1", 80, lookup=never).resolve() == [v6("::1", 80)]


class Stuck:
    """A name server of which the first so many look-ups are stuck until `release` is set, and may fail then."""

    def __init__(self, first: int, then: OSError | None = None) -> None:
        self.asked = 0
        self.release = threading.Event()
        self._first = first
        self._then = then

    def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked += 1
        if self.asked <= self._first:
            self.release.wait()
            if self._then is not None:
                raise self._then
        return [v4("127.0.0.1")]

    @contextlib.contextmanager
    def resolver(self) -> Iterator[Resolver]:
        """Give a resolver that asks it; nothing is stuck afterwards."""
        made = Resolver("admission.test", 443, lookup=self)
        try:
            yield made
        finally:
            self.release.set()
            made.close()


async def test_stuck_look_up_does_not_bind_those_who_come_later() -> None:
    """A later question starts another, and its answer serves those who wait for the stuck one too."""
    server = Stuck(2)
    with server.resolver() as resolver:
        early = asyncio.create_task(resolver.resolve())
        await asyncio.sleep(2 * PATIENCE_SECONDS + 0.05)
        assert await resolver.resolve() == [v4("127.0.0.1")]
        assert await early == [v4("127.0.0.1")]
        assert server.asked == 3


async def test_question_of_which_a_look_up_is_stuck_starts_another_itself() -> None:
    """One packet lost on the way to the name server costs a quarter of a second, not the question."""
    server = Stuck(1, OSError("too late to matter"))
    with server.resolver() as resolver:
        both = await asyncio.gather(resolver.resolve(), resolver.resolve())
        assert list(both) == [[v4("127.0.0.1")]] * 2
        assert server.asked == 2


async def test_look_up_that_nobody_waits_for_any_more_gets_no_second() -> None:
    server = Stuck(9)
    with server.resolver() as resolver:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(resolver.resolve(), PATIENCE_SECONDS / 2)
        await asyncio.sleep(PATIENCE_SECONDS)
        assert server.asked == 1


async def test_stuck_look_ups_are_bounded() -> None:
    server = Stuck(MAX_LOOKUPS + 2)
    with server.resolver() as resolver:
        asks = []
        for _ in range(MAX_LOOKUPS + 2):
            asks.append(asyncio.create_task(resolver.resolve()))
            await asyncio.sleep(PATIENCE_SECONDS + 0.02)
        assert server.asked == MAX_LOOKUPS
        server.release.set()
        assert await asyncio.gather(*asks) == [[v4("127.0.0.1")]] * len(asks)


async def test_sixteen_new_connections_ask_the_name_server_once(ca: trustme.CA, server_tls: ssl.SSLContext) -> None:
    lookups = []

    async with Endpoint(answering(), server_tls) as endpoint:

        def lookup(host: str, port: int) -> Sequence[Address]:
            lookups.append(host)
            time.sleep(0.05)
            return [v4("127.0.0.1", endpoint.port)]

        resolver = Resolver("localhost", endpoint.port, lookup=lookup)
        url = f"https://localhost:{endpoint.port}/"
        async with a_transport(url, ca, timeout=LONG, resolver=resolver) as transport:
            await asyncio.gather(*[transport.post(b"{}") for _ in range(16)])
    assert lookups == ["localhost"]
