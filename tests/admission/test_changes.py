"""R5: what a hook may change, and what the pod is after it."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.admission import changes as changes_module
from dexaflow.admission.changes import Applied, Merges, NotAllowed, apply_changes, applying_changes
from dexaflow.admission.decisions import Changes, admit
from dexaflow.base.in_steps import at_once
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution
from dexaflow.policy.checked import Setting
from dexaflow.policy.policy import Policy

OWN = Execution(
    service_account="default",
    node_selector={"zone": "a"},
    tolerations=(Toleration("spot", "Exists"),),
    labels={"team": "data"},
    annotations={"example.com/note": "mine"},
)
OPEN = Policy(priority_classes=frozenset({"batch-low"}), service_accounts=frozenset({"etl", "default"}))


def applied(
    changes: Changes, own: Execution = OWN, settings: tuple[Setting, ...] = (), lists: Policy = OPEN
) -> Applied:
    result = apply_changes(changes, own, settings, by="hook:webhook", allowed=lists)
    assert isinstance(result, Applied), result
    return result


def problem(changes: Changes, own: Execution = OWN, lists: Policy = OPEN) -> str:
    result = apply_changes(changes, own, (), by="hook:webhook", allowed=lists)
    assert isinstance(result, NotAllowed), result
    return result.problem


@pytest.mark.parametrize("field", ["node_selector", "labels", "annotations"])
def test_maps_merge_and_the_hooks_keys_win(field: str) -> None:
    """R5.1."""
    own = replace(OWN, **{field: {"a": "1", "b": "2"}})  # type: ignore[arg-type]  # a map field

    result = applied(Changes(**{field: {"b": "3", "c": ""}}), own)  # type: ignore[arg-type]  # a map field

    assert getattr(result.execution, field) == {"a": "1", "b": "3", "c": ""}
    assert result.changed


def test_tolerations_are_appended_exact_duplicates_once() -> None:
    """R5.1."""
    tenant = Toleration("tenant", "Equal", "acme", "NoSchedule")

    result = applied(Changes(tolerations=(tenant, Toleration("spot", "Exists"), tenant)))

    assert result.execution.tolerations == (Toleration("spot", "Exists"), tenant)


def test_names_replace() -> None:
    """R5.1."""
    result = applied(Changes(priority_class_name="batch-low", service_account="etl"))

    assert result.execution.priority_class_name == "batch-low"
    assert result.execution.service_account == "etl"


def test_what_is_left_empty_is_left_alone() -> None:
    """R5.1: absent, null and empty set nothing."""
    result = applied(Changes())

    assert result == Applied(OWN, (), changed=False)


@pytest.mark.parametrize(
    "changes",
    [
        Changes(node_selector={"zone": "a"}),
        Changes(labels={"team": "data"}, annotations={"example.com/note": "mine"}),
        Changes(tolerations=(Toleration("spot", "Exists"),)),
        Changes(service_account="default"),
    ],
)
def test_a_change_that_leaves_the_pod_as_it_was_is_no_change(changes: Changes) -> None:
    """R5.4; nor does it take the setting from whoever made it (R9.2)."""
    settings = (Setting("labels", "team", "data", "author"), Setting("node_selector", "zone", "a", "author"))

    assert applied(changes, settings=settings) == Applied(OWN, settings, changed=False)


def test_a_hooks_setting_takes_the_place_of_an_earlier_one() -> None:
    """R9.2: key by key, who set it."""
    settings = (
        Setting("labels", "team", "data", "author"),
        Setting("labels", "tier", "x", "author"),
        Setting("service_account", "", "default", "platform default"),
    )

    result = applied(
        Changes(
            labels={"team": "ops"}, service_account="etl", tolerations=(Toleration("t", "Equal", "v", "NoExecute"),)
        ),
        settings=settings,
    )

    assert set(result.settings) == {
        Setting("labels", "tier", "x", "author"),
        Setting("labels", "team", "ops", "hook:webhook"),
        Setting("service_account", "", "etl", "hook:webhook"),
        Setting("tolerations", "1", "t=v:NoExecute Equal", "hook:webhook"),
    }


@pytest.mark.parametrize("prefix", ["leoflow.io/", "dexaflow.io/"])
def test_the_reserved_prefixes_are_closed_to_labels_and_annotations_only(prefix: str) -> None:
    """R5.2; node selector and toleration keys are free."""
    key = prefix + "x"
    assert key in problem(Changes(labels={"fine": "1", key: "y"}))
    assert key in problem(Changes(annotations={key: "y"}))
    assert applied(Changes(node_selector={key: "y"})).changed
    assert applied(Changes(tolerations=(Toleration(key, "Exists"),))).changed


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (Changes(labels={"no space": "x"}), "no space"),
        (Changes(labels={"cut-": "x"}), "cut-"),
        (Changes(labels={"a": "x" * 64}), "label"),
        (Changes(labels={"a": "ends\n"}), "label"),
        (Changes(annotations={"no space": "x"}), "no space"),
        (Changes(node_selector={"zone": "a b"}), "zone"),
        (Changes(node_selector={"-": "a"}), "node_selector"),
        (Changes(tolerations=(Toleration("t", "Lt", "1", "NoSchedule"),)), "toleration"),
        (Changes(tolerations=(Toleration("t", "Gt", "1", "NoSchedule"),)), "toleration"),
        (Changes(tolerations=(Toleration(),)), "toleration"),
        (Changes(priority_class_name="Batch"), "Batch"),
        (Changes(service_account="Default"), "Default"),
    ],
)
def test_what_kubernetes_would_reject_is_refused_by_name(changes: Changes, named: str) -> None:
    """R5.2: naming the key."""
    assert named in problem(changes)


def test_a_problem_is_one_line_whatever_the_key() -> None:
    said = problem(Changes(labels={"a\n\x1b[31m\u202e": "x"}))

    assert said.isprintable()


@pytest.mark.parametrize("field", ["labels", "annotations", "node_selector"])
def test_a_long_key_is_named_whole(field: str) -> None:
    """R5.2: naming the key, whose end tells it apart."""
    key = "a" * 253 + "/" + "b" * 63

    said = problem(Changes(**{field: {key[:-1] + "-": "x"}}))  # type: ignore[arg-type]  # a map field

    assert key[:-1] + "-" in said
    assert len(problem(Changes(**{field: {"x" * 60_000: "x"}}))) < 500  # type: ignore[arg-type]


def test_annotations_count_merged_with_the_tasks_own() -> None:
    """R5.2: annotations that, merged, pass Kubernetes' total size of 256 KiB."""
    own = replace(OWN, annotations={"a": "x" * 200_000})

    assert "annotations" in problem(Changes(annotations={"b": "x" * 62_144}), own)
    assert applied(Changes(annotations={"b": "x" * 62_142}), own).changed
    assert applied(Changes(annotations={"a": "x" * 262_143}), own).changed


