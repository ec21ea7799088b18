"""Reading one value: what the YAML says, into the type that the rest of the program uses, or what to do instead.

Each `Kind` is one way to write a value. Its reader raises `Unfit` with the two halves of a message: what is wrong,
quoting what was found, and what to write.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from dexaflow.base.durations import parse_duration
from dexaflow.base.text import quoted, shown
from dexaflow.config.yaml_source import Listing, Node, Scalar, ScalarType, Section

__all__ = [
    "Kind",
    "Unfit",
    "boolean",
    "choice",
    "duration",
    "folder_by_tenant",
    "listing",
    "number",
    "path",
    "text",
    "text_of",
]

T = TypeVar("T")


class Unfit(Exception):  # noqa: N818 - caught where it becomes a ConfigError
    """A value cannot be used: what is wrong with it, and what to write; of a list or mapping, every entry's fault."""

    def __init__(self, *faults: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{problem}; {fix}" for problem, fix in faults))
        self.faults = faults

    def within(self, place: str) -> "Unfit":
        """Return the same faults, said of `place`."""
        return Unfit(*((f"{place}: {problem}", fix) for problem, fix in self.faults))


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One way to write a value.

    `name` stands in the reference. `read` takes the value and the folder that relative paths start from. `yaml_in_env`
    is true for what is more than one word: an environment variable then holds YAML or JSON. `typed` is true where the
    word must not be text (`true`, `8080`): an environment variable is then typed as YAML would type it.
    """

    name: str
    read: Callable[[Node, Path], T]
    yaml_in_env: bool = False
    typed: bool = False


def described(node: Node) -> str:
    """Return what was found, for a message."""
    if isinstance(node, Listing):
        return "a list was found"
    if isinstance(node, Section):
        return "a mapping was found"
    if node.type is ScalarType.BLANK:
        return "it has no value"
    if node.type is ScalarType.TEXT:
        return f"{quoted(node.text)} was found"
    return f"{quoted(node.text)} is {node.type.value}"


def unquotable(node: Node, fix: str) -> None:
    """Raise `Unfit`, without quoting it, when `node` is a scalar but not text."""
    if isinstance(node, Scalar) and node.type not in (ScalarType.BLANK, ScalarType.TEXT):
        raise Unfit((f"it is {node.type.value}, not text", f"{fix}, in quotes"))


def text_of(node: Node, fix: str) -> str:
    """Return the text of `node`. Raises `Unfit` when it is anything else, empty text included."""
    if not isinstance(node, Scalar) or node.type is not ScalarType.TEXT:
        number_or_bool = isinstance(node, Scalar) and node.type not in (ScalarType.BLANK, ScalarType.NULL)
        raise Unfit((described(node), f"{fix}, in quotes" if number_or_bool else fix))
    if not node.text:
        raise Unfit(("it is empty", fix))
    if any(ord(c) < 0x20 or ord(c) == 0x7F for c in node.text):
        raise Unfit(("it holds control characters", fix))
    return node.text


def unfit(error: ValueError, fix: str) -> Unfit:
    """Return what a `ValueError` says; `fix` is used when it does not say what to write, after a semicolon."""
    problem, _, own_fix = shown(str(error)).partition("; ")
    return Unfit((problem, own_fix or fix))


def text(name: str, fix: str, check: Callable[[str], T], *, secret: bool = False) -> Kind[T]:
    """Text that `check` accepts; it raises `ValueError` for what it does not. A `secret` one is never quoted."""

    def read(node: Node, base_dir: Path) -> T:
        if secret:
            unquotable(node, fix)
        written = text_of(node, fix)
        try:
            return check(written)
        except ValueError as error:
            raise unfit(error, fix) from None

    return Kind(name, read)


def choice(*words: str) -> Kind[str]:
    """One of `words`."""
    fix = f"write {' or '.join([', '.join(words[:-1]), words[-1]])}"

    def read(node: Node, base_dir: Path) -> str:
        word = text_of(node, fix)
        if word not in words:
            raise Unfit((f"{quoted(word)} is none of its words", fix))
        return word

    return Kind(" or ".join(f"`{word}`" for word in words), read)


def boolean() -> Kind[bool]:
    """`true` or `false`, or YAML's other words for them."""

    def read(node: Node, base_dir: Path) -> bool:
        if not isinstance(node, Scalar) or node.type is not ScalarType.BOOL:
            raise Unfit((described(node), "write true or false, without quotes"))
        word = node.text.lower()
        if word not in ("true", "yes", "on", "false", "no", "off"):  # `!!bool maybe`
            raise Unfit((f"{quoted(node.text)} is neither", "write true or false, without quotes"))
        return word in ("true", "yes", "on")

    return Kind("`true` or `false`", read, typed=True)


def number(least: int, most: int) -> Kind[int]:
    """A whole number from `least` to `most`."""
    fix = f"write a whole number from {least} to {most}"

    def read(node: Node, base_dir: Path) -> int:
        if not isinstance(node, Scalar) or node.type is not ScalarType.NUMBER:
            in_quotes = isinstance(node, Scalar) and node.type is ScalarType.TEXT and node.text.isdigit()
            raise Unfit((described(node), f"{fix}, without quotes" if in_quotes else fix))
        digits = node.text.removeprefix("-")
        # YAML 1.1 reads 010 as 8, 1_000 as 1000 and 1:30 as 90: only what everybody reads alike is taken.
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or (digits[0] == "0" and digits != "0"):
            raise Unfit((f"{quoted(node.text)} is not a plain whole number", fix))
        value = int(node.text)
        if not least <= value <= most:
            raise Unfit((f"{value} is {'less than ' + str(least) if value < least else 'more than ' + str(most)}", fix))
        return value

    return Kind(f"whole number, {least} to {most}", read, typed=True)


def duration(least: str, most: str) -> Kind[float]:
    """A duration with units, from `least` to `most`; seconds."""
    least_seconds, most_seconds = parse_duration(least), parse_duration(most)

    def read(node: Node, base_dir: Path) -> float:
        if isinstance(node, Scalar) and node.type is ScalarType.NUMBER:
            raise Unfit((f"{quoted(node.text)} has no unit", "write 500ms, 30s or 15m"))
        written = text_of(node, f"write a duration from {least} to {most}, such as {least}")
        try:
            seconds = parse_duration(written)
        except ValueError as error:
            raise unfit(error, "write 500ms, 30s or 15m") from None
        if seconds < least_seconds:
            raise Unfit((f"{quoted(written)} is less than {least}", f"write a duration from {least} to {most}"))
        if seconds > most_seconds:
            raise Unfit((f"{quoted(written)} is more than {most}", f"write a duration from {least} to {most}"))
        return seconds

    return Kind(f"duration, {least} to {most}", read)


def path(name: str, *, secret: bool = False) -> Kind[Path]:
    """The path of a file. A `secret` one is never quoted: people put the secret itself in its place."""
    fix = f"write the path of {name}"

    def read(node: Node, base_dir: Path) -> Path:
        if secret:
            unquotable(node, fix)
        written = text_of(node, fix)
        return base_dir / written

    return Kind(f"path of {name}", read)


def listing(name: str, what: str, check: Callable[[str], T]) -> Kind[tuple[T, ...]]:
    """A list, each entry of which `check` accepts; no entry twice.

    Args:
        name: What the entries are, for the reference.
        what: How to write one, for the fix.
        check: Raises `ValueError` or `Unfit`.
    """

    def read(node: Node, base_dir: Path) -> tuple[T, ...]:
        fix = f"write a list of {name}, or [] for an empty one"
        if not isinstance(node, Listing):
            raise Unfit((described(node), fix))
        entries: dict[str, T] = {}
        faults: list[tuple[str, str]] = []
        for position, item in enumerate(node.items, 1):
            try:
                written = text_of(item, what)
                if written in entries:
                    raise Unfit((f"{quoted(written)} is given twice", "keep one of them"))
                entries[written] = check(written)
            except Unfit as found:
                faults += found.within(f"entry {position}").faults
            except ValueError as error:
                faults += unfit(error, what).within(f"entry {position}").faults
        if faults:
            raise Unfit(*faults)
        return tuple(entries.values())

    return Kind(f"list of {name}", read, yaml_in_env=True)


def folder_by_tenant(check_tenant: Callable[[str], str]) -> Kind[Mapping[str, Path]]:
    """A mapping of tenant ids to folders, none of which holds another."""
    fix = "write `tenant: folder` for each tenant"

    def read(node: Node, base_dir: Path) -> Mapping[str, Path]:
        if not isinstance(node, Section):
            raise Unfit((described(node), fix))
        if not node.entries:
            raise Unfit(("it names no tenant", f"{fix}, or leave the key out"))
        folders: dict[str, Path] = {}
        faults: list[tuple[str, str]] = []
        for tenant, value in node.entries.items():
            try:
                check_tenant(tenant)
                folders[tenant] = _folder(value, base_dir)
            except Unfit as found:
                faults += found.within(f"tenant {quoted(tenant)}").faults
            except ValueError as error:
                faults.append((f"the name of tenant {shown(str(error))}", "rename it"))
        faults += _nested(folders)
        if faults:
            raise Unfit(*faults)
        return MappingProxyType(folders)

    return Kind("mapping of tenant to folder", read, yaml_in_env=True)


def _folder(node: Node, base_dir: Path) -> Path:
    """Return the real path of an existing folder."""
    written = text_of(node, "write the path of its DAG folder")
    try:
        folder = (base_dir / written).resolve()
        if folder.is_dir():
            return folder
        what = "is not a folder" if folder.exists() else "does not exist"
    except (OSError, RuntimeError, ValueError):  # too long, forbidden, a loop of links
        what = "cannot be read"
    raise Unfit((f"the folder {quoted(written)} {what}", "create it, or correct the path"))


def _nested(folders: Mapping[str, Path]) -> list[tuple[str, str]]:
    """Return a fault for each folder that is another one's, or inside it."""
    faults = []
    outer = ""
    for tenant in sorted(folders, key=lambda tenant: folders[tenant].parts):
        if outer and folders[tenant].is_relative_to(folders[outer]):
            faults.append(
                (
                    f"the folder of tenant {quoted(tenant)} is that of {quoted(outer)}, or inside it",
                    "give each tenant a folder of its own: a DAG file belongs to one tenant",
                )
            )
        else:
            outer = tenant
    return faults
