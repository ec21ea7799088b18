"""Kubernetes' own verdicts on names, tolerations and annotations, case by case."""

from collections.abc import Callable
from typing import Any

import pytest

from dexaflow.kube import names
from dexaflow.kube.annotations import annotations_problem
from dexaflow.kube.tolerations import Toleration, toleration_problem
from tests.vectors_loader import load

CHECKS: dict[str, Callable[[str], str | None]] = {
    "label_key": names.label_key_problem,
    "annotation_key": names.annotation_key_problem,
    "label_value": names.label_value_problem,
    "dns1123_subdomain": names.dns1123_subdomain_problem,
    "dns1123_label": names.dns1123_label_problem,
    "service_account": names.service_account_problem,
    "priority_class": names.priority_class_problem,
}


def _name(case: dict[str, Any]) -> str:
    return ascii(case["name"])


@pytest.mark.parametrize("case", load("names"), ids=_name)
def test_names_are_judged_as_kubernetes_judges_them(case: dict[str, Any]) -> None:
    """A key or value Kubernetes would reject is refused, and no other (R2.5, R5.2)."""
    assert (CHECKS[case["kind"]](case["value"]) is None) is case["valid"]
    if "reserved" in case:
        assert names.is_reserved(case["value"]) is case["reserved"]


@pytest.mark.parametrize("case", load("tolerations"), ids=_name)
def test_tolerations_are_judged_as_kubernetes_judges_them(case: dict[str, Any]) -> None:
    """Lt and Gt count as rejected (R5.2)."""
    assert (toleration_problem(Toleration(**case["toleration"])) is None) is case["valid"]


@pytest.mark.parametrize("case", load("annotations"), ids=_name)
def test_annotations_are_judged_as_kubernetes_judges_them(case: dict[str, Any]) -> None:
    """Keys and values together have a limit, in bytes as written (R5.2)."""
    annotations = _annotations(case)
    assert sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) == case["total_bytes"]
    assert (annotations_problem(annotations) is None) is case["valid"]


def _annotations(case: dict[str, Any]) -> dict[str, str]:
    def text(value: str | dict[str, Any]) -> str:
        return value if isinstance(value, str) else str(value["repeat"] * value["times"])

    if "generate" not in case:
        return {text(entry["key"]): text(entry["value"]) for entry in case["entries"]}
    made = case["generate"]
    found = {f"k{i:04}": "x" * 27 for i in range(made["count"])}
    found[f"k{made['count'] - 1:04}"] = "x" * made["last_value_length"]
    return found
