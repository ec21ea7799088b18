"""What the tests of the transport have in common."""

import ssl
import time

import pytest
import trustme

from dexaflow.base.errors import HookBroken
from dexaflow.hooks.addresses import Resolver
from dexaflow.hooks.tls import client_context
from dexaflow.hooks.transport import IDLE_SECONDS, MAX_CONNECTIONS, Transport
from dexaflow.hooks.url import parse_webhook_url

__all__ = ["LONG", "SHORT", "a_transport", "broken", "timed_out"]

SHORT = 0.2  # seconds; a timeout that a test waits for
LONG = 20.0  # one that it does not


def a_transport(
    url: str,
    ca: trustme.CA | None = None,
    *,
    timeout: float = LONG,
    token: str | None = None,
    resolver: Resolver | None = None,
    idle_seconds: float = IDLE_SECONDS,
    max_connections: int = MAX_CONNECTIONS,
) -> Transport:
    """Return a transport to `url` that trusts `ca`."""
    endpoint = parse_webhook_url(url)
    tls: ssl.SSLContext | None = None
    if endpoint.tls:
        tls = client_context(ca.cert_pem.bytes() if ca else None)
    return Transport(
        endpoint,
        timeout=timeout,
        tls=tls,
        token=token,
        resolver=resolver,
        idle_seconds=idle_seconds,
        max_connections=max_connections,
    )


async def broken(transport: Transport, body: bytes = b"{}") -> HookBroken:
    """Ask, and return why there was no answer; it must not be for want of time."""
    with pytest.raises(HookBroken) as caught:
        await transport.post(body)
    assert not caught.value.timed_out, caught.value.cause
    return caught.value


async def timed_out(transport: Transport, body: bytes = b"{}", *, after: float = SHORT) -> HookBroken:
    """Ask, and see the question end at its deadline: not before, and not much later."""
    began = time.monotonic()
    with pytest.raises(HookBroken) as caught:
        await transport.post(body)
    took = time.monotonic() - began
    assert caught.value.timed_out, caught.value.cause
    assert after - 0.001 <= took < after + 2.0  # the second bound only tells "at it" from "never"
    assert caught.value.seconds is not None
    assert abs(caught.value.seconds - took) < 1.0
    return caught.value
