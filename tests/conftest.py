"""For every test."""

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_loop() -> Iterator[None]:
    """Give synchronous tests a loop that is closed: pytest-asyncio asks for one, and one made up is never closed."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
