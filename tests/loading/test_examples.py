"""The example DAGs are what they say."""

from pathlib import Path

import pytest

from dexaflow.loading.loader import Loaded, load_file

EXAMPLES = Path(__file__).parents[2] / "examples" / "dags"


@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("*.py")))
async def test_an_example_loads_without_a_word(file: str) -> None:
    loaded = await load_file(EXAMPLES, file, timeout=30)

    assert isinstance(loaded, Loaded), loaded
    assert (loaded.errors, loaded.output) == ((), "")
    assert loaded.dags
