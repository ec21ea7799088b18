"""For every test."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The machine is shared, and no test asserts a speed; all else as Hypothesis has it, in CI or out of it.
settings.register_profile("dexaflow", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dexaflow")


@pytest.fixture(scope="session", autouse=True)
def _own_loop() -> Iterator[None]:
    """Give synchronous tests a loop that is closed: pytest-asyncio asks for one, and one made up is never closed."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
