"""One line of the table, and the table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from operator import ge, le

__all__ = ["AT_LEAST", "AT_MOST", "Line", "line", "table"]

AT_LEAST, AT_MOST = "at least", "at most"
ALLOWED = 1.2  # `CHECK=1` lets a line fall short by a fifth: machines differ


@dataclass(frozen=True, slots=True)
class Line:
    """One measured figure; `low` and `high` are the range over its repeats."""

    name: str
    value: float
    low: float
    high: float
    unit: str = ""
    in_flight: str = "-"
    bound: str = AT_MOST
    target: float | None = None  # None: shown to explain another line

    @property
    def meets(self) -> bool:
        """Whether the figure is what was aimed at."""
        return self.target is None or (ge if self.bound == AT_LEAST else le)(self.value, self.target)

    @property
    def falls_short(self) -> bool:
        """Whether it misses by more than a fifth."""
        if self.target is None:
            return False
        worst = self.target / ALLOWED if self.bound == AT_LEAST else self.target * ALLOWED
        return not (ge if self.bound == AT_LEAST else le)(self.value, worst)


def line(
    name: str,
    values: Sequence[float],
    *,
    unit: str = "",
    in_flight: int | str = "-",
    at_least: float | None = None,
    at_most: float | None = None,
) -> Line:
    """Return the line of what the repeats gave: their median, and from where to where they went."""
    target, bound = (at_least, AT_LEAST) if at_least is not None else (at_most, AT_MOST)
    return Line(name, statistics.median(values), min(values), max(values), unit, str(in_flight), bound, target)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a table of text."""
    rows = [("what", "value", "range", "in flight", "aimed at", "")]
    for found in lines:
        same = found.low == found.high
        rows.append(
            (
                found.name,
                f"{_number(found.value)} {found.unit}".rstrip(),
                "" if same else f"{_number(found.low)} .. {_number(found.high)}",
                found.in_flight,
                "" if found.target is None else f"{found.bound} {found.target:g} {found.unit}".rstrip(),
                "" if found.target is None else "met" if found.meets else "missed",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([text[0], "  ".join("-" * width for width in widths), *text[1:]])