@pytest.mark.parametrize(
    ("listed", "name", "allowed"),
    [
        (None, "batch-low", True),
        (None, "system-node-critical", False),
        (None, "system-x", False),
        (None, "systemic", True),
        (frozenset(), "batch-low", False),
        (frozenset({"batch-low"}), "batch-low", True),
        (frozenset({"batch-low"}), "batch-high", False),
        (frozenset({"system-node-critical"}), "system-node-critical", True),
    ],
)
def test_a_priority_class_is_one_of_the_list(listed: frozenset[str] | None, name: str, allowed: bool) -> None:
    """R5.2: an empty list allows none; an unset one all but `system-*`."""
    result = apply_changes(
        Changes(priority_class_name=name), OWN, (), by="hook:h", allowed=Policy(priority_classes=listed)
    )

    assert isinstance(result, Applied) == allowed


@pytest.mark.parametrize("listed", [None, frozenset[str](), frozenset({"etl"})])
def test_a_service_account_is_one_of_the_list_even_if_the_task_has_it(listed: frozenset[str] | None) -> None:
    """R5.2: also when it is the one the task has."""
    assert "default" in problem(Changes(service_account="default"), lists=Policy(service_accounts=listed))


def test_one_change_that_may_not_be_made_refuses_them_all() -> None:
    """R5.2."""
    assert "leoflow.io/e" in problem(Changes(labels={"fine": "1"}, annotations={"leoflow.io/e": "f"}))


def test_the_tasks_own_values_are_never_blamed_on_the_hook() -> None:
    """R2.5: what an author set is the author's; here it even is something that Kubernetes would reject."""
    own = replace(OWN, labels={"no space": "x"}, tolerations=(Toleration(),))

    assert applied(Changes(labels={"a": "b"}), own).changed


keys = st.sampled_from(["a", "b", "c.d/e", "zone"])
values = st.sampled_from(["", "1", "2"])
maps: st.SearchStrategy[Mapping[str, str]] = st.dictionaries(keys, values).map(MappingProxyType)
tolerations = st.lists(
    st.builds(Toleration, key=keys, operator=st.just("Exists"), effect=st.sampled_from(["", "NoSchedule"]))
).map(tuple)


