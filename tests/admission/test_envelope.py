"""R3.1, R4: the documents that go over the wire."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.admission.decisions import MAX_ANSWER_BYTES, Admit, Changes, Decision, Hold, Refuse, admit, hold, refuse
from dexaflow.admission.envelope import (
    AnswerError,
    QuestionError,
    answer,
    question,
    read_answer,
    read_question,
)
from dexaflow.base.text import shown
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution, Resources
from tests.admission.builders import UID, a_request

SPEC_QUESTION = {
    "api_version": "dexaflow.io/admission/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "6f1c2a8e-0d4b-4f5e-9a3c-2b7d8e1f0a42",
        "tenant_id": "acme",
        "dag_id": "nightly_etl",
        "run_id": "0193f2c4-...",
        "task_id": "extract",
        "try_number": 1,
        "operator": "python",
        "image": "ghcr.io/acme/etl@sha256:...",
        "source_mode": False,
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "execution": {
            "service_account": "dexaflow-task",
            "node_selector": {"zone": "a"},
            "labels": {"team": "data"},
        },
        "service_account_chosen": False,
    },
}


def an_answer(**response: Any) -> bytes:
    document = {
        "api_version": "dexaflow.io/admission/v1",
        "kind": "AdmissionReview",
        "response": {"uid": UID, "decision": "admit"} | response,
    }
    return json.dumps(document).encode()


def error_of(body: bytes, uid: str | None = UID) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        read_answer(body, uid)
    return caught.value


# -- the question


def test_the_question_is_the_specs_document() -> None:
    """R3.1; field for field, in the spec's order."""
    document = json.loads(question(a_request()))

    assert document == SPEC_QUESTION
    assert list(document["request"]) == list(SPEC_QUESTION["request"])


def test_only_empty_entries_of_execution_and_resources_are_left_out() -> None:
    """R3.1: everything else is there, even when it says nothing."""
    bare = a_request(image="", resources=Resources(), execution=Execution())

    request = json.loads(question(bare))["request"]

    assert list(request) == list(SPEC_QUESTION["request"])
    assert request["image"] == ""
    assert request["resources"] == {}
    assert request["execution"] == {}


def test_an_empty_value_under_a_key_is_an_entry() -> None:
    full = a_request(execution=Execution(labels={"spot": ""}))

    assert json.loads(question(full))["request"]["execution"] == {"labels": {"spot": ""}}


def test_placement_goes_along_when_set() -> None:
    """R3.2: tolerations, annotations and the priority class too; of a toleration the fields that are set."""
    full = a_request(
        execution=Execution(
            tolerations=(Toleration("spot", "Exists"), Toleration("tenant", "Equal", "acme", "NoSchedule")),
            annotations={"example.com/note": "é\n"},
            priority_class_name="batch-low",
        )
    )

    assert json.loads(question(full))["request"]["execution"] == {
        "tolerations": [
            {"key": "spot", "operator": "Exists"},
            {"key": "tenant", "operator": "Equal", "value": "acme", "effect": "NoSchedule"},
        ],
        "annotations": {"example.com/note": "é\n"},
        "priority_class_name": "batch-low",
    }


def test_the_deadline_stays_at_home() -> None:
    """It is a moment on this process's own clock."""
    assert question(a_request(deadline=12345.5)) == question(a_request())


def test_half_a_surrogate_pair_in_a_task_cannot_stop_the_question() -> None:
    odd = a_request(execution=Execution(annotations={"a": "x\ud800y"}))

    assert read_question(question(odd)).execution.annotations == {"a": "x\ufffdy"}


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
filled = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
maps = st.dictionaries(texts, texts, max_size=3)
toleration_lists = st.lists(st.builds(Toleration, texts, texts, texts, texts), max_size=3)
executions = st.builds(
    Execution,
    service_account=texts,
    node_selector=maps,
    tolerations=toleration_lists.map(tuple),
    labels=maps,
    annotations=maps,
    priority_class_name=texts,
)


@given(
    uid=filled,
    try_number=st.integers(1, 2**31),
    execution=executions,
    resources=st.builds(Resources, requests=maps, limits=maps),
    chosen=st.booleans(),
    image=texts,
)
def test_an_endpoint_reads_what_was_asked(
    uid: str, try_number: int, execution: Execution, resources: Resources, chosen: bool, image: str
) -> None:
    request = a_request(
        uid=uid,
        try_number=try_number,
        execution=execution,
        resources=resources,
        service_account_chosen=chosen,
        image=image,
    )

    assert read_question(question(request)) == request


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"api_version": "dexaflow.io/admission/v2"}, "api_version"),
        ({"kind": "Review"}, "kind"),
        ({"request": None}, "no request"),
        ({"request": SPEC_QUESTION["request"] | {"uid": ""}}, "uid"),  # type: ignore[operator]  # a dict
        ({"request": SPEC_QUESTION["request"] | {"try_number": 0}}, "try_number"),  # type: ignore[operator]
        ({"request": SPEC_QUESTION["request"] | {"try_number": "1"}}, "try_number"),  # type: ignore[operator]
        ({"request": SPEC_QUESTION["request"] | {"env": {}}}, "env"),  # type: ignore[operator]
        ({"extra": 1}, "extra"),
    ],
)
def test_what_is_no_question_is_not_read_as_one(change: dict[str, Any], said: str) -> None:
    with pytest.raises(QuestionError, match=said):
        read_question(json.dumps(SPEC_QUESTION | change).encode())


