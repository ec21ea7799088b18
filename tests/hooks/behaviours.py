"""What an endpoint may do with a question, each as a script, and what a client is to make of it.

A verdict says what three questions, one after another on a pool of one connection, come to: the status of a whole
answer (`200` with the body `ok` where nothing else is said), `broken`, or `late`, and how many connections that took.
"""

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.hooks.misbehaving import Peer, Script, answer

__all__ = ["BEHAVIOURS", "Behaviour", "at_once", "says"]


PLAIN, TLS, BOTH = (False,), (True,), (False, True)


@dataclass(frozen=True)
class Behaviour:
    """One script; `aiohttp` is aiohttp's verdict where it is another than ours, and `why` says why ours is right."""

    script: Script
    ours: str
    aiohttp: str = ""
    why: str = ""
    wires: tuple[bool, ...] = PLAIN  # without TLS, with it


def says(reply: bytes, *, then: Callable[[Peer], None] | None = None, pieces: bool = False) -> Script:
    """Answer each question so, and after it do something with the connection."""

    async def script(peer: Peer) -> None:
        while await peer.question() is not None:
            if pieces:
                await peer.drip(reply, every=0)
            else:
                peer.send(reply)
            if then is not None:
                await peer.drain()
                then(peer)
        await peer.gone()

    return script


def at_once(*, of: bytes = b"", then: Callable[[Peer], None] | None = None) -> Script:
    """Wait for no question."""

    async def script(peer: Peer) -> None:
        if of:
            peer.send(of)
            await peer.drain()
        if then is not None:
            then(peer)
        await peer.gone()

    return script


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines]).encode("latin-1") + b"\r\n\r\n"


def chunked(wire: bytes, *lines: str) -> bytes:
    return head("Transfer-Encoding: chunked", *lines) + wire


def status(line: str, *lines: str, body: bytes = b"") -> Behaviour:
    """An answer whose status is all there is to it."""
    reply = head(f"Content-Length: {len(body)}", *lines, status=line) + body
    return Behaviour(says(reply), f"{line[:3]} on 1")


OK = answer()
END = b"0\r\n\r\n"
ZSTD_OK = b"\x28\xb5\x2f\xfd\x20\x02\x11\x00\x00ok"  # one raw block
BROTLI_OK = b"\x0b\x00\x80ok\x03"
BOMB = gzip.compress(b"x" * 1_000_000)
INTERIM = head("Link: </x>", status="103 Early Hints")

DOUBT = "R4.1: two readers could read it differently, and one of them may stand between us and the endpoint"
PACKED = "R4.1: not asked for, and a limit on bytes must hold for what comes out as well"
LIMIT = "spec: at most 64 KiB, and nothing is read past it"
IDLE = "R7.5: a dead idle connection is not a broken endpoint; the question goes out again on a new one"
WHOLE = "the answer is whole; what comes after it is nobody's, and ends its connection, not the question"
LEFT = "bytes that nobody asked for end their connection, whatever they are"
NO_ASKING = "not asked for: what follows is no HTTP, so that nothing in it is an answer"
VERSION = "what a version that nobody here speaks means by these bytes is a guess"

