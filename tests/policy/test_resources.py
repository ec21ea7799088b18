"""Effective resources (R2.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.kube.quantities import Quantity
from dexaflow.model.execution import Resources
from dexaflow.policy.policy import Policy
from dexaflow.policy.resources import EffectiveResources, effective_resources
from tests.policy.builders import a_task, a_unit, passed, rejected, set_by

DEFAULTS = Policy(default_resources=Resources(requests={"cpu": "100m"}, limits={"memory": "256Mi"}))


def _sides(resources: Resources) -> tuple[dict[str, str], dict[str, str]]:
    return dict(resources.requests), dict(resources.limits)


@pytest.mark.parametrize("declared", [None, {}, {"requests": {}, "limits": {}}])
def test_a_task_that_declares_none_gets_its_slots_worth_of_the_unit(declared: dict[str, dict[str, str]] | None) -> None:
    checked = passed(a_task(resources=declared, pool_slots=3), a_unit("500m", "1Gi"))

    amounts = {"cpu": "1500m", "memory": "3Gi"}
    assert _sides(checked.resources) == (amounts, amounts)
    assert {by for _, by in set_by(checked.settings).values()} == {"unit", "platform default"}
    assert set_by(checked.settings)["resources.limits", "cpu"] == ("1500m", "unit")


def test_what_a_task_leaves_out_is_filled_in_and_nothing_declared_is_rewritten() -> None:
    """A missing limit is pool_slots x unit, a missing request is its limit (R2.1)."""
    task = a_task(resources={"requests": {"cpu": "0.25"}, "limits": {"memory": "1024Mi"}}, pool_slots=2)

    checked = passed(task, a_unit("500m", "1Gi"))

    assert _sides(checked.resources) == (
        {"cpu": "0.25", "memory": "1024Mi"},
        {"cpu": "1", "memory": "1024Mi"},
    )
    by = set_by(checked.settings)
    assert by["resources.requests", "cpu"] == ("0.25", "author")
    assert by["resources.requests", "memory"] == ("1024Mi", "unit")
    assert by["resources.limits", "cpu"] == ("1", "unit")
    assert by["resources.limits", "memory"] == ("1024Mi", "author")


def test_ephemeral_storage_is_no_part_of_the_unit_but_its_request_is_filled_in() -> None:
    checked = passed(a_task(resources={"limits": {"ephemeral-storage": "500Gi"}}), a_unit())
    assert checked.resources.requests["ephemeral-storage"] == "500Gi"
    assert checked.resources.limits["memory"] == "1Gi"

    checked = passed(a_task(resources={"requests": {"ephemeral-storage": "1Gi"}}), a_unit())
    assert "ephemeral-storage" not in checked.resources.limits


@pytest.mark.parametrize(
    ("declared", "slots", "says"),
    [
        ({"limits": {"cpu": "2"}}, 1, "pool_slots=4"),
        ({"requests": {"cpu": "2"}}, 1, "pool_slots=4"),
        ({"limits": {"cpu": "1.0000001"}}, 2, "pool_slots=3"),
        ({"limits": {"cpu": "600m", "memory": "1Gi"}}, 1, "pool_slots=2"),
        ({"limits": {"memory": "1025Mi"}}, 1, "pool_slots=2"),
        ({"limits": {"cpu": "1e9999"}}, 1, "no pool_slots would fit"),
    ],
)
def test_what_does_not_fit_is_refused_naming_the_size_that_would(
    declared: dict[str, dict[str, str]], slots: int, says: str
) -> None:
    rejection = rejected(a_task(resources=declared, pool_slots=slots), a_unit("500m", "1Gi"))
    assert rejection.rule == "resource unit"
    assert rejection.field.startswith("resources.")
    assert says in rejection.message


def test_the_size_named_fits_all_that_the_task_declares() -> None:
    task = a_task(resources={"limits": {"cpu": "3", "memory": "9Gi"}}, pool_slots=1)
    found = effective_resources(task, a_unit("500m", "1Gi"))
    assert isinstance(found, tuple)
    assert len(found) == 2
    assert all("pool_slots=9" in rejection.message for rejection in found)
    passed(a_task(resources={"limits": {"cpu": "3", "memory": "9Gi"}}, pool_slots=9), a_unit("500m", "1Gi"))


@pytest.mark.parametrize("policy", [Policy(), a_unit("8", "64Gi")])
def test_a_request_above_its_limit_is_refused_with_a_unit_and_without(policy: Policy) -> None:
    task = a_task(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "2G"}})
    rejection = rejected(task, policy)
    assert rejection.rule == "kubernetes"
    assert "above its limit '2G'" in rejection.message


def test_a_task_that_declares_none_gets_the_platform_defaults_where_there_is_no_unit() -> None:
    checked = passed(a_task(), DEFAULTS)
    assert _sides(checked.resources) == ({"cpu": "100m"}, {"memory": "256Mi"})
    assert set_by(checked.settings)["resources.requests", "cpu"] == ("100m", "platform default")

    assert _sides(passed(a_task(), Policy()).resources) == ({}, {})


def test_without_a_unit_what_is_declared_stays_as_it_is() -> None:
    checked = passed(a_task(resources={"requests": {"cpu": "2.50"}}), DEFAULTS)
    assert _sides(checked.resources) == ({"cpu": "2.50"}, {})
    assert set_by(checked.settings)["resources.requests", "cpu"] == ("2.50", "author")


@pytest.mark.parametrize("policy", [Policy(), a_unit("100", "1Ti")])
@pytest.mark.parametrize(
    ("name", "amount", "says"),
    [
        ("gpu", "1", "unknown field 'gpu'"),
        ("nvidia.com/gpu", "1", "unknown field 'nvidia.com/gpu'"),
        ("CPU", "1", "unknown field 'CPU'"),
        ("cpu\n", "1", r"unknown field 'cpu\u000a'"),
        ("cpu", "1 core", "'1 core' is not a quantity"),
        ("memory", "1K", "unknown suffix 'K'"),
        ("memory", "", "is not a quantity"),
        ("memory", "-1Gi", "'-1Gi' is negative"),
        ("cpu", "\x1b[31m1", r"\u001b"),
        ("cpu", "9" * 70_000, "too long"),
    ],
)
def test_unknown_names_and_bad_quantities_are_refused(policy: Policy, name: str, amount: str, says: str) -> None:
    """Names other than cpu, memory and ephemeral storage are unknown fields; negative amounts are none (R2.1)."""
    rejection = rejected(a_task(resources={"limits": {name: amount}}), policy)
    assert rejection.field == "resources.limits"
    assert says in rejection.message


def test_a_huge_unit_is_filled_in_with_its_exact_amount() -> None:
    """Kubernetes prints 10^21 as "1": what we write must be what was meant."""
    checked = passed(a_task(pool_slots=1000), a_unit("1E", "1Ei"))
    assert Quantity.parse(checked.resources.limits["cpu"]) == Quantity.parse("1E").mul(1000)
    assert Quantity.parse(checked.resources.limits["memory"]) == Quantity.parse("1Ei").mul(1000)


AMOUNTS = st.builds(lambda n, s: f"{n}{s}", st.integers(0, 3000), st.sampled_from(["", "m", "k", "Ki", "Mi"]))
SIDES = st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), AMOUNTS)


@given(SIDES, SIDES, st.integers(1, 20), st.booleans())
def test_nothing_declared_is_rewritten_and_what_passes_fits(
    requests: dict[str, str], limits: dict[str, str], slots: int, with_unit: bool
) -> None:
    policy = a_unit("250m", "4Mi") if with_unit else Policy()
    task = a_task(resources={"requests": requests, "limits": limits}, pool_slots=slots)
    found = effective_resources(task, policy)
    if not isinstance(found, EffectiveResources):
        assert all(rejection.message and "\n" not in rejection.message for rejection in found)
        return
    got_requests, got_limits = _sides(found.resources)
    assert {**got_requests, **requests} == got_requests
    assert {**got_limits, **limits} == got_limits
    for name, amount in got_requests.items():
        assert name not in got_limits or Quantity.parse(amount) <= Quantity.parse(got_limits[name])
    if policy.unit is not None:
        assert Quantity.parse(got_limits["cpu"]) <= policy.unit.cpu.mul(slots)
        assert Quantity.parse(got_limits["memory"]) <= policy.unit.memory.mul(slots)
        assert got_limits.keys() <= got_requests.keys()
    assert {(s.field, s.key) for s in found.settings} == {
        *(("resources.requests", name) for name in got_requests),
        *(("resources.limits", name) for name in got_limits),
    }
