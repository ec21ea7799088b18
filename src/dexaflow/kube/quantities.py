"""Amounts of CPU, memory and storage: Kubernetes' ``resource.Quantity``, to the letter.

An amount is a whole number times a power of ten; it is never a float. Finer than nano is rounded up, away from zero;
binary amounts are capped at 2^63 - 1. The texts are Kubernetes' own, also where they do not stand for the value: above
10^20 its printer runs out of suffixes and drops the exponent. `exact_text` is there for whoever needs the value.

Kubernetes takes texts and exponents of any length, and spends hours on some. Here both are bounded.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import final

from dexaflow.base.text import quoted

__all__ = ["MAX_EXPONENT", "MAX_LENGTH", "Format", "Quantity"]

MAX_LENGTH = 640  # of a text, in characters; what `int` takes wherever Python runs
MAX_EXPONENT = 9999  # of a text, either way
_MAX_BITS = 65_536  # of any amount: twice the largest that can be written, so that sums and products stay bounded too

_NANO = -9
_MAX_INT64 = 2**63 - 1
_FAST_DIGITS = 18  # that surely fit in an int64; Kubernetes' fast path ends there

_SYNTAX = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIX = {exponent: suffix for suffix, exponent in _BINARY.items()}

_FIX = "write a number with a suffix of Kubernetes, such as 500m, 2, 1.5Gi or 1e3"


class Format(StrEnum):
    """How an amount is written; Kubernetes' words."""

    DECIMAL_SI = "DecimalSI"  # 12M
    BINARY_SI = "BinarySI"  # 12Mi
    DECIMAL_EXPONENT = "DecimalExponent"  # 12e6


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quantity:
    """One amount: ``unscaled * 10 ** exponent``. Compares, hashes and sorts by its value alone; made by `parse`."""

    unscaled: int
    exponent: int
    format: Format = Format.DECIMAL_SI
    written: str = ""  # the text as given, where Kubernetes keeps it; else ""

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Return the amount that `text` stands for, taken as Kubernetes takes it (``Gi`` is 0, ``1.`` is 1).

        Raises:
            ValueError: Kubernetes would refuse it, or its length or exponent is out of all reason; one line.
        """
        if len(text) > MAX_LENGTH:
            raise ValueError(f"{quoted(text)} is too long for a quantity; {_FIX}")
        match = _SYNTAX.fullmatch(text)
        if match is None or not text:
            raise ValueError(f"{quoted(text)} is not a quantity; {_FIX}")
        sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
        digits = (whole.lstrip("0") or "0") + fraction
        amount = int(digits)
        if suffix in _BINARY:
            return cls._binary(match, amount, len(digits), len(fraction))
        form = Format.DECIMAL_SI
        exponent = _DECIMAL.get(suffix)
        if exponent is None:
            form, exponent = Format.DECIMAL_EXPONENT, _exponent(text, suffix)
        scale = exponent - len(fraction)
        if len(digits) <= _FAST_DIGITS and scale >= _NANO:
            # Kubernetes keeps the text if it takes it for canonical; its test is a rough one.
            keeps = text == "0" or (scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0")
            return cls(-amount if sign == "-" else amount, scale, form, text if keeps else "")
        _need_digits(match)
        amount, scale = _up_to_nano(amount, scale)
        return cls(-amount if sign == "-" else amount, scale, form)

    @classmethod
    def _binary(cls, match: re.Match[str], amount: int, digits: int, places: int) -> "Quantity":
        text, power, form = match[0], _BINARY[match[4]], Format.BINARY_SI
        written = ""
        scaled, scale = amount << power, 0
        if not places and digits + power * 3 // 10 < 15:  # the fast path of Kubernetes, which alone keeps the text
            written = text if amount & 7 else ""
        else:
            _need_digits(match)
            scaled, scale = _up_to_nano(scaled, -places)
            if _compare(scaled, scale, _MAX_INT64, 0) > 0:
                scaled, scale = _MAX_INT64, 0
            if scaled and _compare(scaled, scale, 1, 0) < 0:
                form = Format.DECIMAL_SI
        return cls(-scaled if match[1] == "-" else scaled, scale, form, written)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    @property
    def string(self) -> str:
        """The text Kubernetes gives: as written where it keeps that, else the canonical one."""
        return self.written or self.canonical

    @property
    def canonical(self) -> str:
        """Kubernetes' canonical text: a whole number with the largest suffix. Above 10^20 see the module."""
        number, suffix = self._canonical()
        return number + suffix

    @property
    def exact_text(self) -> str:
        """A text that Kubernetes reads as this very amount: the canonical one, or one with an exponent."""
        number, suffix = self._canonical()
        text = number + suffix
        if len(text) <= MAX_LENGTH and Quantity.parse(text) == self:
            return text
        amount, exponent = _without_tens(self.unscaled, self.exponent)
        return f"{_digits(amount)}e{exponent}" if exponent else _digits(amount)

    @property
    def decimal(self) -> str:
        """The exact value as a plain decimal number: ``0.1``, ``1181116006.4``."""
        amount, exponent = _without_tens(abs(self.unscaled), self.exponent)
        digits = _digits(amount)
        if exponent >= 0:
            text = digits + "0" * exponent if amount else "0"
        else:
            digits = digits.zfill(1 - exponent)
            text = f"{digits[:exponent]}.{digits[exponent:]}"
        return f"-{text}" if self.unscaled < 0 else text

    def value(self) -> int:
        """Return the amount in whole units, rounded away from zero. Unlike Go's, it cannot overflow."""
        return self._rounded_at(0)

    def milli_value(self) -> int:
        """Return the amount in thousandths, rounded away from zero. Unlike Go's, it cannot overflow."""
        return self._rounded_at(-3)

    def compare(self, other: "Quantity") -> int:
        """Return -1, 0 or 1: less than, equal to, greater than `other`, by value."""
        return _compare(self.unscaled, self.exponent, other.unscaled, other.exponent)

    def units(self, unit: "Quantity") -> int:
        """Return how many of `unit`, which is above zero, hold this amount: the quotient, rounded up."""
        exponent = min(self.exponent, unit.exponent)
        return -(-_at(self.unscaled, self.exponent, exponent) // _at(unit.unscaled, unit.exponent, exponent))

    def add(self, other: "Quantity") -> "Quantity":
        """Return the sum, in the format of this one, or of `other` if this is zero.

        Raises:
            ValueError: It is too large to be worked with.
        """
        form = self.format if self.unscaled else other.format
        if not other.unscaled:
            return Quantity(self.unscaled, self.exponent, form)
        if not self.unscaled:
            return Quantity(other.unscaled, other.exponent, form)
        exponent = min(self.exponent, other.exponent)
        total = _at(self.unscaled, self.exponent, exponent) + _at(other.unscaled, other.exponent, exponent)
        return _bounded(total, exponent, form)

    def sub(self, other: "Quantity") -> "Quantity":
        """Return the difference, in the format of this one, or of `other` if this is zero. Raises as `add`."""
        return self.add(Quantity(-other.unscaled, other.exponent, other.format))

    def mul(self, times: int) -> "Quantity":
        """Return the product with a whole number, in the same format. Raises as `add`."""
        if not times or not self.unscaled:
            return Quantity(0, 0, self.format)
        if times.bit_length() > _MAX_BITS:
            raise ValueError("the product is too large for a quantity")
        return _bounded(self.unscaled * times, self.exponent, self.format)

    def __eq__(self, other: object) -> bool:
        return self.compare(other) == 0 if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(_without_tens(self.unscaled, self.exponent))

    def __lt__(self, other: "Quantity") -> bool:
        return self.compare(other) < 0

    def __le__(self, other: "Quantity") -> bool:
        return self.compare(other) <= 0

    def __gt__(self, other: "Quantity") -> bool:
        return self.compare(other) > 0

    def __ge__(self, other: "Quantity") -> bool:
        return self.compare(other) >= 0

    def __str__(self) -> str:
        return self.string

    def __repr__(self) -> str:
        return f"Quantity({self.exact_text!r})"

    def _rounded_at(self, exponent: int) -> int:
        amount, _ = _up_to(abs(self.unscaled), self.exponent, exponent)
        return -amount if self.unscaled < 0 else amount

    def _canonical(self) -> tuple[str, str]:
        if not self.unscaled:
            return "0", ""
        amount, exponent = _without_tens(self.unscaled, self.exponent)
        if self.format is Format.BINARY_SI and exponent >= 0:
            whole = amount * 10**exponent
            if abs(whole) >= 1024:  # below, and with a fraction, Kubernetes writes it as decimal
                power = 0
                while whole % 1024 == 0:
                    whole //= 1024
                    power += 10
                return _digits(whole), _BINARY_SUFFIX.get(power, "")
        amount *= 10 ** (exponent % 3)
        exponent -= exponent % 3
        if self.format is Format.DECIMAL_EXPONENT:
            return _digits(amount), f"e{exponent}" if exponent else ""
        return _digits(amount), _DECIMAL_SUFFIX.get(exponent, "")


def _exponent(text: str, suffix: str) -> int:
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        known = " ".join([*filter(None, _DECIMAL), *_BINARY])
        raise ValueError(
            f"{quoted(text)} has the unknown suffix {quoted(suffix)}; use one of {known}, or e and a number"
        )
    exponent = int(match[1])
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"{quoted(text)} has an exponent beyond {MAX_EXPONENT}; {_FIX}")
    return exponent