BEHAVIOURS: dict[str, Behaviour] = {
    # Whole answers
    "length": Behaviour(says(OK), "200 on 1", wires=BOTH),
    "byte by byte": Behaviour(says(OK, pieces=True), "200 on 1", wires=BOTH),
    "chunks": Behaviour(says(chunked(b"1\r\no\r\n1\r\nk\r\n" + END)), "200 on 1", wires=BOTH),
    "chunk extension": Behaviour(says(chunked(b'2;a="b"\r\nok\r\n' + END)), "200 on 1"),
    "trailers": Behaviour(says(chunked(b"2\r\nok\r\n0\r\nX: y\r\n\r\n")), "200 on 1"),
    "no reason": Behaviour(says(b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok"), "200 on 1"),
    "no reason, no blank": Behaviour(says(b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok"), "200 on 1"),
    "reason in Latin-1": Behaviour(says(answer(status="200 \xfc")), "200 on 1"),
    "small letters": Behaviour(says(b"HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nok"), "200 on 1"),
    "header without value": Behaviour(says(answer(b"ok", "X:")), "200 on 1"),
    "header in Latin-1": Behaviour(says(answer(b"ok", "X: \xfc")), "200 on 1"),
    "a page of HTML": Behaviour(says(answer(b"ok", "Content-Type: text/html")), "200 on 1"),
    "cookies": Behaviour(says(answer(b"ok", *(f"Set-Cookie: c{n}=1; Path=/" for n in range(50)))), "200 on 1"),
    "an invitation elsewhere": Behaviour(
        says(answer(b"ok", 'Alt-Svc: h2="localhost:1"', "Refresh: 0; url=/x", "Strict-Transport-Security: max-age=9")),
        "200 on 1",
    ),
    "an invitation to upgrade": Behaviour(says(answer(b"ok", "Connection: Upgrade", "Upgrade: h2c")), "200 on 1"),
    "60,000 bytes of headers": Behaviour(says(answer(b"ok", *(f"X-{n}: {'y' * 590}" for n in range(100)))), "200 on 1"),
    "body of 64 KiB": Behaviour(says(answer(b"ok" * 32_768)), "200 on 1"),
    # Interim answers
    "100 first": Behaviour(says(head(status="100 Continue") + OK), "200 on 1"),
    "102 first": Behaviour(says(head(status="102 Processing") + OK), "200 on 1"),
    "103 first": Behaviour(says(INTERIM * 3 + OK), "200 on 1"),
    "103 first, byte by byte": Behaviour(says(INTERIM + OK, pieces=True), "200 on 1"),
    "199 first": Behaviour(says(head(status="199 Odd") + OK), "200 on 1"),
    "100 of length 0 first": Behaviour(says(head("Content-Length: 0", status="100 Continue") + OK), "200 on 1"),
    "100 with a body first": Behaviour(
        says(head("Content-Length: 2", status="100 Continue") + b"no" + OK), "broken on 3"
    ),
    "100 with a body first, byte by byte": Behaviour(
        says(head("Content-Length: 2", status="100 Continue") + b"no" + OK, pieces=True), "broken on 3"
    ),
    "100 in chunks first": Behaviour(
        says(head("Transfer-Encoding: chunked", status="100 Continue") + b"2\r\nno\r\n" + END + OK), "broken on 3"
    ),
    "101": Behaviour(
        says(head("Upgrade: x", "Connection: upgrade", status="101 Switching Protocols") + OK),
        "broken on 3",
        aiohttp="101 on 3",
        why=NO_ASKING,
    ),
    "101 without a word to what": Behaviour(
        says(head(status="101 Switching Protocols") + OK), "broken on 3", aiohttp="101 on 1", why=NO_ASKING
    ),
    "100 and no more": Behaviour(says(head(status="100 Continue")), "late"),
    # Other statuses
    "201": status("201 Created", body=b"ok"),
    "202": status("202 Accepted", body=b"ok"),
    "203": status("203 Non-Authoritative Information", body=b"ok"),
    "204": Behaviour(says(head(status="204 No Content")), "204 on 1"),
    "204 with a length": Behaviour(says(head("Content-Length: 2", status="204 No Content")), "204 on 1"),
    "205": status("205 Reset Content"),
    "206": status("206 Partial Content", "Content-Range: bytes 0-1/9", body=b"ok"),
    "304": Behaviour(says(head(status="304 Not Modified")), "304 on 1"),
    **{
        f"{code}": Behaviour(
            says(head("Location: /elsewhere", "Content-Length: 0", status=f"{code} Elsewhere")),
            f"{code} on 1",
            aiohttp=f"broken on {connections}",
            why="spec: redirects are not followed",
        )
        for code, connections in ((301, 3), (302, 3), (303, 3), (307, 1), (308, 1))
    },
    **{
        f"{code}": Behaviour(
            says(head("Location: /elsewhere", "Content-Length: 0", status=f"{code} Elsewhere")), f"{code} on 1"
        )
        for code in (300, 305, 306, 399)
    },
    "400": status("400 Bad Request", body=b"ok"),
    "401": status("401 Unauthorized", "WWW-Authenticate: Basic realm=x"),
    "407": status("407 Proxy Authentication Required", "Proxy-Authenticate: Basic realm=x"),
    "408": status("408 Request Timeout"),
    "413": status("413 Content Too Large"),
    "417": status("417 Expectation Failed"),
    "421": status("421 Misdirected Request"),
    "425": status("425 Too Early"),
    "426": status("426 Upgrade Required", "Upgrade: h2c", "Connection: Upgrade"),
    "429": status("429 Too Many Requests", "Retry-After: 0"),
    "500": status("500 Oops", body=b"ok"),
    "500 with a long body": Behaviour(
        says(head("Content-Length: 400000", status="500 Oops") + b"x" * 400_000),
        "500 on 3",
        aiohttp="500 on 1",
        why="the status has decided; nobody waits for the rest, and its connection is given up",
    ),
    "503": status("503 Busy", "Retry-After: 0"),
    "511": status("511 Network Authentication Required"),
    "status of 999": status("999 Odd"),
    "status of 099": Behaviour(says(answer(status="099 Odd")), "99 on 1"),
    "status of 000": Behaviour(says(answer(status="000 Odd")), "0 on 1"),
    "status of two digits": Behaviour(says(answer(status="20 OK")), "broken on 3"),
    "status of four digits": Behaviour(says(answer(status="2000 OK")), "broken on 3"),
    "status with a sign": Behaviour(says(answer(status="+200 OK")), "broken on 3"),
    # Which length?
    "no length": Behaviour(says(head() + b"ok", then=Peer.close), "200 on 3", wires=BOTH),
    "no length, version 1.0": Behaviour(says(b"HTTP/1.0 200 OK\r\n\r\nok", then=Peer.close), "200 on 3", wires=BOTH),
    "length twice": Behaviour(says(head("Content-Length: 2", "Content-Length: 2") + b"ok"), "broken on 3"),
    "two lengths": Behaviour(says(head("Content-Length: 2", "Content-Length: 3") + b"ok"), "broken on 3"),
    "a list of lengths": Behaviour(says(head("Content-Length: 2, 2") + b"ok"), "broken on 3"),
    "length with a plus": Behaviour(says(head("Content-Length: +2") + b"ok"), "broken on 3"),
    "length with a minus": Behaviour(says(head("Content-Length: -2") + b"ok"), "broken on 3"),
    "length in hex": Behaviour(says(head("Content-Length: 0x2") + b"ok"), "broken on 3"),
    "length with an underscore": Behaviour(says(head("Content-Length: 0_2") + b"ok"), "broken on 3"),
    "length without number": Behaviour(says(head("Content-Length:") + b"ok"), "broken on 3"),
    "length of 2^64 + 2": Behaviour(says(head(f"Content-Length: {2**64 + 2}") + b"ok"), "broken on 3"),
    "length and chunks": Behaviour(says(chunked(b"2\r\nok\r\n" + END, "Content-Length: 2")), "broken on 3"),
    "chunks twice": Behaviour(
        says(chunked(b"2\r\nok\r\n" + END, "Transfer-Encoding: chunked")), "broken on 3", aiohttp="200 on 1", why=DOUBT
    ),
    "chunks of chunks": Behaviour(
        says(head("Transfer-Encoding: chunked, chunked") + b"2\r\nok\r\n" + END),
        "broken on 3",
        aiohttp="200 on 1",
        why=DOUBT,
    ),
    "identity": Behaviour(
        says(head("Transfer-Encoding: identity") + b"ok", then=Peer.close), "broken on 3", aiohttp="200 on 3", why=DOUBT
    ),
    "identity and a length": Behaviour(
        says(head("Transfer-Encoding: identity", "Content-Length: 2") + b"ok"), "broken on 3"
    ),
    "chunks in capitals": Behaviour(says(head("Transfer-Encoding: CHUNKED") + b"2\r\nok\r\n" + END), "200 on 1"),
    "an encoding like chunked": Behaviour(
        says(head("Transfer-Encoding: xchunked") + b"2\r\nok\r\n" + END), "broken on 3", aiohttp="late", why=DOUBT
    ),
    "chunks in version 1.0": Behaviour(
        says(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + END),
        "broken on 3",
        aiohttp="200 on 3",
        why=DOUBT,
    ),
    # Compressed
    "gzip": Behaviour(
        says(answer(gzip.compress(b"ok"), "Content-Encoding: gzip")), "broken on 3", aiohttp="200 on 1", why=PACKED
    ),
    "x-gzip": Behaviour(
        says(answer(gzip.compress(b"ok"), "Content-Encoding: x-gzip")), "broken on 3", aiohttp="200 1f on 1", why=PACKED
    ),
    "deflate": Behaviour(
        says(answer(zlib.compress(b"ok"), "Content-Encoding: deflate")), "broken on 3", aiohttp="200 on 1", why=PACKED
    ),
    "brotli": Behaviour(says(answer(BROTLI_OK, "Content-Encoding: br")), "broken on 3"),
    "zstd": Behaviour(says(answer(ZSTD_OK, "Content-Encoding: zstd")), "broken on 3"),
    "gzip in chunks": Behaviour(
        says(
            chunked(b"%x\r\n%b\r\n" % (len(gzip.compress(b"ok")), gzip.compress(b"ok")) + END, "Content-Encoding: gzip")
        ),
        "broken on 3",
        aiohttp="200 on 1",
        why=PACKED,
    ),
    "gzip as transfer encoding": Behaviour(
        says(head("Transfer-Encoding: gzip, chunked") + b"%x\r\n%b\r\n" % (22, gzip.compress(b"ok")) + END),
        "broken on 3",
        aiohttp="200 1f on 1",
        why=PACKED,
    ),
    "gzip that is none": Behaviour(says(answer(b"ok", "Content-Encoding: gzip")), "broken on 3"),
    "gzip of a megabyte": Behaviour(
        says(answer(BOMB, "Content-Encoding: gzip")), "broken on 3", aiohttp="200 xx on 1", why=PACKED
    ),
    "an encoding nobody knows": Behaviour(
        says(answer(b"ok", "Content-Encoding: rot13")), "broken on 3", aiohttp="200 on 1", why=PACKED
    ),
    "identity by name": Behaviour(says(answer(b"ok", "Content-Encoding: identity")), "200 on 1"),
    # Not HTTP
    "bare line feeds": Behaviour(
        says(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), "broken on 3", aiohttp="200 on 1", why=DOUBT
    ),
    "an empty line first": Behaviour(says(b"\r\n" + OK), "200 on 1"),
    "a folded header": Behaviour(says(answer(b"ok", "X: a\r\n b")), "broken on 3", aiohttp="200 on 1", why=DOUBT),
    "a blank before the colon": Behaviour(
        says(head("Content-Length : 2") + b"ok"), "broken on 3", aiohttp="200 on 1", why=DOUBT
    ),
    "no colon": Behaviour(says(answer(b"ok", "no colon")), "broken on 3"),
    "no name": Behaviour(says(answer(b"ok", ": x")), "broken on 3"),
    "a zero byte": Behaviour(says(answer(b"ok", "X: a\0b")), "broken on 3"),
    "a bare carriage return": Behaviour(says(answer(b"ok", "X: a\rb")), "broken on 3"),
    "version 0.9": Behaviour(says(answer(version="0.9")), "broken on 3", aiohttp="200 on 3", why=VERSION),
    "version 1.2": Behaviour(says(answer(version="1.2")), "broken on 3"),
    "version 2.0": Behaviour(says(answer(version="2.0")), "broken on 3", aiohttp="200 on 3", why=VERSION),
    "small http": Behaviour(says(OK.replace(b"HTTP", b"http")), "broken on 3"),
    "another protocol": Behaviour(says(b"SSH-2.0-OpenSSH_9.2\r\n"), "broken on 3"),
    "HTTP/2": Behaviour(says(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00"), "broken on 3"),
    "a body alone": Behaviour(says(b"ok"), "broken on 3"),
    "a request": Behaviour(says(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "broken on 3"),
    # Chunks that are none
    "chunk without size": Behaviour(says(chunked(b"\r\nok\r\n" + END)), "broken on 3"),
    "chunk size of no number": Behaviour(says(chunked(b"z\r\nok\r\n" + END)), "broken on 3"),
    "chunk size in 0x": Behaviour(says(chunked(b"0x2\r\nok\r\n" + END)), "broken on 3"),
    "chunk size with a minus": Behaviour(says(chunked(b"-2\r\nok\r\n" + END)), "broken on 3"),
    "chunk size above 2^64": Behaviour(says(chunked(b"10000000000000002\r\nok\r\n" + END)), "broken on 3"),
    "chunk longer than its size": Behaviour(says(chunked(b"2\r\nokok\r\n" + END)), "broken on 3"),
    "chunk with bare line feeds": Behaviour(says(chunked(b"2\nok\n0\n\n")), "broken on 3"),
    # Too much
    "body of 64 KiB and a byte": Behaviour(
        says(answer(b"x" * 65_537)), "broken on 3", aiohttp="200 xx on 1", why=LIMIT
    ),
    "chunks of 64 KiB and a byte": Behaviour(
        says(chunked(b"10001\r\n" + b"x" * 65_537 + b"\r\n" + END)), "broken on 3", aiohttp="200 xx on 1", why=LIMIT
    ),
    "length of a gigabyte": Behaviour(
        says(head("Content-Length: 1073741824") + b"ok"), "broken on 3", aiohttp="late", why=LIMIT
    ),
    "a header of 100,000 bytes": Behaviour(says(answer(b"ok", "X: " + "y" * 100_000)), "broken on 3"),
    "20,000 headers": Behaviour(says(answer(b"ok", *("X: y" for _ in range(20_000)))), "broken on 3"),
    # More or less than one answer
    "two answers": Behaviour(says(OK + OK), "200 on 3"),
    "two answers, the second another": Behaviour(says(OK + answer(b"no")), "200 on 3"),
    "an empty line after": Behaviour(says(OK + b"\r\n"), "200 on 3", aiohttp="200 on 1", why=LEFT),
    "a byte after": Behaviour(says(OK + b"x"), "200 on 3", aiohttp="broken on 3", why=WHOLE),
    "a byte after the last chunk": Behaviour(
        says(chunked(b"2\r\nok\r\n" + END + b"x")), "200 on 3", aiohttp="broken on 3", why=WHOLE
    ),
    "silence": Behaviour(says(b""), "late"),
    "half the body": Behaviour(says(head("Content-Length: 9") + b"ok"), "late"),
    "no last chunk": Behaviour(says(chunked(b"2\r\nok\r\n")), "late"),
    "no length and no end": Behaviour(says(head() + b"ok"), "late"),
    # Ways to close
    "closes at once": Behaviour(at_once(then=Peer.close), "broken on 3", wires=BOTH),
    "resets at once": Behaviour(at_once(then=Peer.reset), "broken on 3", wires=BOTH),
    "closes when asked": Behaviour(says(b"", then=Peer.close), "broken on 3", wires=BOTH),
    "resets when asked": Behaviour(says(b"", then=Peer.reset), "broken on 3", wires=BOTH),
    "closes its side when asked": Behaviour(says(b"", then=Peer.close_half), "broken on 3"),
    "closes in the status": Behaviour(says(b"HTTP/1.", then=Peer.close), "broken on 3", wires=BOTH),
    "closes in the headers": Behaviour(says(b"HTTP/1.1 200 OK\r\nX", then=Peer.close), "broken on 3", wires=BOTH),
    "closes after the headers": Behaviour(says(head("Content-Length: 2"), then=Peer.close), "broken on 3", wires=BOTH),
    "closes in the body": Behaviour(
        says(head("Content-Length: 3") + b"ok", then=Peer.close), "broken on 3", wires=BOTH
    ),
    "resets in the body": Behaviour(
        says(head("Content-Length: 3") + b"ok", then=Peer.reset), "broken on 3", wires=BOTH
    ),
    "closes in a chunk": Behaviour(says(chunked(b"9\r\nok"), then=Peer.close), "broken on 3", wires=BOTH),
    "closes before the last chunk": Behaviour(
        says(chunked(b"2\r\nok\r\n"), then=Peer.close), "broken on 3", wires=BOTH
    ),
    "closes in the trailers": Behaviour(
        says(chunked(b"2\r\nok\r\n0\r\nX: "), then=Peer.close), "broken on 3", wires=BOTH
    ),
    "closes after 100": Behaviour(says(head(status="100 Continue"), then=Peer.close), "broken on 3", wires=BOTH),
    "resets instead of an end": Behaviour(
        says(head() + b"ok", then=Peer.reset),
        "broken on 3",
        aiohttp="200 on 3",
        why="a reset is no end: the rest may be missing",
    ),
    "cuts the wire instead of an end": Behaviour(
        says(head() + b"ok", then=Peer.cut),
        "broken on 3",
        aiohttp="200 on 3",
        why="with TLS only a farewell is an end: whoever can cut the wire must not shorten an answer",
        wires=TLS,
    ),
    "closes after each answer": Behaviour(
        says(OK, then=Peer.close), "200 on 3", wires=BOTH, aiohttp="200, broken, 200 on 2 or 200 on 3", why=IDLE
    ),
    "resets after each answer": Behaviour(
        says(OK, then=Peer.reset), "200 on 3", aiohttp="200, broken, 200 on 2", why=IDLE
    ),
    "cuts the wire after each answer": Behaviour(
        says(OK, then=Peer.cut), "200 on 3", wires=BOTH, aiohttp="200, broken, 200 on 2", why=IDLE
    ),
    "closes its side after each answer": Behaviour(
        says(OK, then=Peer.close_half), "200 on 3", aiohttp="200, broken, 200 on 2", why=IDLE
    ),
    "says that it closes, and does not": Behaviour(says(answer(b"ok", "Connection: close")), "200 on 3"),
    "says that it closes among others": Behaviour(says(answer(b"ok", "Connection: x, Close")), "200 on 3"),
    "version 1.0 that stays": Behaviour(says(answer(b"ok", "Connection: keep-alive", version="1.0")), "200 on 1"),
    "version 1.0 that does not say": Behaviour(says(answer(version="1.0")), "200 on 3"),
}
