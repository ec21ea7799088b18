"""JSON as Go's ``encoding/json`` reads it with unknown fields disallowed, and stricter in one point (R4.2).

No Python parser has Go's rules, so this is one: field names match under Go's case folding, ``null`` leaves the zero
value, bytes that are not UTF-8 and lone halves of surrogate pairs become U+FFFD inside strings and are errors
outside. The stricter point: a field or a map key given twice is a fault, since two readers could see two values.

What is read is described by a shape: `Record` of named fields, `TextMap`, `ListOf`, `Text`, `Flag`, `Whole`. The
reader keeps its own stack and never converts a number that it does not need, so that no body, however nested or
long its numbers, costs more than time in proportion to its length. As that may be many milliseconds, `reading` takes
them in steps, for whoever has others to serve meanwhile.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NoReturn

from dexaflow.base.in_steps import Steps, at_once
from dexaflow.base.text import quoted, shortened, shown

__all__ = [
    "MAX_DEPTH",
    "VALUES_A_STEP",
    "Cause",
    "Fault",
    "Flag",
    "ListOf",
    "Record",
    "Shape",
    "Text",
    "TextMap",
    "Whole",
    "read",
    "reading",
]

MAX_DEPTH: Final = 10_000  # Go's maxNestingDepth
VALUES_A_STEP: Final = 256  # well below a millisecond


class Cause(StrEnum):
    """What is wrong with a body, in one word."""

    SIZE = "size"
    EMPTY = "empty"
    SYNTAX = "syntax"
    TYPE = "type"
    UNKNOWN_FIELD = "unknown_field"
    TRAILING = "trailing"
    DUPLICATE = "duplicate"


class Fault(Exception):  # noqa: N818 - it names what is wrong with a body; the border turns it into an error
    """A body that cannot be read.

    ``duplicate`` is True when a field or key given twice was seen, whatever else is wrong with the body: with
    two readings of it, no reading may be trusted (R4.2).
    """

    def __init__(self, cause: Cause, problem: str, *, duplicate: bool = False) -> None:
        super().__init__(problem)
        self.cause = cause
        self.duplicate = duplicate


@dataclass(frozen=True, slots=True)
class Text:
    """A string; null reads as the empty one."""


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false; null reads as false."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number that fits in 64 bits, written without fraction or exponent; null reads as 0."""


@dataclass(frozen=True, slots=True)
class TextMap:
    """An object of strings under any keys; a null value reads as the empty string, a null map as None."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; a null element reads as an empty record, a null list as None."""

    item: "Record"


@dataclass(frozen=True, slots=True)
class Record:
    """An object of these fields and no other; a field that is absent or null reads as its zero value."""

    fields: Mapping[str, "Shape"]
    zero: Mapping[str, Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if any(name != _folded(name) for name in self.fields):
            raise ValueError("field names are given in lower case")
        object.__setattr__(self, "zero", {name: _zero(shape) for name, shape in self.fields.items()})


Shape = Text | Flag | Whole | TextMap | ListOf | Record


def _zero(shape: Shape) -> Any:
    match shape:
        case Text():
            return ""
        case Flag():
            return False
        case Whole():
            return 0
        case _:
            return None


# Go folds by Unicode's simple case folding. The names we know are lower-case ASCII, and the only other letters in the
# orbits of those are the capitals, the long s and the Kelvin sign. `casefold()` folds too much, `lower()` too little.
_FOLD = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)} | {0x17F: ord("s"), 0x212A: ord("k")}


def _folded(name: str) -> str:
    return name.translate(_FOLD)


_BYTE_ORDER_MARK = "\ufeff".encode()
_BLANKS = re.compile(rb"[ \t\r\n]*")
# What may stand in a string, as far as it goes. Not possessive, though it could be: before 3.11.5 Python errs there.
_INSIDE_STRING = re.compile(rb"""[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*""")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS = {ord("t"): (b"true", True), ord("f"): (b"false", False), ord("n"): (b"null", None)}
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_LONE_HALF = re.compile("[\ud800-\udfff]")
_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = b"{}[]"


def read(body: bytes, shape: Record, *, max_bytes: int) -> dict[str, Any]:
    """Return the one value in `body` as a dict that has every field of `shape`; a top-level null is all zero values.

    Takes time and memory in proportion to `max_bytes` at most.

    Raises:
        Fault: the body is too large or empty, is not one JSON value with nothing but blanks around it, or does not
            have this shape. Of several faults a broken syntax is named, else the first.
    """
    return at_once(reading(body, shape, max_bytes=max_bytes))


def reading(body: bytes, shape: Record, *, max_bytes: int) -> Steps[dict[str, Any]]:
    """`read` in steps, each a part of a millisecond."""
    if len(body) <= max_bytes:
        return (yield from _Reader(body).read(shape))
    try:  # only to learn whether something is given twice in what may be looked at
        yield from _Reader(body[:max_bytes]).read(shape)
        duplicate = False
    except Fault as fault:
        duplicate = fault.duplicate
    # How many there are is not said: who calls may have read no further than to know that they are too many.
    raise Fault(Cause.SIZE, f"it has more than the {max_bytes} bytes allowed", duplicate=duplicate)


