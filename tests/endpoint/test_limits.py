"""What whoever can connect may ask of an endpoint, with a token or without."""

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from dexaflow.admission.decisions import Decision, Request, admit
from dexaflow.admission.envelope import question
from dexaflow.endpoint import asgi_app
from dexaflow.endpoint.app import Endpoint
from dexaflow.endpoint.heads import MAX_HEAD_BYTES, BoundedHeads
from tests.endpoint.conftest import serving
from tests.hooks.building import a_request

REQUEST = a_request()


async def hook(request: Request) -> Decision:
    return admit(labels={"uid": request.uid})


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return await asyncio.open_connection(parts.hostname, parts.port)


def posted(body: bytes, *headers: str) -> bytes:
    lines = ["POST /admit HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def test_a_head_without_end_is_not_read_on() -> None:
    """Nobody has shown a token yet, and uvicorn would keep all of it."""
    async with serving(asgi_app(hook, token="t")) as url:
        _, writer = await connect(url)
        writer.write(b"POST /admit HTTP/1.1\r\nX: ")

        async def send_without_end() -> None:
            while True:
                writer.write(b"x" * MAX_HEAD_BYTES)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(send_without_end(), 30)
        writer.close()


@pytest.mark.parametrize("begun", [b"", b"POST /admit HTTP/1.1\r\nHost: x\r\n"])
async def test_a_head_that_does_not_come_ends_the_connection(begun: bytes) -> None:
    class Hasty(BoundedHeads):
        head_seconds = 0.05

    async with serving(asgi_app(hook), Hasty) as url:
        reader, writer = await connect(url)
        writer.write(begun)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
        writer.close()


async def test_a_body_that_does_not_come_is_a_problem() -> None:
    app = asgi_app(hook)
    assert isinstance(app, Endpoint)

    async with serving(replace(app, body_seconds=0.05)) as url:
        reader, writer = await connect(url)
        writer.write(posted(question(REQUEST))[:-1])
        answered = await reader.read()
        writer.close()

    assert answered.startswith(b"HTTP/1.1 408 ")


async def test_questions_one_after_the_other_may_be_as_large_as_they_are() -> None:
    """Not even together in one packet does one count for the head of the next."""
    large = replace(REQUEST, execution=replace(REQUEST.execution, annotations={"a": "x" * 200_000}))
    body = question(large)

    async with serving(asgi_app(hook)) as url:
        reader, writer = await connect(url)
        writer.write(posted(body) * 4 + posted(body, "Connection: close"))
        answered = await reader.read()
        writer.close()

    assert answered.count(b"HTTP/1.1 200 OK") == 5


async def test_a_question_of_two_megabytes_keeps_no_other_waiting() -> None:
    """It takes most of a second to read, on the loop that every other question is answered on."""
    order: list[str] = []

    async def noting(request: Request) -> Decision:
        order.append(request.uid)
        return admit()

    endpoint = asgi_app(noting)
    assert isinstance(endpoint, Endpoint)
    annotations = {f"k{n}": "v" for n in range(50_000)}
    large = replace(REQUEST, uid="large", execution=replace(REQUEST.execution, annotations=annotations))

    first = asyncio.create_task(endpoint._admit(question(large)))
    await asyncio.sleep(0)
    await endpoint._admit(question(replace(REQUEST, uid="small")))
    await first

    assert order == ["small", "large"]
