"""One question and its answer (R4.1, R7.1)."""

import errno
import os
import socket
import ssl

import pytest
import trustme

from dexaflow.hooks.addresses import Address
from dexaflow.hooks.dialing import Unreachable, dial
from dexaflow.hooks.transport import Transport
from dexaflow.hooks.url import parse_webhook_url
from tests.hooks.asking import a_transport, broken
from tests.hooks.misbehaving import Endpoint, Peer, answer, answering


async def test_question_is_one_plain_post_with_nothing_that_was_not_asked_for(
    ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    """No cookies, no compression, no proxy's way of writing the target (R2.4, R4.1)."""
    async with Endpoint(answering(), endpoint_tls) as endpoint:
        async with a_transport(endpoint.url, ca, token="s3cret") as transport:
            response = await transport.post(b'{"question": 1}')

        assert (response.status, response.body) == (200, b"ok")
        assert response.seconds > 0
        head, _, body = endpoint.questions[0].partition(b"\r\n\r\n")
        assert body == b'{"question": 1}'
        assert head.split(b"\r\n") == [
            b"POST /admit?team=a%20b HTTP/1.1",
            b"Host: 127.0.0.1:%d" % endpoint.port,
            b"User-Agent: dexaflow",
            b"Accept: application/json",
            b"Accept-Encoding: identity",
            b"Content-Type: application/json",
            b"Authorization: Bearer s3cret",
            b"Content-Length: 15",
        ]


async def test_connection_carries_one_question_after_another(
    ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    async with Endpoint(answering(), endpoint_tls) as endpoint:
        async with a_transport(endpoint.url, ca) as transport:
            for number in range(20):
                assert (await transport.post(b"%d" % number)).body == b"ok"
        assert len(endpoint.peers) == 1
        assert [question.rpartition(b"\r\n")[2] for question in endpoint.questions] == [b"%d" % n for n in range(20)]


async def test_question_of_two_megabytes_arrives_whole(ca: trustme.CA, endpoint_tls: ssl.SSLContext | None) -> None:
    body = bytes(range(256)) * 8192
    async with Endpoint(answering(), endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        await transport.post(body)
        assert endpoint.questions[0].endswith(body)


async def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2.4."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:1")
    async with Endpoint(answering()) as endpoint, a_transport(endpoint.url) as transport:
        assert (await transport.post(b"{}")).status == 200


@pytest.mark.parametrize("status", [201, 204, 302, 307, 308, 400, 401, 404, 429, 500, 502, 503])
async def test_any_status_is_returned_as_it_came_and_no_redirect_is_followed(status: int) -> None:
    """R4.1: what is not 200 is for the caller to call broken."""
    reply = b"HTTP/1.1 %d Whatever\r\nLocation: /elsewhere\r\n%b\r\n" % (
        status,
        b"" if status == 204 else b"Content-Length: 0\r\n",
    )
    async with Endpoint(answering(reply)) as endpoint, a_transport(endpoint.url) as transport:
        assert (await transport.post(b"{}")).status == status
        assert len(endpoint.questions) == 1
        assert (await transport.post(b"{}")).status == status
        assert len(endpoint.peers) == 1  # it was complete, so its connection is as good as any


async def test_other_status_decides_before_its_body_has_come() -> None:
    """A body, however long or slow, makes no other status a decision."""

    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 99999999\r\nContent-Encoding: gzip\r\n\r\nsorry")
        await peer.gone()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url) as transport:
        response = await transport.post(b"{}")
        assert (response.status, response.body) == (503, b"sorry")
        await endpoint.until(lambda: endpoint.open == 0)  # and its connection is closed


async def test_body_of_exactly_64_kib_is_taken(ca: trustme.CA, endpoint_tls: ssl.SSLContext | None) -> None:
    body = b"x" * 65_536
    async with Endpoint(answering(answer(body)), endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        assert (await transport.post(b"{}")).body == body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "reply",
    [
        answer(b"x" * 65_537),
        b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n",
        CHUNKED + b"10001\r\n" + b"x" * 65_537 + b"\r\n0\r\n\r\n",
        CHUNKED + b"1000\r\n" + b"x" * 4096 + b"\r\n" + b"1000\r\n" + b"x" * 4096 + b"\r\nfffff\r\n" + b"x" * 60_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 65_537,
    ],
    ids=["length", "huge length", "chunk", "chunks", "until the end"],
)
async def test_answer_above_64_kib_is_broken_and_read_no_further(reply: bytes) -> None:
    """R4.1: the connection is closed as soon as the limit is passed."""

    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(reply)
        await peer.gone()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url) as transport:
        assert "65536" in (await broken(transport)).cause
        await endpoint.until(lambda: endpoint.open == 0)


