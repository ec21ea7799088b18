"""R7.1, R8.1: what a hook in process answers, made into a decision that nobody else can change any more."""

from enum import StrEnum
from typing import Any

import pytest

from dexaflow.admission.decisions import NO_CHANGES, Admit, Changes, Hold, Refuse, admit, hold, refuse, well_formed
from dexaflow.kube.tolerations import Toleration


class Team(StrEnum):
    DATA = "data"


class Leaving(str):
    """Text that runs code of its own wherever it is looked at."""

    __slots__ = ()

    def __str__(self) -> str:
        raise SystemExit(3)


class LookedAt(Admit):
    """An admit that notices each time when its changes are looked at."""

    def __init__(self) -> None:
        """Set nothing: there is a property in the field's place."""

    @property
    def changes(self) -> Changes:
        looks.append(1)
        return NO_CHANGES


looks: list[int] = []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (type("MyAdmit", (Admit,), {})(), Admit),
        (type("MyAdmit", (Admit,), {})(Changes(labels={"a": "b"})), Admit),
        (type("MyHold", (Hold,), {})("later"), Hold),
        (type("MyRefuse", (Refuse,), {})("never"), Refuse),
        (LookedAt(), Admit),
    ],
)
def test_nothing_of_a_hooks_own_making_stays_in_a_decision(answer: object, kind: type) -> None:
    """It would run the hook's code on the control plane's event loop (R8.3)."""
    decision = well_formed(answer)

    assert type(decision) is kind
    looks.clear()
    assert well_formed(decision) == decision
    assert not looks


def test_text_of_a_class_of_its_own_is_kept_as_text() -> None:
    decision = well_formed(Refuse(Leaving("no")))
    assert isinstance(decision, Refuse)
    assert type(decision.reason) is str

    changes = admit(labels={Team.DATA: Team.DATA}, service_account=Leaving("etl")).changes
    assert {type(text) for text in (*changes.labels, *changes.labels.values(), changes.service_account)} == {str}


def test_a_reason_is_cleaned_and_cut_where_the_hook_runs() -> None:
    """R4.4; so that a giant one is no work for the control plane's event loop."""
    assert well_formed(Refuse("a\x00\n" * 1_000_000)) == Refuse("a" * 512)
    assert well_formed(Hold("\ud800é")) == Hold("\ufffdé")


@pytest.mark.parametrize("answer", [None, True, "admit", Admit, admit, {"decision": "admit"}, 0, iter(())])
def test_anything_else_is_no_decision(answer: object) -> None:
    with pytest.raises(TypeError, match=r"must return admit\(\), hold\(reason\) or refuse\(reason\)"):
        well_formed(answer)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"labels": ["a"]}, "labels must be a mapping of strings, not list"),
        ({"labels": {"a": 1}}, "labels['a'] must be text, not int"),
        ({"node_selector": {1: "a"}}, "each key of node_selector must be text, not int"),
        ({"annotations": {"a": None}}, "annotations['a'] must be text, not None"),
        ({"tolerations": None}, "tolerations must be a list of tolerations, not None"),
        ({"tolerations": "spot"}, "tolerations must be a list of tolerations, not str"),
        ({"tolerations": {"key": "spot"}}, "tolerations must be a list of tolerations, not dict"),
        ({"tolerations": ["spot"]}, "a toleration must be a Toleration or a mapping, not str"),
        ({"tolerations": [{"taint": "spot"}]}, "'taint' is not a field of a toleration, which has key, operator"),
        ({"tolerations": [{"key": "spot", "tolerationSeconds": 60}]}, "'tolerationSeconds' is not a field of"),
        ({"tolerations": [{1: "spot"}]}, "a key of type int is not a field of a toleration"),
        ({"tolerations": [{"key": 5}]}, "toleration['key'] must be text, not int"),
        ({"tolerations": [Toleration("spot", 5)]}, "a toleration's field must be text, not int"),  # type: ignore[arg-type]
        ({"service_account": None}, "service_account must be text, not None"),
        ({"priority_class_name": b"high"}, "priority_class_name must be text, not bytes"),
        ({"image": "x"}, "'image'"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        admit(**arguments)
    assert said in str(caught.value)


def test_a_reason_is_text() -> None:
    for make in (hold, refuse):
        with pytest.raises(TypeError, match="reason must be text, not int"):
            make(5)  # type: ignore[arg-type]


def test_tolerations_may_come_from_a_generator() -> None:
    assert admit(tolerations=(Toleration(key, "Exists") for key in "ab")).changes.tolerations == (
        Toleration("a", "Exists"),
        Toleration("b", "Exists"),
    )
