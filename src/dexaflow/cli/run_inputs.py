"""What people write about a new run, read or refused with a line."""

import json
import math
import sys
from datetime import datetime
from typing import Any, NoReturn

from dexaflow.base.errors import UsageError
from dexaflow.base.text import quoted

__all__ = ["conf_from", "moment_from"]

MAX_CONF_BYTES = 64 * 1024  # the server's limit; what is larger need not be sent
MAX_READ_BYTES = 1024 * 1024
_FIX = """write an object, as '{"rows": 10}', or @FILE"""


def conf_from(written: str) -> dict[str, Any]:  # Any: JSON
    """Return a run's conf: JSON as written, or that of a file after an ``@``, ``@-`` being standard input.

    Raises:
        UsageError: it cannot be read, is not JSON, or is no object.
    """
    text = _content(written[1:]) if written.startswith("@") else written
    try:
        conf = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise UsageError(f"--conf is not JSON: {error.msg} at character {error.pos + 1}; {_FIX}") from None
    except RecursionError:
        raise UsageError("--conf is nested too deeply; flatten it") from None
    except ValueError as error:
        raise UsageError(f"--conf cannot be used: {error}; {_FIX}") from None
    if not isinstance(conf, dict):
        raise UsageError(f"--conf is {_kind(conf)}, not an object; {_FIX}")
    _check_values(conf)
    if len(json.dumps(conf, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")) > MAX_CONF_BYTES:
        raise UsageError("--conf has more than 64 KiB; pass the name of a file or table that holds the rest")
    return conf


def _check_values(conf: dict[str, Any]) -> None:
    """See that it holds nothing that the server would not take."""
    waiting: list[Any] = [conf]
    while waiting:
        match waiting.pop():
            case str() as text if any("\ud800" <= c <= "\udfff" for c in text):
                raise UsageError("--conf holds half of a surrogate pair; write whole characters")
            case str() as text if "\0" in text:
                raise UsageError("--conf holds a NUL character; leave it out")
            case bool():
                pass
            case int() as number if not -(2**63) <= number < 2**63:
                raise UsageError("--conf holds a number beyond 64 bits; write it as text")
            case float() as number if not math.isfinite(number):
                raise UsageError("--conf holds a number beyond 64 bits; write it as text")
            case list() as items:
                waiting.extend(items)
            case dict() as fields:
                waiting.extend((*fields.keys(), *fields.values()))


def _content(name: str) -> str:
    try:
        with sys.stdin.buffer if name == "-" else open(name, "rb") as source:
            content = source.read(MAX_READ_BYTES + 1)
    except OSError as error:
        raise UsageError(f"--conf: {name} cannot be read: {error.strerror}; name a file of JSON") from None
    except ValueError:
        raise UsageError("--conf: no file has a name like that; name a file of JSON") from None
    if len(content) > MAX_READ_BYTES:
        raise UsageError(f"--conf: {name} has more than {MAX_READ_BYTES} bytes; a conf may have 64 KiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"--conf: {name} is not UTF-8 at byte {error.start}; save it as UTF-8") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {quoted(twice)} is given twice")
    return found


def _kind(value: object) -> str:
    return {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def moment_from(written: str) -> str:
    """Return a date and time with its zone, as the API takes it; one without a zone is local.

    Raises:
        UsageError: it is none.
    """
    try:
        found = datetime.fromisoformat(written.strip())
        return (found if found.tzinfo is not None else found.astimezone()).isoformat()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--logical-date {quoted(written)} is no date and time; write it like 2026-01-31T06:00:00+01:00"
        ) from None
