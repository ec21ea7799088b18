"""The tutorial and the other pages with a thread through them, followed to the end by somebody with a clone alone."""

import pytest

from tests.docs.blocks import ROOT, steps_of
from tests.docs.reader import Reader


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md", "docs/operating.md", "docs/dags.md", "docs/api.md"])
def test_who_follows_the_page_sees_what_it_says(reader: Reader, name: str) -> None:
    """Every block is done in the order of the page; its outputs are there."""
    for step in steps_of(ROOT / name):
        reader.take(step)
