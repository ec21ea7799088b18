"""A Lite of one's own for each test, an endpoint that it asks, and a walk through all steps of the line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.endpoint import Endpoint, endpoint
from tests.system.evils import Walk, walk
from tests.system.lite import Lite, lite


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Lite]:
    with lite(tmp_path) as made:
        yield made


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[Endpoint]:
    with endpoint(tmp_path / "policy") as made:
        yield made


@pytest.fixture
def walking(tmp_path: Path) -> Iterator[Walk]:
    with walk(tmp_path) as made:
        yield made
