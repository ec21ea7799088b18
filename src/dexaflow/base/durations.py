"""Durations as people write them: ``500ms``, ``30s``, ``1m30s``, ``2h``, ``30d``."""

import math
import re
from fractions import Fraction

from dexaflow.base.text import quoted

__all__ = ["MAX_SECONDS", "format_duration", "parse_duration"]

MAX_SECONDS = 36_500 * 86_400.0  # a hundred years; beyond it dates overflow, and it is a mistake anyway

_SECONDS = {"d": Fraction(86_400), "h": Fraction(3600), "m": Fraction(60), "s": Fraction(1), "ms": Fraction(1, 1000)}
_UNITS = tuple(_SECONDS)  # in the order in which they are written
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z\u00b5\u03bc]+)")
_BARE = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MAX_LENGTH = 64
_FIX = "write 500ms, 30s or 15m"


def parse_duration(written: str) -> float:
    """Return the seconds of a duration: numbers with units from large to small, each unit at most once.

    The units are ``d`` (24 hours), ``h``, ``m`` (minutes), ``s`` and ``ms``; a number may have a fraction (``1.5s``).

    Raises:
        ValueError: One line: what is wrong, and what to write. No unit, an unknown one, a sign, blanks, units twice or
            out of order, or more than a hundred years.
    """
    what = quoted(written)
    if not written:
        raise ValueError(f"it is empty; {_FIX}")
    if len(written) > _MAX_LENGTH:
        raise ValueError(f"{what} is too long for a duration; {_FIX}")
    if written.startswith(("-", "+")):
        raise ValueError(f"{what} has a sign; {_FIX}")
    if _BARE.fullmatch(written):
        raise ValueError(f"{what} has no unit; {_FIX}")
    total = Fraction(0)
    place, unit_before = 0, -1
    while place < len(written):
        part = _PART.match(written, place)
        if part is None:
            if _BARE.fullmatch(written, place):
                raise ValueError(f"{what} ends in a number without a unit; {_FIX}")
            raise ValueError(f"{what} is not a duration; {_FIX}")
        number, unit = part.groups()
        if unit not in _SECONDS:
            raise ValueError(f"{what} has the unknown unit {quoted(unit)}; use d, h, m, s or ms")
        position = _UNITS.index(unit)
        if position <= unit_before:
            raise ValueError(f"{what} has its units twice or out of order; write them from large to small, as 1h30m")
        total += Fraction(number) * _SECONDS[unit]
        place, unit_before = part.end(), position
    if total > MAX_SECONDS:
        raise ValueError(f"{what} is more than a hundred years; write a shorter one")
    return float(total)


def format_duration(seconds: float) -> str:
    """Return a duration as `parse_duration` reads it, to the microsecond: ``1m30s``, ``500ms``, ``0s``.

    Raises:
        ValueError: `seconds` is negative, not a number, or more than `MAX_SECONDS`.
    """
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_SECONDS):
        raise ValueError(f"{seconds} is no duration; it must be from 0 to {MAX_SECONDS:.0f} seconds")
    left = round(Fraction(seconds) * 1_000_000)  # microseconds; exact, so that 59.9999999 becomes 1m and not 60s
    if 0 < left < 1_000_000:
        return f"{_plain(left, 1000)}ms"
    parts = []
    for unit in ("d", "h", "m"):
        count, left = divmod(left, int(_SECONDS[unit]) * 1_000_000)
        if count:
            parts.append(f"{count}{unit}")
    if left or not parts:
        parts.append(f"{_plain(left, 1_000_000)}s")
    return "".join(parts)


def _plain(amount: int, whole: int) -> str:
    """Return `amount` / `whole`, a power of ten, as a decimal without needless zeros."""
    before, after = divmod(amount, whole)
    fraction = str(after).zfill(len(str(whole)) - 1).rstrip("0")
    return f"{before}.{fraction}" if fraction else str(before)
