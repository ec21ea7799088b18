"""A real database with a clock that tests move."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.world import World, opened


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(opened("sqlite", tmp_path)).lead()
    yield made
    made.engine.dispose()
