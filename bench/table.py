"""One line of the table, and the table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Line", "line", "not_measured", "table"]

ALLOWED = 1.2  # `CHECK=1` lets a line fall short by a fifth: machines differ


@dataclass(frozen=True, slots=True)
class Line:
    """One measured figure; `low` and `high` are the range over its repeats.

    `at_least` and `at_most` are what is aimed at, None for a line that is shown to explain another one. `missing` says
    why there is no figure.
    """

    name: str
    value: float = 0.0
    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    in_flight: str = ""
    at_least: float | None = None
    at_most: float | None = None
    missing: str = ""

    @property
    def meets(self) -> bool:
        """Whether the figure is what was aimed at."""
        return self._within(1.0)

    @property
    def falls_short(self) -> bool:
        """Whether it misses by more than a fifth."""
        return not self._within(ALLOWED)

    def _within(self, allowed: float) -> bool:
        if self.missing:
            return True
        above = self.at_least is None or self.value >= self.at_least / allowed
        return above and (self.at_most is None or self.value <= self.at_most * allowed)

    @property
    def aim(self) -> str:
        """What is aimed at, in words."""
        unit = f" {self.unit}".rstrip()
        match self.at_least, self.at_most:
            case None, None:
                return ""
            case low, None:
                return f"at least {low:g}{unit}"
            case None, high:
                return f"at most {high:g}{unit}"
            case low, high:
                return f"{low:g} to {high:g}{unit}"


def line(
    name: str,
    values: Sequence[float],
    *,
    unit: str = "",
    in_flight: int | str,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Line:
    """Return the line of what the repeats gave: their median, and from where to where they went."""
    middle = statistics.median(values)
    return Line(name, middle, min(values), max(values), unit, str(in_flight), at_least, at_most)


def not_measured(name: str, why: str, *, in_flight: int | str, at_least: float | None = None) -> Line:
    """Return the line of something that cannot be measured here."""
    return Line(name, in_flight=str(in_flight), at_least=at_least, missing=why)


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _verdict(found: Line) -> str:
    if found.missing or not found.aim:
        return ""
    return "met" if found.meets else "missed"


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a table of text."""
    rows = [("what", "value", "range", "in flight", "aimed at", "")]
    for found in lines:
        value, span = f"{_number(found.value)} {found.unit}".rstrip(), ""
        if found.missing:
            value = "not measured"
        elif found.low != found.high:
            span = f"{_number(found.low)} .. {_number(found.high)}"
        rows.append((found.name, value, span, found.in_flight, found.aim, _verdict(found)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    why = [f"not measured: {found.name.strip()}: {found.missing}" for found in lines if found.missing]
    return "\n".join([text[0], "  ".join("-" * width for width in widths), *text[1:], *why])
