"""Quantities are Kubernetes' quantities."""

from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.text import shown
from dexaflow.kube.quantities import MAX_EXPONENT, MAX_LENGTH, Format, Quantity
from tests.vectors_loader import load

FACTORS = {
    **{suffix: Decimal(f"1e{power}") for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{f"{prefix}i": Decimal(1024) ** power for power, prefix in enumerate("KMGTPE", start=1)},
    **{suffix: Decimal(f"1{suffix}") for suffix in ("e3", "E-7", "e25")},
}
SUFFIXES = tuple(FACTORS)
NUMBERS = st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,12})?", fullmatch=True)
QUANTITIES = st.builds(lambda n, s: Quantity.parse(n + s), NUMBERS, st.sampled_from(SUFFIXES))


def _of(kind: str) -> pytest.MarkDecorator:
    cases = [case for case in load("quantities") if case["op"] == kind]
    assert cases
    return pytest.mark.parametrize("case", cases, ids=lambda case: ascii(case["name"]))


def _assert_is(found: Quantity, expected: dict[str, Any]) -> None:
    assert Decimal(found.decimal) == Decimal(expected["decimal"])
    assert found.canonical == expected["canonical"]
    assert found.string == expected["string"]
    assert found.format == expected["format"]
    assert found.sign == expected["sign"]
    for ours, theirs in ((found.value(), expected["value"]), (found.milli_value(), expected["milli_value"])):
        assert theirs is None or ours == theirs  # None: Go's own is wrong there


@_of("parse")
def test_a_quantity_is_parsed_as_kubernetes_parses_it(case: dict[str, Any]) -> None:
    """Quantities follow Kubernetes' rules (R2.1)."""
    if not case["ok"]:
        with pytest.raises(ValueError):
            Quantity.parse(case["a"])
    else:
        _assert_is(Quantity.parse(case["a"]), case["result"])


@pytest.mark.parametrize(
    ("text", "string", "canonical", "form"),
    [
        ("Ti", "0", "0", "BinarySI"),  # without a digit: zero on Kubernetes' fast path only
        (".Ti", "0", "0", "BinarySI"),
        ("Pi", None, None, None),
        (".Pi", None, None, None),
        ("e-10", None, None, None),
        ("-e-9", "0", "0", "DecimalExponent"),
        ("0.9765625Ki", "1k", "1k", "BinarySI"),  # below 1024 it is written as decimal
        ("1023.0Ki", "1023Ki", "1023Ki", "BinarySI"),
        ("0001Ki", "0001Ki", "1Ki", "BinarySI"),  # kept as written
        ("01.Ki", "01.Ki", "1Ki", "BinarySI"),
        ("012345678901Ki", "012345678901Ki", "12345678901Ki", "BinarySI"),  # kept up to this many digits
        ("0123456789011Ki", "123456789011Ki", "123456789011Ki", "BinarySI"),
        ("0000000000000000000001", "0000000000000000000001", "1", "DecimalSI"),
        ("1e+03", "1e+03", "1e3", "DecimalExponent"),
        ("-0.5n", "-1n", "-1n", "DecimalSI"),
        ("-8Ei", "-9223372036854775807", "-9223372036854775807", "BinarySI"),
        ("1e-100", "1e-9", "1e-9", "DecimalExponent"),
        ("5e23", "500e21", "500e21", "DecimalExponent"),
        ("1E5m", None, None, None),
        ("-0.5Ki", "-512", "-512", "BinarySI"),
    ],
)
def test_the_odd_corners_are_as_in_apimachinery_0_35(
    text: str, string: str | None, canonical: str | None, form: str | None
) -> None:
    """Taken from runs of its ``ParseQuantity``, beyond what the vectors hold."""
    if string is None:
        with pytest.raises(ValueError):
            Quantity.parse(text)
    else:
        quantity = Quantity.parse(text)
        assert (quantity.string, quantity.canonical, quantity.format) == (string, canonical, form)


@_of("cmp")
def test_quantities_compare_by_value(case: dict[str, Any]) -> None:
    a, b = Quantity.parse(case["a"]), Quantity.parse(case["b"])
    assert a.compare(b) == case["cmp"]
    assert b.compare(a) == -case["cmp"]
    assert (a == b) is (case["cmp"] == 0)


@_of("add")
def test_quantities_add_up_as_in_kubernetes(case: dict[str, Any]) -> None:
    _assert_is(Quantity.parse(case["a"]).add(Quantity.parse(case["b"])), case["result"])


