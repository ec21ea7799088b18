"""A reader for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reader import Reader


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path / "reader")
    yield made
    made.close()
