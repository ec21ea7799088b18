"""`dexaflow admission check-answer --jsonl`: many answers, one JSON object a line in, one out."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dexaflow.admission.check_answer import AnswerCheck, check_answer
from dexaflow.admission.envelope import placement
from dexaflow.base.text import quoted
from dexaflow.cli.output import json_text
from dexaflow.policy.policy import Policy

__all__ = ["CheckedLine", "as_json", "check_lines"]


_KEYS = frozenset({"name", "body_b64", "uid", "priority_classes", "service_accounts"})


@dataclass(frozen=True, slots=True)
class CheckedLine:
    """What is written for one line; `readable` is false when the line was no question at all."""

    text: str
    readable: bool


class _BadLine(Exception):  # noqa: N818 - caught here
    """A line that cannot be read; `name` is what it calls itself, as far as that can be told."""

    def __init__(self, problem: str, name: Any = None) -> None:  # Any: any JSON value
        super().__init__(problem)
        self.name = name


def check_lines(lines: Iterable[bytes], defaults: Policy) -> Iterator[CheckedLine]:
    """Yield one line for each line that is not blank.

    A line that cannot be read gives an object with its `name`, as far as it has one, and an `error`; the rest goes on.
    """
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        try:
            yield CheckedLine(json_text(_check(line, defaults)), readable=True)
        except _BadLine as bad:
            yield CheckedLine(json_text({"name": bad.name, "error": f"line {number}: {bad}"}), readable=False)


def as_json(check: AnswerCheck) -> dict[str, object]:
    """Return a check as it is printed. `problem` is null when nothing is wrong."""
    return {
        "verdict": str(check.verdict),
        "reason": check.reason,
        "changes": placement(check.changes),
        "problem": check.problem or None,
    }


def _check(line: bytes, defaults: Policy) -> dict[str, object]:
    try:
        item = json.loads(line.decode("utf-8"), object_pairs_hook=_Object)
    except UnicodeDecodeError as error:
        raise _BadLine(f"it is not UTF-8 at byte {error.start}; write it as UTF-8") from None
    except (ValueError, RecursionError):
        raise _BadLine("it is not JSON; write one object a line") from None
    if not isinstance(item, _Object):
        raise _BadLine('it is not an object; write {"name": ..., "body_b64": ...}')
    name = item.get("name")
    if item.twice:
        raise _BadLine(f"{quoted(item.twice[0])[1:-1]} is given twice; keep one of them", _text_or_number(name))
    if unknown := sorted(item.keys() - _KEYS):
        fix = f"a line has {', '.join(sorted(_KEYS))}"
        raise _BadLine(f"there is no key {quoted(unknown[0])}; {fix}", _text_or_number(name))
    if not isinstance(name, str):
        raise _BadLine("it has no name; give it one, a string", _text_or_number(name))
    uid = item.get("uid")
    if uid is not None and not isinstance(uid, str):
        raise _BadLine("its uid is not a string; write one, or leave it out", name)
    check = check_answer(
        _body(item, name),
        uid=uid,
        priority_classes=_names(item, "priority_classes", defaults.priority_classes, name),
        service_accounts=_names(item, "service_accounts", defaults.service_accounts, name),
    )
    return {"name": name, **as_json(check)}


def _text_or_number(name: object) -> str | int | None:
    """Return a name that can be given back: Python reads NaN and 1e999, and nobody reads what it writes for them."""
    return name if isinstance(name, str | int) else None


class _Object(dict[str, Any]):  # Any: decoded JSON
    """An object, and the keys that were written twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice = sorted(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)


def _body(item: dict[str, Any], name: str) -> bytes:  # Any: decoded JSON
    body = item.get("body_b64")
    if not isinstance(body, str):
        raise _BadLine("it has no body_b64; give the answer's body in base64", name)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise _BadLine("its body_b64 is not base64; encode the answer's body", name) from None


def _names(
    item: dict[str, Any], key: str, default: frozenset[str] | None, name: str
) -> frozenset[str] | None:  # Any: decoded JSON
    """Return the list of names under `key`: null is one that is not set, absent leaves it to the configuration."""
    if key not in item:
        return default
    value = item[key]
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _BadLine(f"its {key} is not a list of strings; write one, or null for a list that is not set", name)
    return frozenset(value)