@_of("sub")
def test_quantities_subtract_as_in_kubernetes(case: dict[str, Any]) -> None:
    _assert_is(Quantity.parse(case["a"]).sub(Quantity.parse(case["b"])), case["result"])


@_of("mul")
def test_quantities_multiply_as_in_kubernetes(case: dict[str, Any]) -> None:
    a = Quantity.parse(case["a"])
    _assert_is(a.mul(case["n"]), case["result"])
    assert (-(2**63) <= a.unscaled * case["n"] < 2**63) is case["exact_in_int64"]


@given(QUANTITIES)
def test_the_exact_text_reads_back_as_the_same_amount(quantity: Quantity) -> None:
    again = Quantity.parse(quantity.exact_text)
    assert again == quantity
    assert hash(again) == hash(quantity)
    assert quantity.compare(again) == 0


@given(QUANTITIES, QUANTITIES, st.integers(-(10**6), 10**6))
def test_arithmetic_is_exact(a: Quantity, b: Quantity, times: int) -> None:
    with localcontext() as context:
        context.prec = 400
        x, y = Decimal(a.decimal), Decimal(b.decimal)
        assert Decimal(a.add(b).decimal) == x + y
        assert Decimal(a.sub(b).decimal) == x - y
        assert Decimal(a.mul(times).decimal) == x * times
        assert a.compare(b) == (x > y) - (x < y)
        assert (a < b, a <= b, a > b, a >= b, a == b) == (x < y, x <= y, x > y, x >= y, x == y)
        assert a.value() == int(x.to_integral_value("ROUND_UP"))
        assert a.milli_value() == int((x * 1000).to_integral_value("ROUND_UP"))
        if y > 0:
            assert (a.units(b) - 1) * y < x <= a.units(b) * y


@given(NUMBERS, st.sampled_from(SUFFIXES))
def test_nothing_finer_than_nano_is_left_and_nothing_is_rounded_down(number: str, suffix: str) -> None:
    with localcontext() as context:
        context.prec = 400
        exact = Decimal(number) * FACTORS[suffix]
        if suffix.endswith("i"):
            exact = max(min(exact, Decimal(2**63 - 1)), -Decimal(2**63 - 1))
        found = Decimal(Quantity.parse(number + suffix).decimal)
        assert abs(found) * 10**9 == (abs(exact) * 10**9).to_integral_value("ROUND_UP")
        assert found == 0 or (found > 0) is (exact > 0)


@given(st.text(max_size=50) | st.text("0123456789.+-eEinumkKMGTP", max_size=20))
def test_any_text_is_a_quantity_or_a_clear_error(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except ValueError as error:
        assert shown(str(error)) == str(error)
    else:
        assert Decimal(quantity.decimal) == Decimal(Quantity.parse(quantity.exact_text).decimal)


@pytest.mark.parametrize(
    "text",
    ["1e999999999", "1e-999999999", "1e" + "9" * 300, "1e4294967297", "9" * 65_536, "1." + "0" * 65_536, "." * 65_536],
)
def test_what_would_take_kubernetes_minutes_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        Quantity.parse(text)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", [f"1e{MAX_EXPONENT}", f"1e-{MAX_EXPONENT}", "9" * MAX_LENGTH, "9" * 600 + "e9999"])
def test_the_largest_amounts_can_still_be_worked_with(text: str) -> None:
    """Python refuses to print very long ints; an error message must not be where we find out."""
    quantity = Quantity.parse(text)
    for amount in (quantity, quantity.add(Quantity.parse("1n")), quantity.mul(2**63)):
        assert amount.canonical
        assert amount.decimal
        assert repr(amount)
        assert hash(amount) == hash(amount.mul(1))
    with pytest.raises(ValueError, match="too large"):
        quantity.mul(10**19_000).mul(10**19_000)


def test_the_text_that_kubernetes_prints_is_not_trusted_where_it_loses_the_exponent() -> None:
    """Above 10^20 its printer runs out of suffixes; what we fill in must be the amount itself."""
    quantity = Quantity.parse("1000000000000000000000")
    assert quantity.canonical == "1"
    assert quantity.exact_text == "1e21"
    assert Quantity.parse("1Ei").mul(1024).exact_text == "1180591620717411303424"


def test_equal_amounts_are_one_key_whatever_their_text() -> None:
    assert {Quantity.parse(text) for text in ("1", "1000m", "1.0", "1e0", "0.001k")} == {Quantity.parse("1")}
    assert Quantity.parse("1") != "1"
    assert Quantity.parse("0").add(Quantity.parse("1Gi")).format is Format.BINARY_SI
