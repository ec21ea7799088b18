"""Kubernetes' own verdicts, case by case."""

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


def _ids(case: dict[str, Any]) -> str:
    return str(case["name"])


@pytest.mark.parametrize("case", load("names"), ids=_ids)
def test_names_are_judged_as_kubernetes_judges_them(case: dict[str, Any]) -> None:
    assert (CHECKS[case["kind"]](case["value"]) is None) is case["valid"]
    if "reserved" in case:
        assert names.is_reserved(case["value"]) is case["reserved"]


@pytest.mark.parametrize("case", load("tolerations"), ids=_ids)
def test_tolerations_are_judged_as_kubernetes_judges_them(case: dict[str, Any]) -> None:
    assert (toleration_problem(Toleration(**case["toleration"])) is None) is case["valid"]


def _annotations(case: dict[str, Any]) -> dict[str, str]:
    def text(value: Any) -> str:
        return value if isinstance(value, str) else value["repeat"] * value["times"]

    if "generate" not in case:
        return {text(e["key"]): text(e["value"]) for e in case["entries"]}
    made = case["generate"]
    found = {f"k{i:04}": "x" * 27 for i in range(made["count"])}
    if "last_value_length" in made:
        found[f"k{made['count'] - 1:04}"] = "x" * made["last_value_length"]
    return found


@pytest.mark.parametrize("case", load("annotations"), ids=_ids)
def test_annotations_are_judged_as_kubernetes_judges_them(case: dict[str, Any]) -> None:
    annotations = _annotations(case)
    assert sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) == case["total_bytes"]
    assert (annotations_problem(annotations) is None) is case["valid"]
