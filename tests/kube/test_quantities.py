"""Quantities are Kubernetes' quantities."""

from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.kube.quantities import Quantity
from tests.vectors_loader import load


def _operate(case: dict[str, Any]) -> Quantity:
    a = Quantity.parse(case["a"])
    match case["op"]:
        case "parse":
            return a
        case "add":
            return a + Quantity.parse(case["b"])
        case "sub":
            return a - Quantity.parse(case["b"])
        case _:
            return a * case["n"]


@pytest.mark.parametrize("case", load("quantities"), ids=lambda case: str(case["name"]))
def test_quantities_are_what_kubernetes_makes_of_them(case: dict[str, Any]) -> None:
    if case["op"] == "cmp":
        a, b = Quantity.parse(case["a"]), Quantity.parse(case["b"])
        assert (a > b) - (a < b) == case["cmp"]
        return
    if case.get("ok") is False:
        with pytest.raises(ValueError):
            Quantity.parse(case["a"])
        return
    result, expected = _operate(case), case["result"]
    with localcontext() as context:
        context.prec = 400
        assert Decimal(result.nanos) / 10**9 == Decimal(expected["decimal"])
    assert result.sign == expected["sign"]
    assert result.format == expected["format"]
    if "quirk" not in case:
        assert result.canonical == expected["canonical"]
        assert str(result) == expected["string"]
    for ours, theirs in ((result.value(), expected["value"]), (result.milli_value(), expected["milli_value"])):
        assert theirs is None or ours == theirs


@given(st.integers(-(10**30), 10**30), st.sampled_from(["", "n", "u", "m", "k", "M", "G", "E", "Ki", "Mi", "Gi", "e3"]))
def test_what_is_printed_reads_back_as_the_same_value(number: int, suffix: str) -> None:
    quantity = Quantity.parse(f"{number}{suffix}")
    assert Quantity.parse(quantity.canonical) == quantity
    assert Quantity.parse(str(quantity)) == quantity


@given(st.text(max_size=50) | st.text("0123456789.+-eEinumkKMGTP", max_size=20))
def test_any_text_is_a_quantity_or_a_clear_error(text: str) -> None:
    try:
        Quantity.parse(text)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is fine


@pytest.mark.parametrize("text", ["1e999999999", "1e-999999999", "1e" + "9" * 300, "9" * 65_536, "1." + "0" * 70_000])
def test_what_would_take_kubernetes_minutes_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError):
        Quantity.parse(text)
