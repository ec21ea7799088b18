"""What stands in a Markdown page: its fenced blocks in order, its headings and its links.

A block's first word says its language. The words after it, which no reader sees, say how a test treats it:

- ``sh``: run in the page's own folder, one after the other, and must succeed;
- ``sh server``: goes on in a terminal of its own, until another of its kind takes its place or a comment
  ``<!-- test: stop NAME -->`` ends it (`NAME`: ``lite`` or ``endpoint``), as the reader does with Ctrl-C;
- ``sh fails``: must end with an exit code above 0;
- ``sh clone``: runs at the top of a clone; its ``make`` targets must exist;
- ``text``: after ``sh``, lines of what that printed, in order; ``text shape``: looked at by a test of its own;
- a first line that is a comment with a path (``# dags/hello.py``): the block is that file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "Stop", "blocks_of", "headings_of", "links_of", "pages", "steps_of"]

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")
_STOP = re.compile(r"^<!-- test: stop (\w+) -->$")
_FILE = re.compile(r"^(?:#|//) ([\w./-]+\.[a-z]+|[\w./-]*token)$")
_LINK = re.compile(r"\[[^\]\[]*\]\(([^()\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: Path
    line: int  # of its first line
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        """Where it stands, for a failing test's message."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """The path that its first line names; "" when it names none."""
        found = _FILE.match(self.text.split("\n", 1)[0])
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Stop:
    """The reader ends what runs in another terminal."""

    name: str


def pages() -> list[Path]:
    """Return every page for people."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def steps_of(page: Path) -> list[Block | Stop]:
    """Return blocks and stops in the order of the page."""
    return list(_steps(page))


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [step for step in _steps(page) if isinstance(step, Block)]


def _steps(page: Path) -> Iterator[Block | Stop]:
    fence, indent, words, start = "", "", [""], 0
    inside: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        found = _FENCE.match(line)
        if not fence and (stop := _STOP.match(line)):
            yield Stop(stop[1])
        elif not fence and found:
            indent, fence, words = found[1], found[2], found[3].split() or [""]
            inside, start = [], number + 1
        elif fence and line.strip() == fence:
            yield Block(page, start, words[0], tuple(words[1:]), "".join(f"{text}\n" for text in inside))
            fence = ""
        elif fence:
            inside.append(line.removeprefix(indent))
    assert not fence, f"{page.name}:{start}: the block has no end"


def _prose(page: Path) -> str:
    """Return the page without its blocks and code spans."""
    kept, fence = [], ""
    for line in page.read_text().splitlines():
        found = _FENCE.match(line)
        if fence:
            fence = "" if line.strip() == fence else fence
        elif found:
            fence = found[2]
        else:
            kept.append(line)
    return "\n".join(kept)


def headings_of(page: Path) -> set[str]:
    """Return the anchors of a page, made of its headings as GitHub makes them."""
    anchors: set[str] = set()
    for line in _prose(page).splitlines():
        if line.startswith("#"):
            title = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            number = 0
            while (anchor := f"{slug}-{number}" if number else slug) in anchors:
                number += 1
            anchors.add(anchor)
    return anchors


def links_of(page: Path) -> list[str]:
    """Return the targets of a page's links."""
    return _LINK.findall(re.sub(r"`[^`\n]*`", "", _prose(page)))
