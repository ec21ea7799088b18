"""Own checks (R1.2, R2.2, R2.5, R5.4, R9.2)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.text import shown
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution
from dexaflow.policy import checked as policy_checked
from dexaflow.policy.checked import Checked, Rejection
from dexaflow.policy.checks import OwnChecks, check, check_task
from dexaflow.policy.policy import EXECUTION_FIELDS, Policy
from tests.policy.builders import a_task, a_unit, an_attempt, images, passed, rejected, set_by

A_VALUE: dict[str, Any] = {
    "node_selector": {"zone": "a"},
    "tolerations": (Toleration("tenant", "Equal", "acme", "NoSchedule"),),
    "labels": {"team": "data"},
    "annotations": {"note": "by hand"},
    "priority_class_name": "high",
    "service_account": "loader",
}


def test_a_plain_task_passes_with_the_platform_defaults() -> None:
    policy = Policy(default_service_account="dexaflow-task", default_image="ghcr.io/platform/base:1")

    checked = passed(a_task(), policy)

    assert checked.execution == Execution(service_account="dexaflow-task")
    assert checked.image == "ghcr.io/platform/base:1"
    assert not checked.service_account_chosen
    assert not checked.own_placement
    assert set_by(checked.settings) == {
        ("service_account", ""): ("dexaflow-task", "platform default"),
        ("image", ""): ("ghcr.io/platform/base:1", "platform default"),
    }


def test_every_part_of_the_pod_says_who_set_it() -> None:
    """So that "why did this run there" has an answer, key by key (R9.2)."""
    checked = passed(a_task(image="ghcr.io/acme/etl:1", **A_VALUE), a_unit())

    assert set_by(checked.settings) == {
        ("image", ""): ("ghcr.io/acme/etl:1", "author"),
        ("service_account", ""): ("loader", "author"),
        ("priority_class_name", ""): ("high", "author"),
        ("node_selector", "zone"): ("a", "author"),
        ("labels", "team"): ("data", "author"),
        ("annotations", "note"): ("by hand", "author"),
        ("tolerations", "0"): ("tenant=acme:NoSchedule Equal", "author"),
        ("resources.requests", "cpu"): ("500m", "unit"),
        ("resources.requests", "memory"): ("1Gi", "unit"),
        ("resources.limits", "cpu"): ("500m", "unit"),
        ("resources.limits", "memory"): ("1Gi", "unit"),
    }
    assert checked.execution == Execution(**A_VALUE)


@pytest.mark.parametrize("field", EXECUTION_FIELDS)
def test_a_field_outside_the_allowlist_may_not_be_set(field: str) -> None:
    """The placement allowlist: fields a DAG author may set; unset allows all."""
    task = a_task(**{field: A_VALUE[field]})
    others = frozenset(EXECUTION_FIELDS) - {field}

    for policy in (Policy(fields=others), Policy(fields=frozenset())):
        rejection = rejected(task, policy)
        assert rejection.rule == "placement allowlist"
        assert rejection.field == f"execution.{field}"
        assert rejection.message.startswith(f"{field} may not be set")
    passed(task, Policy(fields=frozenset({field})))
    passed(task, Policy())
    passed(a_task(), Policy(fields=frozenset()))


@pytest.mark.parametrize("field", EXECUTION_FIELDS)
def test_a_task_that_sets_any_of_its_placement_has_its_own(field: str) -> None:
    """Such an attempt runs on a dedicated pod, never on a warm worker (R5.4)."""
    checked = passed(a_task(**{field: A_VALUE[field]}), Policy())
    assert checked.own_placement
    assert checked.service_account_chosen is (field == "service_account")


@pytest.mark.parametrize(
    ("listed", "name", "allowed"),
    [
        (None, "high", True),
        (None, "system-node-critical", False),
        (None, "system-", False),
        (None, "systematic", True),
        ({"high"}, "high", True),
        ({"high"}, "low", False),
        ({"system-node-critical"}, "system-node-critical", True),
        (set(), "high", False),
    ],
)
def test_priority_classes_are_those_of_the_list_or_all_but_the_clusters_own(
    listed: set[str] | None, name: str, allowed: bool
) -> None:
    policy = Policy(priority_classes=None if listed is None else frozenset(listed))
    task = a_task(priority_class_name=name)
    if allowed:
        assert passed(task, policy).execution.priority_class_name == name
    elif name == "system-":
        assert rejected(task, policy).rule == "kubernetes"
    else:
        rejection = rejected(task, policy)
        assert rejection.rule == "placement allowlist"
        assert "execution_allowlist.priority_classes" in rejection.message


def test_service_accounts_are_those_of_the_list_for_authors_all_when_unset() -> None:
    task = a_task(service_account="loader")
    assert passed(task, Policy()).execution.service_account == "loader"
    passed(task, Policy(service_accounts=frozenset({"loader"})))
    for listed in (frozenset[str](), frozenset({"other"})):
        rejection = rejected(task, Policy(service_accounts=listed))
        assert (rejection.rule, rejection.field) == ("placement allowlist", "execution.service_account")
        assert "'loader' is not in execution_allowlist.service_accounts" in rejection.message


def test_the_operators_own_defaults_are_not_held_against_the_authors_lists() -> None:
    policy = Policy(
        fields=frozenset(),
        service_accounts=frozenset(),
        images=images("ghcr.io/acme").images,
        default_service_account="platform",
        default_image="registry.internal/base",
    )
    checked = passed(a_task(), policy)
    assert (checked.execution.service_account, checked.image) == ("platform", "registry.internal/base")


def test_an_image_outside_the_allowlist_is_refused() -> None:
    """The image allowlist (R2.6)."""
    policy = images("ghcr.io/acme", "alpine:3")
    assert passed(a_task(image="ghcr.io/acme/etl:1"), policy).image == "ghcr.io/acme/etl:1"
    rejection = rejected(a_task(image="alpine"), policy)
    assert (rejection.rule, rejection.field) == ("image allowlist", "image")
    assert "'alpine', which is 'docker.io/library/alpine:latest', is not in image_allowlist" in rejection.message
    assert "'ghcr.io/acme'" in rejection.message
    assert "none" in rejected(a_task(image="alpine"), images()).message
    passed(a_task(), images())


@pytest.mark.parametrize(("policy", "rule"), [(Policy(), "kubernetes"), (images("ghcr.io"), "image allowlist")])
def test_an_image_that_nothing_could_pull_is_refused_list_or_no_list(policy: Policy, rule: str) -> None:
    rejection = rejected(a_task(image="ghcr.io/Acme/etl\x1b[2J"), policy)
    assert rejection.rule == rule
    assert r"\u001b" in rejection.message


@pytest.mark.parametrize(
    ("execution", "field", "says"),
    [
        ({"labels": {"a b": "x"}}, "execution.labels", "label 'a b'"),
        ({"labels": {"team": "a\n"}}, "execution.labels", r"the value 'a\u000a'"),
        ({"labels": {"team": "x" * 64}}, "execution.labels", "at most 63 bytes"),
        ({"node_selector": {"zone-": "a"}}, "execution.node_selector", "node_selector 'zone-'"),
        ({"node_selector": {"zone": "-"}}, "execution.node_selector", "the value '-'"),
        ({"annotations": {"a/b/c": "x"}}, "execution.annotations", "annotation 'a/b/c'"),
        ({"annotations": {"a": "x" * 262_144}}, "execution.annotations", "262144"),
        ({"annotations": {"a": "\ud800"}}, "execution.annotations", "surrogate"),
        ({"tolerations": (Toleration("k", "Gt", "5"),)}, "execution.tolerations", "tolerations[0]"),
        ({"tolerations": (Toleration(),)}, "execution.tolerations", "no key"),
        ({"priority_class_name": "High"}, "execution.priority_class_name", "'High'"),
        ({"service_account": "a_b"}, "execution.service_account", "'a_b'"),
        ({"service_account": "system:serviceaccount:ns:x"}, "execution.service_account", "lower case"),
    ],
)
def test_what_kubernetes_would_reject_is_blamed_on_the_task(execution: dict[str, Any], field: str, says: str) -> None:
    """What an author sets obeys Kubernetes' rules too (R2.5)."""
    rejection = rejected(a_task(**execution), Policy())
    assert (rejection.rule, rejection.field) == ("kubernetes", field)
    assert says in rejection.message


