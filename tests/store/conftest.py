"""A real database of every engine there is, brought up by the real migrations, and a clock that tests move."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.store.world import ENGINES, World, opened


@pytest.fixture(params=list(ENGINES))
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = opened(request.param, tmp_path)
    yield engine
    engine.dispose()


@pytest.fixture
def world(engine: Engine) -> World:
    return World(engine).lead()
