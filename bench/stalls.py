"""Endpoints that stall: how long after the timeout the review ends, and whether the next one works.

The pool has one connection, so that what a stall leaves behind would be in the next review's way. The endpoint is in
the same process: it does nothing, which costs nothing.
"""

import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trustme
import uvloop
from tests.hooks.misbehaving import Endpoint, Peer, answer, full_backlog

from bench.asking import Counting, checked, gate_of
from bench.scale import Scale
from bench.table import Line, line
from dexaflow.admission.results import Admitted, Held
from dexaflow.hooks.addresses import Address, Resolver
from dexaflow.hooks.webhook import WebhookCaller

__all__ = ["STALLS", "each"]

TIMEOUT = 0.5  # the default
DRIP = 0.02  # seconds between two bytes of what is slow
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def _well(peer: Peer) -> None:
    """Admit everything."""
    while (body := await peer.question()) is not None:
        uid = body.partition(b'"uid":"')[2][:36]
        peer.send(answer(
            b'{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview",'
            b'"response":{"uid":"' + uid + b'","decision":"admit"}}'
        ))  # fmt: skip


async def _silent(peer: Peer) -> None:
    await peer.question()
    await peer.gone()


async def _slow_headers(peer: Peer) -> None:
    await peer.question()
    peer.send(HEAD)
    await peer.drip(b"X-Padding: " + b"y" * 10_000, every=DRIP)


async def _slow_body(peer: Peer) -> None:
    await peer.question()
    peer.send(HEAD + b"Content-Length: 10000\r\n\r\n")
    await peer.drip(b" " * 10_000, every=DRIP)


async def _endless_body(peer: Peer) -> None:
    await peer.question()
    peer.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    await peer.drip(b"1\r\n \r\n" * 10_000, every=DRIP / 6)


async def _half_closed(peer: Peer) -> None:
    await peer.question()
    peer.close_half_below_tls()
    await peer.gone()


# What the first connection of each does once TLS is up; None where it does not come so far.
STALLS: dict[str, Callable[[Peer], Awaitable[None]] | None] = {
    "DNS silent": None,
    "SYN dropped": None,
    "TLS silent": None,
    "no status": _silent,
    "slow headers": _slow_headers,
    "slow body": _slow_body,
    "endless body": _endless_body,
    "half-closed": _half_closed,
}


async def _measure(stall: str, folder: Path, authority: trustme.CA) -> tuple[float, bool]:
    """Return the seconds that the review took beyond the timeout, and whether the next one came through."""
    script = STALLS[stall]
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)

    async def play(peer: Peer) -> None:
        if stall == "TLS silent" and peer.number == 1:
            return await peer.gone()
        await peer.start_tls(tls)
        return await (script if script and peer.number == 1 else _well)(peer)

    async with Endpoint(play) as asked, full_backlog() as dropping:
        ports = [dropping] if stall == "SYN dropped" else []
        awake = threading.Event()  # the name server
        if stall != "DNS silent":
            awake.set()

        def lookup(host: str, port: int) -> Sequence[Address]:
            awake.wait()
            return [Address(socket.AF_INET, ("127.0.0.1", ports.pop() if ports else port))]

        caller = WebhookCaller(
            f"https://localhost:{asked.port}/admit", timeout=TIMEOUT, ca_file=folder / "ca.pem", max_connections=1,
            resolver=Resolver("localhost", asked.port, lookup=lookup),
        )  # fmt: skip
        async with caller:
            gate = gate_of([caller], Counting())
            began = time.perf_counter()
            first = await gate.review(checked())
            took = time.perf_counter() - began
            assert isinstance(first, Held), first
            assert first.broken
            awake.set()
            second = await gate.review(checked())
    return took - TIMEOUT, isinstance(second, Admitted)


def each(scale: Scale) -> list[Line]:
    """Every stall, on a pool of one connection."""
    lines: list[Line] = []
    worked: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as name:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(Path(name) / "ca.pem"))
        for stall in STALLS:
            found = [uvloop.run(_measure(stall, Path(name), authority)) for _ in range(scale.repeats)]
            worked[stall] = all(works for _, works in found)
            late = [seconds * 1000 for seconds, _ in found]
            lines.append(line(f"stall, {stall}: over the timeout of 500 ms", late, unit="ms", in_flight=1,
                              at_most=100))  # fmt: skip
    works = sum(worked.values())
    lines.append(line("stalls after which the next review on a pool of one works", [works], in_flight=1,
                      at_least=len(STALLS)))  # fmt: skip
    return lines
