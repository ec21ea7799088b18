"""The configuration file as text with types: what was written, and where, before anything is understood.

YAML is read event by event into three small values. Nothing is constructed from tags, an alias is the very value it
names (so that a bomb of anchors stays as small as its text), and size and depth are bounded. A scalar keeps its text:
``0.5`` stays ``0.5`` for a quantity, and a message quotes what stands in the file.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import is_
from typing import Any

import yaml

from dexaflow.base.errors import ConfigError
from dexaflow.base.text import shortened

__all__ = [
    "MAX_BYTES",
    "Listing",
    "Node",
    "Scalar",
    "ScalarType",
    "Section",
    "quotable_key",
    "quotable_node",
    "read_yaml",
    "scalar",
]

MAX_BYTES = 262_144  # a configuration is a few kilobytes; more is a wrong file
MAX_DEPTH = 16  # the schema is 4 deep
_QUOTED_DEEP = 3  # nothing further inside a value is quoted

_TAG = "tag:yaml.org,2002:"
# What ends a key's word, the path to it and YAML's own `<<` included; not what has no shape of its own: that is shown.
_BEHIND = re.compile(r"[^\w.<\[\]\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff-]")
# All up to the last `@`, but for a scheme and its slashes. Behind the `@` of an image comes the kind of a digest.
_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/+)?.+@(?!sha[0-9]+:)", re.DOTALL)
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Any: the C loader has no type of its own
_RESOLVER: Any = yaml.SafeLoader("")  # Any: the stubs leave its methods untyped


class ScalarType(StrEnum):
    """What YAML takes a scalar for; the words are used in messages."""

    TEXT = "text"
    NUMBER = "a number"
    BOOL = "true or false"
    NULL = "null"
    BLANK = "nothing"  # `key:` with nothing behind it
    DATE = "a date"


_TYPES: Mapping[str, ScalarType] = {
    "str": ScalarType.TEXT,
    "int": ScalarType.NUMBER,
    "float": ScalarType.NUMBER,
    "bool": ScalarType.BOOL,
    "null": ScalarType.NULL,
    "timestamp": ScalarType.DATE,
    "value": ScalarType.TEXT,  # a lone "="
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as written. What stands in quotes is text, whatever it looks like."""

    text: str
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Listing:
    """A sequence."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping, keys as written."""

    entries: "Mapping[str, Node]"


Node = Scalar | Listing | Section


class _Stop(Exception):  # noqa: N818 - ends the reading, is no error of its own
    """The text cannot be read any further."""

    def __init__(self, problem: ConfigError) -> None:
        self.problem = problem


def scalar(text: str) -> Scalar:
    """Return plain `text` as YAML would type it."""
    if text == "":
        return Scalar(text, ScalarType.BLANK)
    tag = str(_RESOLVER.resolve(yaml.ScalarNode, text, (True, False)))
    return Scalar(text, _TYPES.get(tag.removeprefix(_TAG), ScalarType.TEXT))


def read_yaml(text: str, origin: str) -> tuple[Node | None, list[ConfigError]]:
    """Read one YAML document.

    Args:
        text: The document.
        origin: How messages call it: a file's name or a variable's.

    Returns:
        The document, None when it is empty or cannot be read to its end; and every problem on the way. The document
        is usable when it is not None, even with problems (keys given twice: the first one counts).
    """
    reading = _Reading(origin)
    try:
        return reading.document(text), reading.problems
    except _Stop as stop:
        return None, [*reading.problems, stop.problem]


