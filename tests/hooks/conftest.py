"""Everything that asks over a socket is tested on both event loops: asyncio's own and uvloop, the server's."""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping

import pytest
import trustme
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Name the event loops of this folder's tests."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    """The authority that signs the endpoints' certificates."""
    return trustme.CA()


@pytest.fixture(scope="session")
def server_tls(ca: trustme.CA) -> ssl.SSLContext:
    """An endpoint's side of TLS, with a certificate for loopback."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", "127.0.0.1", "::1").configure_cert(context)
    return context


@pytest.fixture(params=["http", "https"])
def endpoint_tls(request: pytest.FixtureRequest, server_tls: ssl.SSLContext) -> Iterator[ssl.SSLContext | None]:
    """The endpoint's TLS: none, and some."""
    yield server_tls if request.param == "https" else None
