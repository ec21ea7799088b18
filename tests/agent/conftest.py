from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.executors.world import World, a_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A server, an executor and its agents, all real."""
    async with a_world(tmp_path) as world:
        yield world