class _Reading:
    """One document being read."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.problems: list[ConfigError] = []
        self._anchors: dict[str, Node] = {}

    def document(self, text: str) -> Node | None:
        events = self._events(text)
        next(events)  # stream start
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        node = self._node(next(events), events, "", 0)
        next(events)  # document end
        following = next(events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise self._stop(following, "a second document begins here", "keep one document")
        return None if node == Scalar("", ScalarType.BLANK) else node

    def _events(self, text: str) -> Iterator[Any]:
        try:
            yield from yaml.parse(text, Loader=_PARSER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            what = shortened(error.problem or error.context or "it does not parse")
            raise _Stop(ConfigError(self.origin, f"not YAML{where}: {what}", "correct it there")) from None
        except UnicodeEncodeError:  # bytes of an environment variable that are not UTF-8
            raise _Stop(ConfigError(self.origin, "is not UTF-8", "write it as UTF-8")) from None
        except yaml.YAMLError as error:
            what = shortened(str(getattr(error, "reason", "") or "it holds characters that YAML does not allow"))
            raise _Stop(ConfigError(self.origin, f"not YAML: {what}", "write it as UTF-8 text")) from None

    def _stop(self, event: Any, problem: str, fix: str) -> _Stop:
        mark = event.start_mark
        return _Stop(ConfigError(self.origin, f"line {mark.line + 1}, column {mark.column + 1}: {problem}", fix))

    def _node(self, event: Any, events: Iterator[Any], path: str, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._stop(
                event, f"nested deeper than {MAX_DEPTH}", "keep to the keys of `dexaflow config reference`"
            )
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise self._stop(event, "this alias names no earlier anchor", "write the value out")
            return self._anchors[event.anchor]
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._plain_tag(event, "seq")
            items: list[Node] = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                items.append(self._node(item, events, f"{path}[{len(items)}]", depth + 1))
            node = Listing(tuple(items))
        else:
            self._plain_tag(event, "map")
            node = self._section(events, path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _section(self, events: Iterator[Any], path: str, depth: int) -> Section:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._stop(event, "this key is not plain text", "write the key as a word")
            key = event.value
            full = f"{path}.{key}" if path else key
            line = _line(event)
            value = self._node(next(events), events, full, depth + 1)
            if key in entries:
                problem = f"given twice, on lines {lines[key]} and {line}"
                self.problems.append(ConfigError(quotable_key(full), problem, "keep one of them"))
                continue
            entries[key], lines[key] = value, line
        return Section(entries)

    def _scalar(self, event: Any) -> Scalar:
        plain, _ = event.implicit
        if event.tag is None or event.tag == "!":
            if not plain or event.tag == "!":
                return Scalar(event.value, ScalarType.TEXT)
            return scalar(event.value)
        kind = _TYPES.get(event.tag.removeprefix(_TAG)) if event.tag.startswith(_TAG) else None
        if kind is None:
            raise self._stop(event, "tags are not read here", "write the plain value")
        return Scalar(event.value, kind)

    def _plain_tag(self, event: Any, expected: str) -> None:
        if event.tag not in (None, "!", _TAG + expected):
            raise self._stop(event, "tags are not read here", "write the plain value")


def quotable_key(key: str) -> str:
    """Return what a message may quote of a key, on one line.

    To YAML `{token:secret}`, without a space, is one key. What stands behind its word may be a secret (R2.3), and so
    may a word before an `@` (R2.4).
    """
    word = _BEHIND.split(key, maxsplit=1)[0]
    if key.startswith("@", len(word)):
        word = word[: word.rfind(".") + 1]
    return shortened(key if word == key else f"{word}...") or "''"


def quotable_node(node: Node) -> Node:
    """Return `node` as messages may quote it: without user info (R2.4), and without the query of a URL.

    It is `node` itself where nothing is to be left out.
    """
    return _quotable(node, _QUOTED_DEEP, {})


def _quotable(node: Node, deep: int, done: dict[tuple[int, int], Node]) -> Node:
    """Return `node` as messages may quote it. An alias is the very node it names: each is looked at once (`done`)."""
    found = done.get((id(node), deep))
    if found is None:
        found = done[id(node), deep] = _made_quotable(node, deep, done)
    return found


def _made_quotable(node: Node, deep: int, done: dict[tuple[int, int], Node]) -> Node:
    if isinstance(node, Scalar):
        text = _quotable_text(node.text)
        return node if text == node.text else Scalar(text, node.type)
    if not deep:
        return node
    if isinstance(node, Listing):
        items = tuple(_quotable(item, deep - 1, done) for item in node.items)
        return node if all(map(is_, items, node.items)) else Listing(items)
    entries = {_quotable_text(key): _quotable(value, deep - 1, done) for key, value in node.entries.items()}
    same = entries.keys() == node.entries.keys() and all(map(is_, entries.values(), node.entries.values()))
    return node if same else Section(entries)


def _quotable_text(text: str) -> str:
    found = _USER_INFO.match(text)
    if found:
        text = f"{found[1] or ''}...{text[found.end() - 1 :]}"
    before, _, query = text.partition("?")
    return f"{before}?..." if query and "://" in before else text


def _line(event: Any) -> int:  # Any: the stubs allow an event without a place, which a parser's never is
    return int(event.start_mark.line) + 1
