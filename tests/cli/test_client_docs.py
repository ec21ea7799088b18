"""docs/cli.md has every command, and a command line starts without what it does not need."""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dexaflow.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every command below, by its whole name."""
    below = getattr(command, "commands", None)
    if not below:
        yield name, command
        return
    for word, sub in below.items():
        yield from commands(sub, f"{name} {word}")


def sections() -> dict[str, str]:
    """Return what the page says about each command."""
    parts = re.split(r"^### `(.+)`$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_and_option_is_in_the_reference() -> None:
    page = sections()
    found = dict(commands(typer.main.get_command(app), "dexaflow"))
    assert set(found) == set(page)
    for name, command in found.items():
        for parameter in command.params:
            words = [o for o in parameter.opts if o.startswith("--")] or [parameter.metavar or parameter.name.upper()]
            for word in words:
                assert "| `" + word.replace("|", "\\|") in page[name] or f", `{word}" in page[name], (name, word)


def test_the_version_is_the_one_that_is_installed() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "dexaflow.cli.main", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"dexaflow {importlib.metadata.version('dexaflow')}\n"


def test_every_command_says_what_it_does() -> None:
    for name, command in commands(typer.main.get_command(app), "dexaflow"):
        assert command.help, name
        for parameter in command.params:
            assert parameter.help, (name, parameter.name)


def test_the_help_needs_nothing_that_is_slow_to_import() -> None:
    slow = ("rich", "sqlalchemy", "fastapi", "pydantic", "asyncio", "ssl", "yaml", "msgspec", "structlog", "uvicorn")
    look = f"import sys, dexaflow.cli.main; print([name for name in {slow!r} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "[]\n", ended.stderr