def test_a_question_that_says_something_twice_is_refused() -> None:
    with pytest.raises(QuestionError, match="twice"):
        read_question(question(a_request()).replace(b'"uid":', b'"tenant_id":"globex","uid":'))


# -- the answer


@pytest.mark.parametrize(
    ("response", "decision"),
    [
        ({}, Admit()),
        ({"reason": ""}, Admit()),
        ({"reason": None}, Admit()),
        ({"changes": None}, Admit()),
        ({"changes": {}}, Admit()),
        ({"changes": {"labels": {}, "tolerations": [], "service_account": ""}}, Admit()),
        ({"changes": {"labels": {"a": None}}}, Admit(Changes(labels={"a": ""}))),
        ({"changes": {"tolerations": [None]}}, Admit(Changes(tolerations=(Toleration(),)))),
        ({"decision": "hold"}, Hold()),
        ({"decision": "hold", "reason": "a\tb"}, Hold("a\tb")),
        ({"decision": "refuse", "reason": "no", "changes": {"labels": {}}}, Refuse("no")),
    ],
)
def test_a_well_formed_answer_is_a_decision(response: dict[str, Any], decision: Decision) -> None:
    """R4.3."""
    assert read_answer(an_answer(**response), UID) == decision


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        ({"uid": UID.upper()}, "uid"),
        ({"uid": ""}, "uid"),
        ({"uid": None}, "uid"),
        ({"decision": "Admit"}, "decision"),
        ({"decision": "admit\n"}, "decision"),
        ({"decision": ""}, "decision"),
        ({"reason": "fine"}, "admit_with_reason"),
        ({"reason": "\n"}, "admit_with_reason"),
        ({"decision": "hold", "changes": {"labels": {"a": "b"}}}, "changes_without_admit"),
        ({"decision": "refuse", "changes": {"tolerations": [{}]}}, "changes_without_admit"),
        ({"code": 403}, "unknown_field"),
        ({"decision": 1}, "type"),
    ],
)
def test_a_malformed_answer_is_no_decision(response: dict[str, Any], cause: str) -> None:
    """R4.3."""
    error = error_of(an_answer(**response))

    assert error.cause == cause
    assert not error.ambiguous


@pytest.mark.parametrize(
    ("field", "value"), [("api_version", "dexaflow.io/admission/v1 "), ("kind", "admissionreview")]
)
def test_the_envelope_must_match_exactly(field: str, value: str) -> None:
    document = json.loads(an_answer()) | {field: value}

    assert error_of(json.dumps(document).encode()).cause == field


def test_the_request_sent_back_is_no_answer() -> None:
    """R4.2: a top-level `request` is an unknown field."""
    document = json.loads(an_answer()) | {"request": SPEC_QUESTION["request"]}

    assert error_of(json.dumps(document).encode()).cause == "unknown_field"


@pytest.mark.parametrize(
    "body",
    [
        an_answer().replace(b'"decision"', b'"decision": "refuse", "decision"'),
        an_answer().replace(b'"decision"', b'"Decision": "refuse", "decision"'),
        an_answer(uid="x").replace(b'"decision"', b'"decision": "refuse", "decision"'),
        an_answer(changes={"labels": {"a": "b"}}).replace(b'"a"', b'"a": "c", "a"'),
        an_answer(code=1).replace(b'"decision"', b'"decision": "refuse", "decision"'),
        an_answer().replace(b'"decision"', b'"decision": "refuse", "decision"')[:-1],
    ],
)
def test_an_answer_that_says_something_twice_may_be_a_refusal(body: bytes) -> None:
    """R4.2: held even with `fail_open`, whatever else is wrong with it."""
    assert error_of(body).ambiguous


def test_without_a_uid_the_answers_own_counts_but_there_must_be_one() -> None:
    assert read_answer(an_answer(uid="anything"), None) == Admit()
    assert error_of(an_answer(uid=""), None).cause == "uid"
    assert error_of(an_answer(uid=""), "").cause == "uid"


def test_what_is_wrong_is_said_in_one_printable_line() -> None:
    for body in (an_answer(decision="x\n\x1b\u202e\ud800"), an_answer(uid="\r\n" * 9), an_answer(**{"\x1b[0m": 1})):
        assert shown(str(error_of(body))) == str(error_of(body))


reasons = st.text(max_size=600)
changes = st.builds(
    admit,
    node_selector=maps,
    tolerations=toleration_lists,
    labels=maps,
    annotations=maps,
    priority_class_name=texts,
    service_account=texts,
)


@given(uid=filled, decision=st.one_of(changes, reasons.map(hold), reasons.map(refuse)))
def test_an_endpoints_answer_is_read_as_the_decision_it_was(uid: str, decision: Decision) -> None:
    read = read_answer(answer(uid, decision), uid)

    if isinstance(decision, Admit):
        assert read == decision
    else:
        assert type(read) is type(decision)


def test_an_endpoints_long_reason_cannot_break_its_answer() -> None:
    body = answer(UID, refuse("no\x00" + "é" * 100_000))

    assert read_answer(body, UID) == Refuse("no" + "é" * 255)


def test_an_answer_too_large_to_be_read_is_not_sent() -> None:
    with pytest.raises(ValueError, match="65536"):
        answer(UID, admit(annotations={"a": "x" * MAX_ANSWER_BYTES}))


def test_an_answer_of_no_decision_is_not_sent() -> None:
    with pytest.raises(TypeError, match="not None"):
        answer(UID, None)  # type: ignore[arg-type]  # what a hook forgot to return
