"""What no value can be judged by alone: keys that need each other, and the files behind the webhook's."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dexaflow.base.errors import ConfigError
from dexaflow.base.text import quoted
from dexaflow.config.schema import AgentConfig
from dexaflow.hooks.files import MAX_BUNDLE_BYTES, MAX_TOKEN_BYTES, token_in
from dexaflow.hooks.tls import TrustError, client_context

__all__ = ["check_together"]

WEBHOOK = "execution.admission.webhook"
UNIT = "execution.unit"
_MAX_PATH = 300  # characters of a path that are quoted: its end tells which file


def check_together(values: Mapping[str, Any], broken: frozenset[str]) -> Iterator[ConfigError]:
    """Yield what is wrong with values that are each fine.

    Args:
        values: What is given, by key, as read.
        broken: Keys that are given but could not be read; they are told of already.
    """
    yield from _webhook_files(values, broken)
    yield from _unit(values, broken)
    yield from _agent(values, broken)


def _webhook_files(values: Mapping[str, Any], broken: frozenset[str]) -> Iterator[ConfigError]:
    url = f"{WEBHOOK}.url"
    for name, check in (("ca_file", _ca_problem), ("token_file", _token_problem)):
        key = f"{WEBHOOK}.{name}"
        if key not in values:
            continue
        if url not in values and url not in broken:
            # Whoever mounts a token believes that admission is on.
            yield ConfigError(
                key, f"is set, but {url} is not: no webhook is asked", "set the url, or take this key out"
            )
        problem = check(values[key])
        if problem is not None:
            yield ConfigError(key, *problem)


def _unit(values: Mapping[str, Any], broken: frozenset[str]) -> Iterator[ConfigError]:
    parts = {f"{UNIT}.cpu", f"{UNIT}.memory"}
    given = parts & (values.keys() | broken)
    if len(given) == 1:
        (there,), (missing,) = given, parts - given
        yield ConfigError(missing, f"is not set, but {there} is", "set both or neither")


def _agent(values: Mapping[str, Any], broken: frozenset[str]) -> Iterator[ConfigError]:
    if {"agent.heartbeat", "agent.silence"} & broken:
        return
    default = AgentConfig()
    heartbeat = values.get("agent.heartbeat", default.heartbeat)
    silence = values.get("agent.silence", default.silence)
    if silence < 2 * heartbeat:
        yield ConfigError(
            "agent.silence",
            f"{silence:g}s is less than two heartbeats of {heartbeat:g}s",
            f"write {2 * heartbeat:g}s or more, or shorten agent.heartbeat",
        )


def _content(path: Path, max_bytes: int) -> bytes | str:
    """Return a file's content, or why there is none, in words that do not name it."""
    try:
        if not path.is_file():
            return "is not a file" if path.exists() else "names a file that does not exist"
        with open(path, "rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or 'no such path'}"
    return content if len(content) <= max_bytes else f"has more than {max_bytes} bytes"


def _ca_problem(path: Path) -> tuple[str, str] | None:
    content = _content(path, MAX_BUNDLE_BYTES)
    if isinstance(content, str):
        return _named(path, content), "write the path of a readable PEM file"
    try:
        client_context(content)
    except TrustError as error:
        return f"{quoted(str(path), _MAX_PATH)}: {error}", "name a file of PEM certificates"
    return None


def _named(path: Path, problem: str) -> str:
    """Return what is wrong with a file, and which one, as far as that is a path: people mix up paths and secrets."""
    if os.path.lexists(path) or re.fullmatch(r"\.[a-z]{2,6}", path.suffix):
        return f"{quoted(str(path), _MAX_PATH)} {problem}"
    return f"{problem} in {quoted(str(path.parent), _MAX_PATH)}" if path.parent.is_dir() else problem


def _token_problem(path: Path) -> tuple[str, str] | None:
    """Return what is wrong with a token's file (R2.3). Neither token nor path is quoted: people mix them up."""
    content = _content(path, MAX_TOKEN_BYTES + 2)
    if isinstance(content, str):
        return content, "write the path of a readable file that holds the token"
    try:
        token_in(content)
    except ValueError as error:
        return f"the token in its file cannot be used: {error}", "write visible ASCII into the file, on one line"
    return None
