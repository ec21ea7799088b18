"""CPU per question of the transport, beside a bare aiohttp POST loop, in one run against one TLS endpoint.

    .venv/bin/python bench/transport_rough.py [--questions N] [--in-flight N] [--rounds N] [--loop uvloop|asyncio]

The endpoint is a process of its own, so that its CPU is not counted. The two take turns, round by round, and the
figure for each is its best round: what disturbs a machine only ever makes a round slower.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import ssl
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import aiohttp
import trustme
import uvloop

from dexaflow.hooks.tls import client_context
from dexaflow.hooks.transport import Transport
from dexaflow.hooks.url import parse_webhook_url

QUESTION = b'{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview","request":{%b}}' % (
    b'"field":"x",' * 60
)
ANSWER = (
    b'{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview","response":{"uid":"'
    b'6f1c2a8e-0d4b-4f5e-9a3c-2b7d8e1f0a42","decision":"admit","changes":{"node_selector":{"tenant":"acme"}}}}'
)
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)

Ask = Callable[[], Awaitable[None]]


class Endpoint(asyncio.Protocol):
    """Answers every POST alike, with as little work as possible."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is none by inheritance

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
            self._transport.write(RESPONSE)


def serve(pipe: Connection, certificate: bytes) -> None:
    """The endpoint's process."""

    async def main() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with trustme.Blob(certificate).tempfile() as path:
            context.load_cert_chain(path)
        server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", 0, ssl=context)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main())


async def cpu_per_question(ask: Ask, questions: int, in_flight: int) -> float:
    """Return microseconds of this process's CPU for each of `questions`."""
    left = iter(range(questions))

    async def asker() -> None:
        for _ in left:
            await ask()

    began = time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(asker())
    return (time.process_time() - began) / questions * 1e6


async def compare(port: int, bundle: bytes, arguments: argparse.Namespace) -> None:
    """Measure both, and print the figures."""
    url = f"https://127.0.0.1:{port}/admit"
    context = client_context(bundle)
    endpoint = parse_webhook_url(url)
    async with (
        Transport(endpoint, timeout=30.0, tls=context, token="a-token") as transport,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=16, ssl=context)) as session,
    ):

        async def ours() -> None:
            response = await transport.post(QUESTION)
            assert response.body == ANSWER

        async def theirs() -> None:
            async with session.post(url, data=QUESTION, headers={"Authorization": "Bearer a-token"}) as response:
                assert await response.read() == ANSWER

        best = {ours: float("inf"), theirs: float("inf")}
        for ask in best:
            await cpu_per_question(ask, 500, arguments.in_flight)  # connections opened, code warm
        for _ in range(arguments.rounds):
            for ask in best:
                best[ask] = min(best[ask], await cpu_per_question(ask, arguments.questions, arguments.in_flight))
    print(f"transport {best[ours]:7.1f} us of CPU per question")
    print(f"aiohttp   {best[theirs]:7.1f} us of CPU per question")
    print(f"ratio     {best[ours] / best[theirs]:7.2f}")


def main() -> None:
    """Parse the arguments, start the endpoint and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=5000, help="in one round (default 5000)")
    parser.add_argument("--in-flight", type=int, default=16, help="questions at once (default 16)")
    parser.add_argument("--rounds", type=int, default=5, help="of each (default 5)")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop", help="event loop (default uvloop)")
    arguments = parser.parse_args()
    ca = trustme.CA()
    certificate = ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes()
    here, there = multiprocessing.Pipe()
    endpoint = multiprocessing.get_context("spawn").Process(target=serve, args=(there, certificate), daemon=True)
    endpoint.start()
    run = uvloop.run if arguments.loop == "uvloop" else asyncio.run
    try:
        run(compare(here.recv(), ca.cert_pem.bytes(), arguments))
    finally:
        endpoint.terminate()
        endpoint.join()


if __name__ == "__main__":
    main()
