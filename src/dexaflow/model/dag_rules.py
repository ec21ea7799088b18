"""What a DAG and its tasks may say: one function for each kind of value, used by authoring and by `from_json`.

Each returns the value in its one form, or raises `RuleError` with half a sentence that follows the value's
name ("must be a whole number from 0, got '3'"). Whoever calls knows the place and adds it.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from dexaflow.base.text import quoted
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution, Resources

__all__ = [
    "EXECUTION_FIELDS",
    "MAX_ID_LENGTH",
    "MAX_SECONDS",
    "ONCE",
    "OPERATORS",
    "PRESETS",
    "RESOURCE_NAMES",
    "RuleError",
    "TriggerRule",
    "cron",
    "environment",
    "execution",
    "find_cycle",
    "flag",
    "identifier",
    "image",
    "joined",
    "moment",
    "pool",
    "resources",
    "seconds",
    "shown",
    "tags",
    "text",
    "text_map",
    "trigger_rule",
    "whole",
]

MAX_ID_LENGTH = 250  # Airflow's
MAX_SECONDS = 10 * 366 * 86_400.0  # ten years: adding it to any date of ours stays a date
MAX_WHOLE = 2**31 - 1  # what every database column holds
MAX_TEXT_BYTES = 65_536  # half of what Linux takes as one argument or variable of a new process
MAX_NAME_LENGTH = 256  # of pools and environment variables

OPERATORS = ("python", "bash")
RESOURCE_NAMES = ("cpu", "memory", "ephemeral-storage")  # R2.1: others are unknown fields
EXECUTION_FIELDS = (
    "service_account",
    "node_selector",
    "tolerations",
    "labels",
    "annotations",
    "priority_class_name",
)
_TOLERATION_FIELDS = ("key", "operator", "value", "effect")

ONCE = "@once"  # a schedule that comes once, at the start date; the one preset that is no cron
PRESETS: Mapping[str, str] = MappingProxyType(
    {
        "@hourly": "0 * * * *",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@weekly": "0 0 * * 0",
        "@monthly": "0 0 1 * *",
        "@quarterly": "0 0 1 */3 *",
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
    }
)


class RuleError(ValueError):
    """A value that cannot be used; the message follows the name of the thing."""


class TriggerRule(StrEnum):
    """When a task starts, by the states of the tasks directly upstream of it. Airflow's words and meanings."""

    ALL_SUCCESS = "all_success"
    ALL_FAILED = "all_failed"
    ALL_DONE = "all_done"
    ALL_DONE_MIN_ONE_SUCCESS = "all_done_min_one_success"
    ALL_SKIPPED = "all_skipped"
    ONE_SUCCESS = "one_success"
    ONE_FAILED = "one_failed"
    ONE_DONE = "one_done"
    NONE_FAILED = "none_failed"
    NONE_FAILED_MIN_ONE_SUCCESS = "none_failed_min_one_success"
    NONE_SKIPPED = "none_skipped"
    ALWAYS = "always"


_NO_NAME = re.compile(r"[^A-Za-z0-9_.\-]")  # what the names of variables do not hold, though they may
_ID = re.compile(r"[A-Za-z0-9_.\-]+")
_CRON_FIELD = re.compile(r"[A-Za-z0-9*/,#\-]+")


def shown(value: object) -> str:
    """Return `value` as one short line for an error message: quoted when text, else its type and a short form."""
    if value is None:
        return "None"
    return quoted(str.__str__(value)) if isinstance(value, str) else f"{type(value).__name__} {_short(value)}".rstrip()


def _kind(value: object) -> str:
    return "None" if value is None else "text" if isinstance(value, str) else type(value).__name__


def _name(value: object) -> str:
    """Return a variable's name up to where it is none: in `{"NAME: value": ""}` it holds the value."""
    assert isinstance(value, str)
    return shown(_NO_NAME.split(value, maxsplit=1)[0])


Show = Callable[[object], str]


def joined(name: str, error: RuleError) -> str:
    """Return what is wrong with the value called `name`; what is wrong inside it names the place with a dot or [."""
    said = str(error)
    return f"{name}{said}" if said.startswith((".", "[")) else f"{name} {said}"


def _short(value: object) -> str:
    return ascii(value) if isinstance(value, bool | int | float) and abs(value) < 1e18 else ""


