"""What would the gate make of this answer? Over all shared vectors."""

from typing import Any

import pytest

from dexaflow.admission.check_answer import AnswerVerdict, check_answer
from dexaflow.admission.decisions import Changes, admit
from dexaflow.admission.envelope import answer
from dexaflow.base.text import shown
from tests.admission.builders import UID
from tests.vectors_loader import body_of, load

SEMANTICS = load("answer_semantics")
DECODE = load("decode")


@pytest.mark.parametrize("case", SEMANTICS, ids=[case["name"] for case in SEMANTICS])
def test_every_vector_gets_its_verdict(case: dict[str, Any]) -> None:
    config = case.get("config") or {}

    check = check_answer(
        body_of(case),
        uid=case["request_uid"],
        priority_classes=config.get("priority_classes"),
        service_accounts=config.get("service_accounts"),
    )

    assert check.verdict == case["verdict"], check
    assert check.reason == case.get("reason", "")
    assert bool(check.problem) == (check.verdict in (AnswerVerdict.BROKEN, AnswerVerdict.CHANGE_REFUSED))


def test_what_does_not_decode_is_broken() -> None:
    for case in DECODE:
        check = check_answer(body_of(case))
        if not case["accept"]:
            assert check.verdict is AnswerVerdict.BROKEN, case["name"]
            assert check.problem == shown(check.problem)


def test_without_a_uid_the_answers_own_counts_as_right() -> None:
    assert check_answer(answer("any", admit())).verdict is AnswerVerdict.ADMIT
    assert check_answer(answer("any", admit()), uid=UID).verdict is AnswerVerdict.BROKEN
    assert check_answer(answer("any", admit()), uid="").verdict is AnswerVerdict.BROKEN  # given, and another


def test_an_answer_without_a_uid_is_broken_all_the_same() -> None:
    assert check_answer(answer("", admit())).verdict is AnswerVerdict.BROKEN


def test_the_changes_are_shown_also_when_they_may_not_be_made() -> None:
    fine, bad = {"a": "b"}, {"dexaflow.io/x": "y"}

    assert check_answer(answer(UID, admit(labels=fine))).changes == Changes(labels=fine)
    check = check_answer(answer(UID, admit(labels=bad)))
    assert check.verdict is AnswerVerdict.CHANGE_REFUSED
    assert check.changes == Changes(labels=bad)
    assert "dexaflow.io/x" in check.problem


@pytest.mark.parametrize(
    ("listed", "verdict"),
    [(None, "change_refused"), ([], "change_refused"), (["etl"], "admit"), (["other"], "change_refused")],
)
def test_the_lists_are_those_of_the_configuration(listed: list[str] | None, verdict: str) -> None:
    body = answer(UID, admit(service_account="etl"))

    assert check_answer(body, service_accounts=listed).verdict == verdict


@pytest.mark.parametrize(
    ("listed", "name", "verdict"),
    [
        (None, "batch", "admit"),
        (None, "system-x", "change_refused"),
        ([], "batch", "change_refused"),
        (["batch"], "batch", "admit"),
        (["system-x"], "system-x", "admit"),
        (["other"], "batch", "change_refused"),
    ],
)
def test_an_empty_list_of_priority_classes_is_not_an_unset_one(
    listed: list[str] | None, name: str, verdict: str
) -> None:
    assert check_answer(answer(UID, admit(priority_class_name=name)), priority_classes=listed).verdict == verdict