class _Frame:
    """An object or a list that has been opened. `shape` is None where the value is only checked and dropped."""

    __slots__ = ("at", "in_object", "key", "seen", "shape", "value")

    def __init__(self, shape: Record | TextMap | ListOf | None, *, in_object: bool) -> None:
        self.shape = shape
        self.in_object = in_object
        self.value: Any = None
        if isinstance(shape, Record):
            self.value = dict(shape.zero)
        elif isinstance(shape, TextMap):
            self.value = {}
        elif isinstance(shape, ListOf):
            self.value = []
        self.seen: set[str] = set()
        self.key = ""  # as in the shape, or as given
        self.at: Shape | None = shape.item if isinstance(shape, ListOf) else None  # shape of the value that comes next


class _Reader:
    __slots__ = ("body", "duplicate", "fault", "pos", "stack")

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.pos = 0
        self.stack: list[_Frame] = []
        self.fault: tuple[Cause, str] | None = None  # the first one found that is not of syntax
        self.duplicate = False

    def read(self, shape: Record) -> Steps[dict[str, Any]]:
        if self.peek() is None:
            raise Fault(Cause.EMPTY, "it is empty")
        value = yield from self.value(shape)
        if self.peek() is not None:
            self.note(Cause.TRAILING, f"something follows its end at byte {self.pos}")
        if self.fault is not None:
            raise Fault(*self.fault, duplicate=self.duplicate)
        return dict(shape.zero) if value is None else value  # a Record reads as a dict or None

    # -- faults

    def note(self, cause: Cause, problem: str) -> None:
        """Keep a fault and read on: what follows may be given twice, or not be JSON at all."""
        if self.fault is None:
            self.fault = (cause, problem)

    def broken(self, expected: str) -> NoReturn:
        found = self.body[self.pos : self.pos + 1]
        if not found:
            what = "the end"
        elif not self.pos and self.body.startswith(_BYTE_ORDER_MARK):
            what = "a byte order mark"
        else:
            what = quoted(found.decode()) if 0x20 < found[0] < 0x7F else f"byte 0x{found[0]:02x}"
        problem = f"it is not JSON: {expected} was expected at byte {self.pos}, not {what}"
        raise Fault(Cause.SYNTAX, problem, duplicate=self.duplicate)

    def path(self) -> str:
        """Return where the reader is, like ``response.changes.tolerations[2].key``."""
        path = ""
        for frame in self.stack[:8]:
            if frame.in_object:
                path += f".{shortened(frame.key, 80)}"
            else:
                path += "[]" if frame.shape is None else f"[{len(frame.value)}]"
        return shown(path.removeprefix(".")) if path else "the document"

    # -- tokens

    def peek(self) -> int | None:
        """Skip blanks and return the next byte, None at the end."""
        body, pos = self.body, self.pos
        if pos < len(body) and body[pos] <= 0x20:
            match = _BLANKS.match(body, pos)
            assert match is not None  # it matches the empty text
            self.pos = pos = match.end()
        return body[pos] if pos < len(body) else None

    def text(self) -> str:
        """Read the string whose opening quote is at `pos`."""
        match = _INSIDE_STRING.match(self.body, self.pos + 1)
        assert match is not None  # it matches the empty text
        inside, self.pos = match.group(), match.end()
        if self.pos >= len(self.body) or self.body[self.pos] != _QUOTE:
            self.broken_string()
        self.pos += 1
        # Go puts one U+FFFD for each byte that is not UTF-8. Python's escapes for those bytes are lone surrogates,
        # which UTF-8 cannot hold, so they cannot be mistaken for text.
        text = inside.decode("utf-8", "surrogateescape")
        if not text.isascii():
            text = _NOT_UTF8.sub("\ufffd", text)
        if "\\" not in text:
            return text
        # What is known to be a string of JSON, Python reads as Go does, but for half of a pair: for Go that is U+FFFD.
        return _LONE_HALF.sub("\ufffd", json.loads(f'"{text}"'))

    def broken_string(self) -> NoReturn:
        """Say what is wrong with the string that cannot go on at `pos`."""
        if self.body[self.pos : self.pos + 1] != b"\\":
            self.broken("a quote, or no control character in a string,")
        self.pos += 1
        if self.body[self.pos : self.pos + 1] == b"u":
            self.pos += 1
            self.broken("four hexadecimal digits")
        self.broken("an escape that JSON knows")

    # -- values

    def value(self, shape: Shape | None) -> Steps[Any]:
        """Read one value with all that is in it, and return it."""
        stack = self.stack
        wanted = shape
        left = VALUES_A_STEP
        while True:
            left -= 1
            if not left:
                left = VALUES_A_STEP
                yield
            value: Any
            first = self.peek()
            if first in (_OPEN_OBJECT, _OPEN_LIST):
                self.open(wanted, in_object=first == _OPEN_OBJECT)
                if self.peek() != (_CLOSE_OBJECT if first == _OPEN_OBJECT else _CLOSE_LIST):
                    if first == _OPEN_OBJECT:
                        self.name()
                    wanted = stack[-1].at
                    continue
                self.pos += 1
                value = stack.pop().value
            else:
                value = self.scalar(first, wanted)
            while stack:  # the value is complete: put it into what it stands in, and close what ends here
                frame = stack[-1]
                if frame.shape is not None:
                    if frame.in_object:
                        if frame.at is not None:
                            frame.value[frame.key] = value
                    else:
                        frame.value.append(value)
                after = self.peek()
                if after == _COMMA:
                    self.pos += 1
                    if frame.in_object:
                        if self.peek() != _QUOTE:
                            self.broken("a field name in quotes")
                        self.name()
                    wanted = frame.at
                    break
                if after != (_CLOSE_OBJECT if frame.in_object else _CLOSE_LIST):
                    self.broken("a comma or the end of the object" if frame.in_object else "a comma or the list's end")
                self.pos += 1
                value = stack.pop().value
            else:
                return value

    def open(self, wanted: Shape | None, *, in_object: bool) -> None:
        """Step into the object or list whose bracket is at `pos`."""
        fits = isinstance(wanted, Record | TextMap) if in_object else isinstance(wanted, ListOf)
        if not fits and wanted is not None:
            self.mismatch(wanted, "an object" if in_object else "a list")
        if len(self.stack) >= MAX_DEPTH:
            raise Fault(Cause.SYNTAX, f"it is nested deeper than {MAX_DEPTH}", duplicate=self.duplicate)
        known = wanted if fits and isinstance(wanted, Record | TextMap | ListOf) else None
        self.stack.append(_Frame(known, in_object=in_object))
        self.pos += 1

    def name(self) -> None:
        """Read a field's name or a map's key and the colon after it."""
        if self.peek() != _QUOTE:
            self.broken("a field name in quotes, or the end of the object,")
        given = self.text()
        frame = self.stack[-1]
        shape = frame.shape
        key = given
        if isinstance(shape, Record):
            frame.at = shape.fields.get(given)
            if frame.at is None:
                key = _folded(given)
                frame.at = shape.fields.get(key)
                if frame.at is None and self.fault is None:
                    has = ", ".join(shape.fields)
                    self.note(
                        Cause.UNKNOWN_FIELD, f"{quoted(given)} is not a field of {self.inside()}, which has {has}"
                    )
        elif shape is not None:
            frame.at = Text()
        if key in frame.seen:
            self.duplicate = True
            if self.fault is None:
                self.note(Cause.DUPLICATE, f"{quoted(given)} is given twice in {self.inside()}")
        frame.seen.add(key)
        frame.key = key
        if self.peek() != _COLON:
            self.broken("a colon")
        self.pos += 1

    def inside(self) -> str:
        """Return the name of the object that is being read."""
        inner = self.stack.pop()
        try:
            return self.path()
        finally:
            self.stack.append(inner)

    def scalar(self, first: int | None, wanted: Shape | None) -> Any:
        """Read a string, a number or a literal. A wrong type is noted and reads as None."""
        if first == _QUOTE:
            text = self.text()
            if isinstance(wanted, Text):
                return text
            self.mismatch(wanted, "a string")
            return None
        literal = _LITERALS.get(first) if first is not None else None
        if literal is not None:
            word, value = literal
            if not self.body.startswith(word, self.pos):
                self.broken("true, false or null")
            self.pos += len(word)
            if value is None:
                return self.null(wanted)
            if isinstance(wanted, Flag):
                return value
            self.mismatch(wanted, "a boolean")
            return None
        match = _NUMBER.match(self.body, self.pos)
        if match is None:
            self.broken("a value")
        self.pos = match.end()
        if isinstance(wanted, Whole):
            # 20 characters hold every 64-bit number, so that a giant one is never converted.
            number = match.group()
            if len(number) <= 20 and number.lstrip(b"-").isdigit() and -(2**63) <= int(number) < 2**63:
                return int(number)
        self.mismatch(wanted, "a number")
        return None

    def null(self, wanted: Shape | None) -> Any:
        if isinstance(wanted, Record):
            # A field that is null was not given; an element that is null is there, and empty.
            in_list = bool(self.stack) and not self.stack[-1].in_object
            return dict(wanted.zero) if in_list else None
        return None if wanted is None else _zero(wanted)

    def mismatch(self, wanted: Shape | None, found: str) -> None:
        if self.fault is not None:
            return  # the first is the one that is named
        match wanted:
            case None:
                return  # a value that is only skipped
            case Text():
                kind = "a string"
            case Flag():
                kind = "true or false"
            case Whole():
                kind = "a whole number of 64 bits"
            case TextMap():
                kind = "an object of strings"
            case ListOf():
                kind = "a list"
            case Record():
                kind = "an object"
        self.note(Cause.TYPE, f"{self.path()} must be {kind}, not {found}")
