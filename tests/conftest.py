"""For every test."""

import asyncio
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The machine is shared, and no test asserts a speed; all else as Hypothesis has it, in CI or out of it.
settings.register_profile("dexaflow", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dexaflow")

# Ignored in what a script starts with `&` or `nohup`, and then in all that tests start and want to interrupt.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture(scope="session", autouse=True)
def _own_loop() -> Iterator[None]:
    """Give synchronous tests a loop that is closed: pytest-asyncio asks for one, and one made up is never closed."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
