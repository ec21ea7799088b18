"""Our transport and aiohttp before the same endpoints; where they differ, a line says why ours is right (R4.1, R7)."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
import trustme

from dexaflow.base.errors import HookBroken
from tests.hooks.asking import LONG, SHORT, a_transport
from tests.hooks.behaviours import BEHAVIOURS, Behaviour
from tests.hooks.misbehaving import Endpoint

QUESTIONS = 3


def said(status: int, body: bytes) -> str:
    """A whole answer in a word."""
    if status != 200 or body in (b"ok", b"ok" * 32_768):
        return f"{status}"
    return f"200 {body[:1].hex() if body[:1] < b' ' else body[:2].decode('latin-1')}"


def patience(behaviour: Behaviour) -> float:
    """The timeout: short only where it is waited for."""
    return SHORT if "late" in (behaviour.ours, behaviour.aiohttp) else LONG


async def verdict(endpoint: Endpoint, ask: Callable[[bytes], Awaitable[str]], expected: str) -> str:
    """Ask some questions one after another and say what came of them; one is enough to wait for in vain."""
    outcomes = [await ask(b"%d" % number) for number in range(1 if expected == "late" else QUESTIONS)]
    different = list(dict.fromkeys(outcomes))
    if different == ["late"]:
        return "late"  # on how many connections is up to how quick the endpoint was to take them
    return f"{different[0] if len(different) == 1 else ', '.join(outcomes)} on {len(endpoint.peers)}"


async def ours(behaviour: Behaviour, tls: ssl.SSLContext | None, ca: trustme.CA) -> str:
    async with (
        Endpoint(behaviour.script, tls) as endpoint,
        a_transport(endpoint.url, ca, timeout=patience(behaviour), max_connections=1) as transport,
    ):

        async def ask(body: bytes) -> str:
            try:
                response = await transport.post(body)
            except HookBroken as error:
                return "late" if error.timed_out else "broken"
            return said(response.status, response.body)

        found = await verdict(endpoint, ask, behaviour.ours)
        heads = {question.partition(b"\r\n\r\n")[0] for question in endpoint.questions}
        assert len(heads) <= 1, "nothing of an answer shows in the next question"
        return found


async def theirs(behaviour: Behaviour, tls: ssl.SSLContext | None, ca: trustme.CA) -> str:
    context: ssl.SSLContext | bool = True
    if tls is not None:
        context = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    async with Endpoint(behaviour.script, tls) as endpoint:
        timeout, connector = (
            aiohttp.ClientTimeout(total=patience(behaviour)),
            aiohttp.TCPConnector(limit=1, ssl=context),
        )
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=headers) as session:

            async def ask(body: bytes) -> str:
                try:
                    async with session.post(endpoint.url, data=body) as response:
                        return said(response.status, await response.read())
                except TimeoutError:
                    return "late"
                except aiohttp.ClientError:
                    return "broken"

            return await verdict(endpoint, ask, behaviour.aiohttp or behaviour.ours)


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_both_see_the_same_or_ours_is_right(name: str, ca: trustme.CA, server_tls: ssl.SSLContext) -> None:
    behaviour = BEHAVIOURS[name]
    assert bool(behaviour.aiohttp) is bool(behaviour.why)
    for wire in behaviour.wires:
        tls = server_tls if wire else None
        seen = await asyncio.gather(ours(behaviour, tls, ca), theirs(behaviour, tls, ca))
        assert seen[0] == behaviour.ours
        assert seen[1] in (behaviour.aiohttp or behaviour.ours).split(" or ")