def _need_digits(match: re.Match[str]) -> None:
    """Refuse a text without a digit, as Kubernetes' slow path does: it takes ``Gi`` for 0, and not ``Ei``."""
    if not (match[2] or match[3]):
        raise ValueError(f"{quoted(match[0])} has no digits; {_FIX}")


def _up_to_nano(amount: int, exponent: int) -> tuple[int, int]:
    """Return a non-negative amount in nano, rounded up; zero keeps its scale, as in Kubernetes."""
    return _up_to(amount, exponent, _NANO) if amount else (0, exponent)


def _up_to(amount: int, exponent: int, wanted: int) -> tuple[int, int]:
    """Return a non-negative amount at the scale `wanted`, rounded up."""
    if exponent >= wanted:
        return amount * 10 ** (exponent - wanted), wanted
    return -(-amount // 10 ** (wanted - exponent)), wanted


def _at(unscaled: int, exponent: int, wanted: int) -> int:
    factor: int = 10 ** (exponent - wanted)  # `wanted` is the smaller
    return unscaled * factor


def _compare(a: int, a_exponent: int, b: int, b_exponent: int) -> int:
    exponent = min(a_exponent, b_exponent)
    left, right = _at(a, a_exponent, exponent), _at(b, b_exponent, exponent)
    return (left > right) - (left < right)


def _bounded(unscaled: int, exponent: int, form: Format) -> Quantity:
    if unscaled.bit_length() + max(exponent, 0) * 4 > _MAX_BITS:
        raise ValueError("the result is too large for a quantity")
    return Quantity(unscaled, exponent, form)


def _without_tens(amount: int, exponent: int) -> tuple[int, int]:
    """Return the same value with no factor of ten left in the amount; zero is (0, 0)."""
    if not amount:
        return 0, 0
    for step in (4096, 512, 64, 8, 1):  # large ones first: one by one takes the square of the digits
        divisor = 10**step
        while amount % divisor == 0:
            amount //= divisor
            exponent += step
    return amount, exponent


def _digits(amount: int) -> str:
    """Return an int as text. Python's own refuses some thousands of digits, a limit that anyone may set lower."""
    if amount < 0:
        return f"-{_digits(-amount)}"
    parts = []
    while amount >= _CHUNK:
        amount, low = divmod(amount, _CHUNK)
        parts.append(str(low).zfill(_CHUNK_DIGITS))
    parts.append(str(amount))
    return "".join(reversed(parts))


_CHUNK_DIGITS = 500
_CHUNK = 10**_CHUNK_DIGITS