def identifier(value: object) -> str:
    """A dag_id or task_id: letters, digits, dashes, dots and underscores, at most 250; not dots alone."""
    if not isinstance(value, str):
        raise RuleError(f"must be text, got {shown(value)}")
    if not value or len(value) > MAX_ID_LENGTH:
        raise RuleError(f"must have 1 to {MAX_ID_LENGTH} characters, has {len(value)}")
    if not _ID.fullmatch(value):
        raise RuleError(f"may hold ASCII letters, digits, dashes, dots and underscores only, got {shown(value)}")
    if not value.strip("."):
        raise RuleError(f"must hold more than dots, got {shown(value)}")  # '..' is a way out of a folder
    return value


def whole(value: object, least: int) -> int:
    """A whole number from `least` to what a database column holds."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise RuleError(f"must be a whole number from {least}, got {shown(value)}")
    if value > MAX_WHOLE:
        raise RuleError(f"must be at most {MAX_WHOLE}")
    return int(value)


def seconds(value: object, *, above_zero: bool) -> float:
    """A duration in seconds, up to ten years."""
    least = "above 0" if above_zero else "from 0"
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise RuleError(f"must be seconds, got {shown(value)}")
    if (isinstance(value, float) and math.isnan(value)) or value < 0 or (above_zero and value == 0):
        raise RuleError(f"must be {least} seconds, got {shown(value)}")
    if value > MAX_SECONDS:
        raise RuleError("must be at most ten years")
    return float(value) + 0.0  # -0.0 becomes 0.0


def flag(value: object) -> bool:
    """True or False, nothing that only looks like it."""
    if not isinstance(value, bool):
        raise RuleError(f"must be True or False, got {shown(value)}")
    return value


def text(
    value: object, *, least: int = 0, most: int = MAX_TEXT_BYTES, one_line: bool = False, show: Show = shown
) -> str:
    """Text that can be stored and sent: valid Unicode without NUL; `one_line` forbids control characters too."""
    if not isinstance(value, str):
        raise RuleError(f"must be text, got {show(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise RuleError(f"holds a lone surrogate: {show(value)}") from None
    if not least <= size <= most:
        raise RuleError(f"must have {least} to {most} bytes of UTF-8, has {size}")
    if "\0" in value:
        raise RuleError("holds a NUL character")
    if one_line and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in value):
        raise RuleError(f"holds a control character: {show(value)}")
    return str(value)


def text_map(
    value: object, *, values_of: str = "value", show: Show = shown, show_key: Show = shown
) -> Mapping[str, str]:
    """A mapping of text to text, read-only. `show`, `show_key`: how messages show values and keys."""
    if not isinstance(value, Mapping):
        raise RuleError(f"must be a mapping of text to text, got {show(value)}")
    result: dict[str, str] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise RuleError(f"has a key that is not text: {show(key)}")
        if not isinstance(item, str):
            raise RuleError(f"[{show_key(key)}]: the {values_of} must be text, got {show(item)}; put it in quotes")
        try:
            result[text(key, show=show)] = text(item, show=show)
        except RuleError as error:
            raise RuleError(f"[{show_key(key)}]: {error}") from None
    return MappingProxyType(result)


def environment(value: object) -> Mapping[str, str]:
    """Environment variables. Names under ``DEXAFLOW_`` are ours and refused. No value is quoted: it may be a secret."""
    result = text_map(value, show=_kind, show_key=_name)
    for name in result:
        if not name or "=" in name or len(name) > MAX_NAME_LENGTH:
            raise RuleError(f"[{_name(name)}]: a name has 1 to {MAX_NAME_LENGTH} characters and no '='")
        if name.upper().startswith("DEXAFLOW_"):
            raise RuleError(f"[{_name(name)}]: names under DEXAFLOW_ are set by Dexaflow; choose another")
    return result


def trigger_rule(value: object) -> str:
    """One of `TriggerRule`, as plain text."""
    if not isinstance(value, str) or value not in TriggerRule.__members__.values():
        raise RuleError(f"must be one of {', '.join(TriggerRule)}, got {shown(value)}")
    return str(TriggerRule(value))


def cron(value: object) -> str | None:
    """A schedule: None, five cron fields separated by one space, or a preset. Whether it ever comes is not asked."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise RuleError(f"must be None, five cron fields or a preset like @daily, got {shown(value)}")
    if value.startswith("@"):
        if value != ONCE and value not in PRESETS:
            raise RuleError(f"must be one of {ONCE}, {', '.join(PRESETS)}, or five cron fields, got {shown(value)}")
        return value
    fields = value.split()
    if len(fields) == 6:
        raise RuleError(f"must be five cron fields: seconds cannot be scheduled, got {shown(value)}")
    if len(fields) != 5 or not all(_CRON_FIELD.fullmatch(f) for f in fields):
        raise RuleError(f"must be five cron fields like '30 6 * * 1-5', or a preset like @daily, got {shown(value)}")
    return " ".join(fields)