@pytest.mark.parametrize("key", ["dexaflow.io/run", "leoflow.io/run"])
def test_keys_of_the_control_plane_are_refused_to_authors_where_they_are_its_own(key: str) -> None:
    """Reserved are labels and annotations; node selector and toleration keys are free (R2.5, R5.2)."""
    for field in ("labels", "annotations"):
        execution: dict[str, Any] = {field: {key: "x"}}
        rejection = rejected(a_task(**execution), Policy())
        assert (rejection.rule, rejection.field) == ("reserved prefix", f"execution.{field}")
        assert key in rejection.message
    passed(a_task(node_selector={key: "x"}, tolerations=(Toleration(key, "Exists"),)), Policy())


def test_registration_lists_every_problem_and_dispatch_names_the_first() -> None:
    """The same checks at registration and again at dispatch (R2.2), in the order of R1.2."""
    task = a_task(
        labels={"a b": "-", "dexaflow.io/x": "y"},
        service_account="root",
        image="evil.io/x",
        resources={"limits": {"cpu": "64", "gpu": "1"}},
    )
    policy = Policy(fields=frozenset({"labels"}), images=images("ghcr.io/acme").images, unit=a_unit("500m", "1Gi").unit)

    problems = check_task(task, policy)

    assert [(p.rule, p.field) for p in problems] == [
        ("placement allowlist", "execution.service_account"),
        ("reserved prefix", "execution.labels"),
        ("kubernetes", "execution.labels"),
        ("kubernetes", "execution.labels"),
        ("image allowlist", "image"),
        ("kubernetes", "resources.limits"),
        ("resource unit", "resources.limits"),
    ]
    assert check(an_attempt(task), policy) == problems[0]


