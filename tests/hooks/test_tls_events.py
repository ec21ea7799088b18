"""What TLS may do after its handshake: new keys, tickets, another handshake. The endpoint is `openssl s_server`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from dexaflow.base.errors import HookBroken
from tests.hooks.asking import LONG, a_transport
from tests.hooks.misbehaving import answer
from tests.hooks.servers import program


class Terminal:
    """An `openssl s_server`, used like its user does: it shows what it gets, and sends or does what is typed."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.url = f"https://localhost:{port}/"
        self._type, self._screen = process.stdin, process.stdout

    async def shows(self, text: bytes) -> bytes:
        """Wait until it has shown `text`; return what it showed before."""
        return await self._screen.readuntil(text)

    def types(self, text: bytes) -> None:
        """Type something."""
        self._type.write(text)


@contextlib.asynccontextmanager
async def terminal(folder: Path, ca: trustme.CA, *options: str) -> AsyncIterator[Terminal]:
    """Give an `openssl s_server` that listens."""
    file = folder / "server.pem"
    ca.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file))
    process = await asyncio.create_subprocess_exec(
        program("openssl"), "s_server", "-accept", "127.0.0.1:0", "-cert", str(file), "-key", str(file), *options,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        await process.stdout.readuntil(b"ACCEPT ")
        port = int((await process.stdout.readline()).rpartition(b":")[2])
        yield Terminal(process, port)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("key", [b"K", b"k"], ids=["ours too", "its own"])
async def test_new_keys_under_way_are_no_failure(key: bytes, tmp_path: Path, ca: trustme.CA) -> None:
    """While a question is out, and while the connection is idle; it goes on being used."""
    async with (
        terminal(tmp_path, ca, "-tls1_3", "-msg") as server,
        a_transport(server.url, ca, max_connections=1) as transport,
    ):
        for number in (1, 2, 3):
            ask = asyncio.create_task(transport.post(b"question %d." % number))
            shown = await server.shows(b"question %d." % number)
            assert (b"CIPHER is" in shown) is (number == 1)  # shown once for a connection
            server.types(key + b"\n")
            await server.shows(b"KeyUpdate")
            server.types(answer(b"%d" % number))
            assert (await ask).body == b"%d" % number
            server.types(key + b"\n")
            await server.shows(b"KeyUpdate")


@pytest.mark.parametrize("tickets", [0, 1, 20])
async def test_tickets_are_no_bytes_that_nobody_asked_for(tickets: int, tmp_path: Path, ca: trustme.CA) -> None:
    async with terminal(tmp_path, ca, "-tls1_3", "-num_tickets", str(tickets)) as server:
        async with a_transport(server.url, ca, max_connections=1) as transport:
            for number in (1, 2, 3):
                ask = asyncio.create_task(transport.post(b"question %d." % number))
                shown = await server.shows(b"question %d." % number)
                assert (b"CIPHER is" in shown) is (number == 1)  # shown once for a connection
                server.types(answer(b"%d" % number))
                assert (await ask).body == b"%d" % number


async def test_another_handshake_is_not_agreed_to(tmp_path: Path, ca: trustme.CA) -> None:
    """That question fails, at once; the next goes on a new connection."""
    async with terminal(tmp_path, ca, "-tls1_2") as server, a_transport(server.url, ca, max_connections=1) as transport:
        ask = asyncio.create_task(transport.post(b"question 1."))
        await server.shows(b"question 1.")
        server.types(b"r\n")
        with pytest.raises(HookBroken) as caught:
            await ask
        assert not caught.value.timed_out
        assert caught.value.seconds is not None
        assert caught.value.seconds < LONG
        ask = asyncio.create_task(transport.post(b"question 2."))
        await server.shows(b"question 2.")
        server.types(answer(b"2"))
        assert (await ask).body == b"2"