async def test_body_without_end_is_cut_off_at_the_limit(ca: trustme.CA, endpoint_tls: ssl.SSLContext | None) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(CHUNKED)
        while not peer._writer.is_closing():
            peer.send(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await peer.drain()

    async with Endpoint(script, endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        assert "65536" in (await broken(transport)).cause
        await endpoint.until(lambda: endpoint.open == 0)


@pytest.mark.parametrize(
    ("flood", "said"),
    [
        (b"X-Endless: " + b"x" * 1_000_000, "headers"),
        (b"X-Many: x\r\n" * 100_000, "headers"),
        (b"\r\nHTTP/1.1 100 Continue\r\n" * 100_000, "headers"),
        (b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 1_000_000, "no end"),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X-Trailer: x\r\n" * 100_000, "no end"),
    ],
    ids=["one header", "many headers", "interim answers", "chunk extension", "trailers"],
)
async def test_flood_in_the_place_of_an_answer_is_cut_off(flood: bytes, said: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        first = b"HTTP/1.1 103 Hints\r\n" if b"100 Continue" in flood else b"HTTP/1.1 200 OK\r\n"
        peer.send(first + flood)
        await peer.gone()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url) as transport:
        assert said in (await broken(transport)).cause
        await endpoint.until(lambda: endpoint.open == 0)


async def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with Endpoint(answering(interim + answer())) as endpoint, a_transport(endpoint.url) as transport:
        for _ in range(3):
            assert (await transport.post(b"{}")).body == b"ok"
        assert len(endpoint.peers) == 1


async def test_answer_of_version_1_0_ends_with_its_connection(
    ca: trustme.CA, endpoint_tls: ssl.SSLContext | None
) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(b"HTTP/1.0 200 OK\r\n\r\no")
        peer.send(b"k")
        peer.close()

    async with Endpoint(script, endpoint_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        for _ in range(3):
            assert (await transport.post(b"{}")).body == b"ok"
        assert len(endpoint.peers) == 3


@pytest.mark.parametrize("reply", [answer(b"ok", "Connection: close"), answer(version="1.0")])
async def test_connection_that_is_said_to_close_is_not_used_again(reply: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(reply)
        await peer.gone()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url) as transport:
        for _ in range(3):
            assert (await transport.post(b"{}")).body == b"ok"
        await endpoint.until(lambda: endpoint.open == 0)
        assert len(endpoint.peers) == 3


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok",
        CHUNKED + b"2\r\nok\r\n",
        CHUNKED + b"2\r\nok\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\n\r\nok",
    ],
    ids=["body", "chunks", "trailer", "headers", "until the end"],
)
async def test_answer_that_is_torn_off_is_broken(reply: bytes) -> None:
    """A reset is no end of a body, even of one that ends with its connection."""

    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(reply)
        await peer.drain()
        peer.reset()

    async with Endpoint(script) as endpoint, a_transport(endpoint.url) as transport:
        await broken(transport)
        assert len(endpoint.peers) == 1  # something of an answer had come: not asked twice


async def test_tls_that_ends_without_farewell_is_no_end_of_a_body(ca: trustme.CA, server_tls: ssl.SSLContext) -> None:
    """Whoever can cut the wire must not be able to shorten an answer."""

    async def script(peer: Peer) -> None:
        await peer.question()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\nok")
        await peer.drain()
        peer.cut()

    async with Endpoint(script, server_tls) as endpoint, a_transport(endpoint.url, ca) as transport:
        await broken(transport)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2\r\nContent-Length: 2",
        b"Content-Length: 2\r\nContent-Length: 3",
        b"Content-Length: 2, 2",
        b"Content-Length: +2",
        b"Content-Length: -2",
        b"Content-Length: 0x2",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: identity",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Content-Encoding: gzip\r\nContent-Length: 2",
        b"Content-Encoding: identity, br\r\nContent-Length: 2",
        b"Content-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 2",
        b"Content-Length : 2",
        b"X: a\r\n b\r\nContent-Length: 2",
        b"X: a\x00b\r\nContent-Length: 2",
        b"no colon\r\nContent-Length: 2",
    ],
)
async def test_answer_that_two_readers_could_read_differently_is_broken(headers: bytes) -> None:
    """Conflicting lengths, compression, line folding (R4.1)."""
    body = b"2\r\nok\r\n0\r\n\r\n" if b"chunked" in headers else b"ok"
    reply = b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n\r\n" + body
    async with Endpoint(answering(reply)) as endpoint, a_transport(endpoint.url) as transport:
        await broken(transport)
        await endpoint.until(lambda: endpoint.open == 0)


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/0.9 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nok",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
        b"<html>",
        b'{"response": {}}',
    ],
)
async def test_what_is_no_http_answer_is_broken(reply: bytes) -> None:
    async with Endpoint(answering(reply)) as endpoint, a_transport(endpoint.url) as transport:
        await broken(transport)