def test_a_checked_attempt_cannot_be_made_by_anyone_else() -> None:
    checked = passed(a_task(), Policy())
    with pytest.raises(TypeError, match="never built"):
        Checked(
            checked.attempt,
            "",
            checked.resources,
            checked.execution,
            (),
            service_account_chosen=False,
            own_placement=False,
            seal=object(),
        )
    assert policy_checked.__all__ == ["Checked", "Rejection", "Setting", "Source"]


ANY = st.text(st.characters(exclude_categories=()), max_size=20) | st.text("aA-./ ", max_size=70)
PAIRS = st.dictionaries(ANY, ANY, max_size=3)
EXECUTIONS = st.builds(
    Execution, ANY, PAIRS, st.lists(st.builds(Toleration, ANY, ANY, ANY, ANY), max_size=2).map(tuple), PAIRS, PAIRS, ANY
)
LISTS = st.none() | st.frozensets(st.sampled_from([*EXECUTION_FIELDS, "a", "default"]))


@given(EXECUTIONS, ANY, st.builds(Policy, LISTS, LISTS, LISTS, st.none() | st.just(images("ghcr.io").images)))
def test_any_task_at_all_is_judged_in_clean_lines_and_the_same_way_twice(
    execution: Execution, image: str, policy: Policy
) -> None:
    """A hostile label or image is text everywhere; registration and dispatch agree (R2.2)."""
    fields = {name: getattr(execution, name) for name in EXECUTION_FIELDS}
    task = a_task(image=image, **fields)
    problems = check_task(task, policy)
    for problem in problems:
        assert shown(problem.message) == problem.message
        assert len(problem.message) < 1000
    result = check(an_attempt(task), policy)
    if problems:
        assert result == problems[0]
    else:
        assert not isinstance(result, Rejection)
        assert result.execution.service_account == (execution.service_account or "default")


def test_a_task_judged_before_is_what_it_would_be_judged_now() -> None:
    """Own checks come before every ask (R1.2): remembered or not, with the same result."""
    own_checks = OwnChecks()
    policies = [Policy(), Policy(fields=frozenset()), Policy(default_image="ghcr.io/platform/base:1")]
    for policy in [*policies, *reversed(policies)]:
        for n in range(3):  # tasks that are dropped, so that others come to have their `id`
            task = a_task(labels={"n": str(n)})
            attempt = an_attempt(task)
            first, again, fresh = (judge(attempt, policy) for judge in (own_checks.check, own_checks.check, check))
            for judged in (first, again):
                assert fields_of(judged) == fields_of(fresh)
                assert isinstance(judged, Rejection) or judged.attempt is attempt


def test_what_own_checks_remember_is_bounded() -> None:
    own_checks = OwnChecks()
    tasks = [a_task() for _ in range(2_000)]
    for task in tasks:
        own_checks.check(an_attempt(task), Policy())
    assert len(own_checks._passed) <= 1_024


def fields_of(judged: Checked | Rejection) -> Any:
    if isinstance(judged, Rejection):
        return judged
    return [getattr(judged, name) for name in Checked.__slots__]
