"""A folder with a configuration in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dexaflow.base.errors import ConfigError, ConfigErrors
from dexaflow.config import Config, load_config

Load = Callable[..., Config]
Problems = Callable[..., list[ConfigError]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load YAML text, with environment variables as keywords."""

    def loaded(text: str | bytes = "", **environ: str) -> Config:
        file = tmp_path / "dexaflow.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(file, environ, base_dir=tmp_path)

    return loaded


@pytest.fixture
def problems(load: Load) -> Problems:
    """Return what is wrong with a configuration."""

    def found(text: str | bytes = "", **environ: str) -> list[ConfigError]:
        try:
            load(text, **environ)
        except ConfigErrors as errors:
            return list(errors.problems)
        return []

    return found