@given(own_map=maps, asked=maps, own_tolerations=tolerations, asked_tolerations=tolerations)
def test_merging_is_settled_after_once(
    own_map: Mapping[str, str],
    asked: Mapping[str, str],
    own_tolerations: tuple[Toleration, ...],
    asked_tolerations: tuple[Toleration, ...],
) -> None:
    """The same change applied twice is one change; what it asked for is there; nothing of the task's own is lost."""
    own = Execution(labels=own_map, tolerations=own_tolerations)
    changes = Changes(labels=asked, tolerations=asked_tolerations)

    first = applied(changes, own)
    again = applied(changes, first.execution)

    assert again == Applied(first.execution, (), changed=False)
    assert first.changed == (first.execution != own)
    assert dict(first.execution.labels) == {**own_map, **asked}
    assert first.execution.tolerations[: len(own_tolerations)] == own_tolerations
    assert set(first.execution.tolerations) == {*own_tolerations, *asked_tolerations}
    assert {s.key: s.value for s in first.settings if s.field == "labels"} == {
        key: value for key, value in asked.items() if own_map.get(key) != value
    }


def test_nothing_can_be_changed_after_it_was_checked() -> None:
    """The object that was checked is the object that is used: what a hook keeps is a copy of its own."""
    labels = {"a": "b"}
    changes = admit(labels=labels).changes
    labels["dexaflow.io/x"] = "y"

    assert applied(changes).execution.labels == {"team": "data", "a": "b"}


@given(st.data())
def test_a_merge_met_before_is_what_it_would_be_now(data: st.DataObject) -> None:
    """R5: changes, pod and lists are drawn from few, so that each comes again, equal or as the same object."""
    merges = Merges("hook:webhook")
    changes = [
        admit(labels={"team": "ops"}).changes,
        admit(labels={"dexaflow.io/x": "y"}).changes,
        admit(priority_class_name="batch-low", tolerations=[Toleration("spot", "Exists")]).changes,
        admit(service_account="etl", annotations={"example.com/note": "yours"}).changes,
    ]
    settings = ((), (Setting("labels", "team", "data", "author"), Setting("service_account", "", "default", "x")))
    for _ in range(data.draw(st.integers(1, 12))):
        change, lists = data.draw(st.sampled_from(changes)), data.draw(st.sampled_from([OPEN, Policy()]))
        own, of = data.draw(st.sampled_from([OWN, replace(OWN), Execution()])), data.draw(st.sampled_from(settings))
        if data.draw(st.booleans()):
            change = replace(change)  # an object that is dropped at once
        assert merges.apply(change, own, of, lists) == apply_changes(change, own, of, by="hook:webhook", allowed=lists)


any_keys = st.sampled_from(["a", "b", "c.d/e", "zone", "team", "example.com/note", "dexaflow.io/x", "?"])
any_maps = st.dictionaries(any_keys, values)
long_notes = st.sampled_from(["x" * 150_000, "y" * 120_000])


@given(
    changes=st.builds(
        Changes,
        node_selector=any_maps,
        tolerations=tolerations,
        labels=any_maps,
        annotations=any_maps | st.dictionaries(any_keys, long_notes),
        priority_class_name=st.sampled_from(["", "batch-low", "other"]),
        service_account=st.sampled_from(["", "etl", "default", "other"]),
    ),
    own_tolerations=tolerations,
)
def test_changes_made_in_steps_are_those_made_at_once(
    changes: Changes, own_tolerations: tuple[Toleration, ...]
) -> None:
    """R5: however many they are. The same first problem, the same pod, the same settings in the same order."""
    own = replace(OWN, tolerations=own_tolerations)
    settings = tuple(
        Setting(field, key, "x", "author")
        for field, key in [
            ("labels", "team"),
            ("service_account", ""),
            ("annotations", "example.com/note"),
            ("node_selector", "zone"),
        ]
    )
    with mock.patch.object(changes_module, "_A_STEP", 2):
        in_steps = at_once(applying_changes(changes, own, settings, by="hook:h", allowed=OPEN))

    assert in_steps == apply_changes(changes, own, settings, by="hook:h", allowed=OPEN)


def test_what_merges_remember_is_bounded() -> None:
    merges = Merges("hook:webhook")
    for n in range(1_000):
        merges.apply(admit(labels={"n": str(n)}).changes, OWN, (), OPEN)
    assert len(merges._known) <= 128