def pool(value: object) -> str:
    """The name of a pool; whether there is one is asked when the task is due."""
    return text(value, least=1, most=MAX_NAME_LENGTH, one_line=True)


def image(value: object) -> str:
    """A container image; whether it is a reference, and an allowed one, is the policy's question."""
    return text(value, most=4096, one_line=True)


def tags(value: object) -> tuple[str, ...]:
    """Tags without repetition, in the order given (a set is sorted)."""
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise RuleError(f"must be a list of text, got {shown(value)}")
    for item in value:
        try:
            text(item, least=1, most=100, one_line=True)
        except RuleError as error:
            raise RuleError(f"[{shown(item)}]: {error}") from None
    return tuple(dict.fromkeys(sorted(value) if isinstance(value, set | frozenset) else value))


def _only(value: Mapping[Any, object], known: Iterable[str]) -> None:
    names = tuple(known)
    for key in value:
        if key not in names:
            raise RuleError(f"has the unknown field {shown(key)}; known are {', '.join(names)}")


def resources(value: object) -> Resources | None:
    """Requests and limits; quantities as written (a bare number is taken as its text). None: declares none."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise RuleError(f"must be a mapping with requests and limits, got {shown(value)}")
    _only(value, ("requests", "limits"))
    sides = {}
    for side in ("requests", "limits"):
        amounts = value.get(side, {})
        if not isinstance(amounts, Mapping):
            raise RuleError(f".{side} must be a mapping of resource to quantity, got {shown(amounts)}")
        try:
            _only(amounts, RESOURCE_NAMES)
            sides[side] = text_map({k: _quantity(v) for k, v in amounts.items()}, values_of="quantity")
        except RuleError as error:
            raise RuleError(joined(f".{side}", error)) from None
    return Resources(**sides)


def _quantity(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18:
        return repr(value)
    return value


def execution(value: object) -> Execution:
    """Placement and identity, in Kubernetes' words. Whether Kubernetes would take it is the policy's question."""
    if value is None:
        return Execution()
    if not isinstance(value, Mapping):
        raise RuleError(f"must be a mapping of {', '.join(EXECUTION_FIELDS)}, got {shown(value)}")
    _only(value, EXECUTION_FIELDS)
    try:
        name = "service_account"
        service_account = text(value.get(name, ""))
        name = "priority_class_name"
        priority_class_name = text(value.get(name, ""))
        maps = {}
        for name in ("node_selector", "labels", "annotations"):
            maps[name] = text_map(value.get(name, {}))
        name = "tolerations"
        tolerations = _tolerations(value.get(name, ()))
    except RuleError as error:
        raise RuleError(joined(f".{name}", error)) from None
    return Execution(
        service_account=service_account,
        priority_class_name=priority_class_name,
        node_selector=maps["node_selector"],
        labels=maps["labels"],
        annotations=maps["annotations"],
        tolerations=tolerations,
    )


def _tolerations(value: object) -> tuple[Toleration, ...]:
    if not isinstance(value, list | tuple):
        raise RuleError(f"must be a list of mappings, got {shown(value)}")
    result = []
    for index, item in enumerate(value):
        try:
            fields = text_map(item)
            _only(fields, _TOLERATION_FIELDS)
        except RuleError as error:
            raise RuleError(joined(f"[{index}]", error)) from None
        result.append(Toleration(**fields))
    return tuple(result)


def moment(value: object) -> datetime:
    """An aware moment in UTC, from 1970 to 2199: within what schedules and databases count with."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise RuleError(f"must be a moment with an offset, got {shown(value)}")
    try:
        result = value.astimezone(UTC)
    except (OverflowError, ValueError):
        result = datetime.min.replace(tzinfo=UTC)
    if not 1970 <= result.year < 2200:
        raise RuleError("must be from 1970 to 2199")
    return result


def find_cycle(upstream: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the tasks of one cycle in the order in which they run, or () when there is none."""
    done: set[str] = set()
    for start in upstream:
        path: dict[str, None] = {}  # the way from `start` upwards, ordered
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                done.add(node)
                del path[node]
            elif node in path:
                ring = list(path)
                return tuple(reversed(ring[ring.index(node) :]))
            elif node not in done:
                path[node] = None
                stack.append((node, True))
                stack.extend((up, False) for up in upstream.get(node, ()))
    return ()
