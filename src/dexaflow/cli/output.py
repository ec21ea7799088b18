"""What the command line prints: tables for people, JSON for programs, one line for an error.

Text from outside goes through `shown` on its way into a table or an error; JSON is exact, and escaped to ASCII, so
that neither a terminal nor a reader of lines is led astray by it.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NoReturn, TextIO

import typer

from dexaflow.base.errors import ConfigErrors, DexaflowError
from dexaflow.base.text import shown

__all__ = [
    "FAILED",
    "USAGE",
    "Output",
    "errors_in_one_line",
    "fail",
    "json_text",
    "keep_stdout",
    "print_error",
    "print_fields",
    "print_json",
    "print_table",
    "print_text",
    "stdout",
]

FAILED = 1  # asked and answered: no
USAGE = 2  # could not be asked: wrong arguments, unreadable files


class Output(StrEnum):
    """`--output`."""

    TABLE = "table"
    JSON = "json"


_ours: TextIO | None = None  # where our lines go once standard output has been kept for them


def keep_stdout() -> None:
    """Keep standard output for what this program prints: what foreign code prints from here on goes to standard error.

    A hook's `print`, its module's, a process of theirs: none of them gets into a document that a program reads. It
    holds until the process ends, since a call of a hook that was given up may print at any time.
    """
    global _ours
    if _ours is not None:
        return
    sys.stdout.flush()
    _ours = open(  # noqa: SIM115 - open until the process ends
        os.dup(1), "w", encoding=sys.stdout.encoding or "utf-8", errors=sys.stdout.errors, closefd=True
    )
    os.dup2(2, 1)


def stdout() -> TextIO:
    """Return where our lines go."""
    return _ours or sys.stdout


def json_text(value: object) -> str:
    """Return `value` as one line of JSON, ASCII only."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def print_json(value: object) -> None:
    """Print `value` as JSON, indented on a terminal."""
    if stdout().isatty():
        print_text(json.dumps(value, ensure_ascii=True, indent=2))
    else:
        print_text(json_text(value))


def print_text(text: str) -> None:
    """Print lines that are safe already; what the terminal's encoding lacks is escaped."""
    out = stdout()
    encoding = out.encoding or "utf-8"
    out.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    out.flush()


_WHOLE = ("run",)  # columns that a terminal does not break: an id is copied
_MAX_WHOLE = 40  # as long as ours are; one that a person chose may be longer than the terminal is wide


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "", spare: Sequence[str] = ()
) -> None:
    """Print rows under their column names; every cell is one line of text.

    Args:
        empty: Printed instead when there are no rows.
        spare: Columns to leave out, in this order, of a table that is wider than the terminal; those that say nothing
            in any row go first.
    """
    if not rows and empty:
        print_text(empty)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = {column: [_cell(row[number]) for row in rows] for number, column in enumerate(columns)}
    for column in sorted(spare, key=lambda column: set(cells[column]) != {"-"}):
        if _table_width(cells) > _width():
            del cells[column]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column, said in cells.items():
        table.add_column(column, overflow="fold", no_wrap=column in _WHOLE and _longest(said) <= _MAX_WHOLE)
    for row in zip(*cells.values(), strict=True):
        table.add_row(*map(Text, row))
    _print_rich(table)


def _longest(cells: Sequence[str]) -> int:
    return max(map(len, cells), default=0)


def _table_width(cells: Mapping[str, Sequence[str]]) -> int:
    gaps = 3 * (len(cells) - 1)
    return sum(max(len(column), _longest(said)) for column, said in cells.items()) + gaps


def print_fields(fields: Mapping[str, object]) -> None:
    """Print a thing's fields, one a line, names in a column of their own."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(Text(name), Text(_cell(value)))
    _print_rich(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{shown(str(key))}={shown(str(item))}" for key, item in value.items()) or "-"
    if isinstance(value, list | tuple):
        items = (f"{{{_cell(item)}}}" if isinstance(item, Mapping) else shown(str(item)) for item in value)
        return ", ".join(items) or "-"
    return shown(str(value))


def _print_rich(renderable: object) -> None:
    from rich.console import Console

    console = Console(file=stdout(), width=_width(), highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        console.print(renderable)
    print_text("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _width() -> int:
    """Return how wide a table may be.

    Into a pipe or a file lines are as long as they are: whoever cuts columns there wants whole cells.
    """
    from rich.console import Console

    return Console(file=stdout()).width if stdout().isatty() else 100_000


def print_error(message: str) -> None:
    """Print `message` on standard error, as one line."""
    encoding = sys.stderr.encoding or "utf-8"
    line = f"dexaflow: {shown(message)}"
    sys.stderr.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stderr.flush()


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Print `message` as one line on standard error and end with `code`."""
    print_error(message)
    raise typer.Exit(code)


@contextlib.contextmanager
def errors_in_one_line(code: int = FAILED) -> Iterator[None]:
    """Turn every `DexaflowError` into a line on standard error (a configuration's into one each) and `code`."""
    try:
        yield
    except ConfigErrors as errors:
        for problem in errors.problems:
            print_error(str(problem))
        raise typer.Exit(code) from None
    except DexaflowError as error:
        fail(str(error), code)