@pytest.mark.parametrize("headers", ["Content-Encoding: identity", "Content-Encoding: Identity", "X-Upgrade: h2c"])
async def test_harmless_headers_are_harmless(headers: str) -> None:
    async with Endpoint(answering(answer(b"ok", headers))) as endpoint, a_transport(endpoint.url) as transport:
        assert (await transport.post(b"{}")).body == b"ok"


async def test_refused_connection_is_broken_and_told_with_its_address_only() -> None:
    async with Endpoint(answering()) as endpoint:
        url = endpoint.url
    async with a_transport(url, token="s3cret") as transport:
        error = await broken(transport)
    assert str(error) == "the request failed"
    assert error.cause.endswith(f"127.0.0.1:{endpoint.port}: the connection was refused")
    assert "s3cret" not in error.cause
    assert "team" not in error.cause  # the query may hold what nobody should read in a log


async def test_an_address_that_cannot_be_connected_to_is_told_with_the_systems_reason() -> None:
    """The event loop says which call failed; an operator needs why."""
    everybody = Address(socket.AF_INET, ("255.255.255.255", 9))  # no kernel connects to all
    with pytest.raises(Unreachable) as failed:
        await dial([everybody], tls=None, server_name="", generation=0, delay=1.0)
    reasons = [os.strerror(number) for number in (errno.EACCES, errno.ENETUNREACH, errno.EINVAL)]
    assert str(failed.value) in [f"255.255.255.255:9: {reason}" for reason in reasons]


@pytest.mark.parametrize("token", ["", "a\r\nX-Evil: 1", "a b", "ä", "a\n", "\x7f"])
def test_token_that_would_break_a_header_is_never_sent(token: str) -> None:
    with pytest.raises(ValueError, match="break a header"):
        Transport(parse_webhook_url("http://127.0.0.1/"), timeout=1.0, token=token)


def test_https_without_a_context_and_http_with_one_are_refused() -> None:
    """A slip of the caller must not send a question in the clear."""
    with pytest.raises(ValueError, match="TLS"):
        Transport(parse_webhook_url("https://127.0.0.1/"), timeout=1.0)


async def test_closed_transport_asks_nothing_more() -> None:
    async with Endpoint(answering()) as endpoint:
        transport = a_transport(endpoint.url)
        await transport.post(b"{}")
        await transport.close()
        await transport.close()
        await endpoint.until(lambda: endpoint.open == 0)
        assert "closed" in (await broken(transport)).cause
        assert len(endpoint.questions) == 1
