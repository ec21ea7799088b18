"""The documents that go over the wire: the question and its answer (spec, "The request" and "The answer").

`decoding` reads an answer's bytes; here it is judged what they mean.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dexaflow.admission import golang_json
from dexaflow.admission.decisions import (
    MAX_ANSWER_BYTES,
    Admit,
    Changes,
    Decision,
    Hold,
    Refuse,
    Request,
    well_formed,
)
from dexaflow.admission.decoding import PLACEMENT, Answer, decode_answer, decoding_answer, frozen, placement_values
from dexaflow.admission.golang_json import Flag, Record, Text, TextMap, Whole
from dexaflow.base.errors import DexaflowError
from dexaflow.base.in_steps import Steps, at_once
from dexaflow.base.text import quoted
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution, Resources

__all__ = [
    "API_VERSION",
    "KIND",
    "LONGEST_REMEMBERED",
    "MAX_QUESTION_BYTES",
    "AnswerError",
    "Answers",
    "QuestionError",
    "answer",
    "decision_of",
    "placement",
    "question",
    "read_answer",
    "read_question",
    "reading_question",
]

API_VERSION: Final = "dexaflow.io/admission/v1"
KIND: Final = "AdmissionReview"
# No number of the spec: a question carries the task's own annotations, 256 KiB at most, each byte of which JSON
# may write as six; this leaves room beside them and still bounds what an endpoint reads.
MAX_QUESTION_BYTES: Final = 2_097_152


class AnswerError(DexaflowError):
    """An answer that is no decision: the hook is broken (R4, R7.1).

    ``str()`` says what is wrong, where, for the endpoint's author and the server log; it may quote the answer, so it
    is not for the task's author (R7.2). ``cause`` is one word: one of `golang_json.Cause`, or ``api_version``,
    ``kind``, ``uid``, ``decision``, ``admit_with_reason``, ``changes_without_admit``, ``token``. ``ambiguous``:
    something in it is given twice, so it may be a refusal and is held even with ``fail_open`` (R4.2).
    """

    def __init__(self, cause: str, problem: str, *, ambiguous: bool = False) -> None:
        super().__init__(problem)
        self.cause = cause
        self.ambiguous = ambiguous


class QuestionError(DexaflowError):
    """A question that an endpoint cannot read; ``str()`` says what is wrong with it."""


# -- the question

_encoder = msgspec.json.Encoder()


def question(request: Request) -> bytes:
    """Return the document that is sent for `request`: exactly the spec's, `deadline` left out (R3.1).

    Every field of the spec's example is there; only empty entries inside `execution` and `resources` are left out.
    """
    resources, execution = request.resources, request.execution
    document = {
        "api_version": API_VERSION,
        "kind": KIND,
        "request": {
            "uid": request.uid,
            "tenant_id": request.tenant_id,
            "dag_id": request.dag_id,
            "run_id": request.run_id,
            "task_id": request.task_id,
            "try_number": request.try_number,
            "operator": request.operator,
            "image": request.image,
            "source_mode": request.source_mode,
            "resources": {
                name: dict(amounts)
                for name, amounts in (("requests", resources.requests), ("limits", resources.limits))
                if amounts
            },
            "execution": placement(execution),
            "service_account_chosen": request.service_account_chosen,
        },
    }
    return _encoded(document)


def placement(of: Execution | Changes) -> dict[str, Any]:
    """Return a question's `execution`, or an answer's `changes`, in the spec's words; empty fields are left out."""
    fields: dict[str, Any] = {}
    if of.service_account:
        fields["service_account"] = of.service_account
    if of.node_selector:
        fields["node_selector"] = dict(of.node_selector)
    if of.tolerations:
        fields["tolerations"] = [_toleration_document(t) for t in of.tolerations]
    if of.labels:
        fields["labels"] = dict(of.labels)
    if of.annotations:
        fields["annotations"] = dict(of.annotations)
    if of.priority_class_name:
        fields["priority_class_name"] = of.priority_class_name
    return fields


def _toleration_document(toleration: Toleration) -> dict[str, str]:
    fields = (
        ("key", toleration.key),
        ("operator", toleration.operator),
        ("value", toleration.value),
        ("effect", toleration.effect),
    )
    return {name: value for name, value in fields if value}


def _encoded(document: Mapping[str, Any]) -> bytes:
    try:
        return _encoder.encode(document)
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot hold; an escape can
        return json.dumps(document, separators=(",", ":")).encode()


_RESOURCES = Record({"requests": TextMap(), "limits": TextMap()})
_QUESTION = Record(
    {
        "api_version": Text(),
        "kind": Text(),
        "request": Record(
            {
                "uid": Text(),
                "tenant_id": Text(),
                "dag_id": Text(),
                "run_id": Text(),
                "task_id": Text(),
                "try_number": Whole(),
                "operator": Text(),
                "image": Text(),
                "source_mode": Flag(),
                "resources": _RESOURCES,
                "execution": PLACEMENT,
                "service_account_chosen": Flag(),
            }
        ),
    }
)


def read_question(body: bytes) -> Request:
    """Return the request in a question's body, for whoever answers it. Its `deadline` is 0.

    As strict as the reading of an answer: a field that is unknown or given twice is refused rather than overlooked,
    so that no policy decides on half of what it was asked.

    Raises:
        QuestionError: the body is not a question of this `api_version`.
    """
    return at_once(reading_question(body))


def reading_question(body: bytes) -> Steps[Request]:
    """`read_question` in steps of a few milliseconds, for a server that has others to answer. Raises as it does."""
    try:
        document = yield from golang_json.reading(body, _QUESTION, max_bytes=MAX_QUESTION_BYTES)
    except golang_json.Fault as fault:
        raise QuestionError(f"the question cannot be read: {fault}") from fault
    if document["api_version"] != API_VERSION:
        raise QuestionError(f"api_version must be {API_VERSION}, not {quoted(document['api_version'])}")
    if document["kind"] != KIND:
        raise QuestionError(f"kind must be {KIND}, not {quoted(document['kind'])}")
    fields = document["request"]
    if fields is None:
        raise QuestionError("the question has no request")
    missing = [name for name in ("uid", "tenant_id", "dag_id", "run_id", "task_id") if not fields[name]]
    if missing:
        raise QuestionError(f"the request has no {missing[0]}")
    if fields["try_number"] < 1:
        raise QuestionError(f"try_number starts at 1, not {fields['try_number']}")
    resources = fields.pop("resources") or _RESOURCES.zero
    execution = fields.pop("execution") or PLACEMENT.zero
    return Request(
        **fields,
        resources=Resources(requests=frozen(resources["requests"]), limits=frozen(resources["limits"])),
        execution=Execution(**placement_values(execution)),
    )


# -- the answer


def read_answer(body: bytes, uid: str | None) -> Decision:
    """Return the decision in an answer's body (R4.2, R4.3). A reason is given as it came: the gate cleans it.

    Args:
        uid: The request's; the answer must echo it. None takes the answer's own, if it has one.

    Raises:
        AnswerError: the answer is not well-formed, or does not answer this question.
    """
    try:
        decoded = decode_answer(body)
    except golang_json.Fault as fault:
        raise _unreadable(fault) from fault
    return _decided(decoded, uid)


def _reading_answer(body: bytes, uid: str | None) -> Steps[Decision]:
    try:
        decoded = yield from decoding_answer(body)
    except golang_json.Fault as fault:
        raise _unreadable(fault) from fault
    return _decided(decoded, uid)


def _unreadable(fault: golang_json.Fault) -> AnswerError:
    return AnswerError(fault.cause.value, f"the answer cannot be read: {fault}", ambiguous=fault.duplicate)


def _decided(decoded: Answer, uid: str | None) -> Decision:
    """Return what a decoded answer to this question decides. Raises `AnswerError`."""
    if decoded.api_version != API_VERSION:
        raise AnswerError("api_version", f"api_version must be {API_VERSION}, not {quoted(decoded.api_version)}")
    if decoded.kind != KIND:
        raise AnswerError("kind", f"kind must be {KIND}, not {quoted(decoded.kind)}")
    if not decoded.uid:
        raise AnswerError("uid", "response.uid is missing; it must echo the uid of the request")
    if uid is not None and decoded.uid != uid:
        raise AnswerError("uid", f"response.uid is {quoted(decoded.uid)}, not the uid of the request")
    match decoded.decision:
        case "admit":
            if decoded.reason:
                raise AnswerError("admit_with_reason", "an admit carries no reason; leave response.reason out")
            return Admit(decoded.changes) if decoded.changes else Admit()
        case "hold" | "refuse" as word:
            if decoded.changes:
                problem = f"a {word} carries no changes; leave response.changes out"
                raise AnswerError("changes_without_admit", problem)
            return Hold(decoded.reason) if word == "hold" else Refuse(decoded.reason)
        case other:
            problem = f"response.decision must be admit, hold or refuse, not {quoted(other)}"
            raise AnswerError("decision", problem)


_MOST_REMEMBERED: Final = 256
_MOST_MARKS: Final = 4_096
LONGEST_REMEMBERED: Final = 2_048  # bytes: so that all of them together stay small


class Answers:
    """`read_answer` for one hook, which does not read anew what differs from an earlier answer in its uid alone.

    Policies say few things, again and again, to ever new questions. An answer is known by what stands before and after
    the one place where its question's uid stands. That place is the `uid` it echoes, since the answer was read as one
    to that question, and without a backslash nothing in it can be written in two ways. Of another answer with the same
    before and after, the same is true of its own uid.

    What is met for the first time only leaves a mark: of a hook that never says the same again, nothing is kept.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], Decision] = {}
        self._marks: set[int] = set()  # of answers met once; two that share one are remembered a little early

    def read(self, body: bytes, uid: str) -> tuple[Decision, bool]:
        """Return what `read_answer` does, and whether it is the same object as before. Raises `AnswerError`.

        `uid` is one that we drew: of `0-9`, `a-f` and dashes.
        """
        before, found, after = body.partition(uid.encode())
        key = before, after
        decision = self._known.get(key) if found else None
        if decision is not None:
            return decision, True
        decision = read_answer(body, uid)
        if len(body) <= LONGEST_REMEMBERED and found and b"\\" not in body and uid.encode() not in after:
            self._met(key, decision)
        return decision, False

    def reading(self, body: bytes, uid: str) -> Steps[tuple[Decision, bool]]:
        """`read` in steps of a few milliseconds, for an answer longer than `LONGEST_REMEMBERED`: it is met but once."""
        return (yield from _reading_answer(body, uid)), False

    def _met(self, key: tuple[bytes, bytes], decision: Decision) -> None:
        mark = hash(key)
        if mark not in self._marks:
            if len(self._marks) >= _MOST_MARKS:
                self._marks.clear()
            self._marks.add(mark)
            return
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = decision


def answer(uid: str, decision: Decision) -> bytes:
    """Return the document that answers the request of that uid; what an endpoint sends with status 200.

    A reason is cleaned and cut as the control plane would (R4.4), so that a long one cannot make the answer too large.

    Raises:
        TypeError: `decision` is not a decision, or a value in it is not of its type.
        ValueError: its changes make the answer larger than 64 KiB.
    """
    return _answer(uid, well_formed(decision))


def decision_of(uid: str, answer: object) -> Decision:
    """Return what a hook in process answered as a decision, held to what an answer over the wire may be (R8.3).

    See `well_formed`: whoever calls this where the hook runs keeps all the work there.

    Raises:
        TypeError: `answer` is not a decision, or a value in it is not of its type.
        ValueError: as an answer it would be larger than 64 KiB.
    """
    decision = well_formed(answer)
    if isinstance(decision, Admit) and decision.changes:
        _answer(uid, decision)
    return decision


def _answer(uid: str, decision: Decision) -> bytes:
    response: dict[str, Any] = {"uid": uid}
    match decision:
        case Admit(changes=changes):
            response["decision"] = "admit"
            if changes:
                response["changes"] = placement(changes)
        case Hold(reason=reason):
            response["decision"] = "hold"
            response["reason"] = reason
        case Refuse(reason=reason):
            response["decision"] = "refuse"
            response["reason"] = reason
    body = _encoded({"api_version": API_VERSION, "kind": KIND, "response": response})
    if len(body) > MAX_ANSWER_BYTES:
        raise ValueError(f"the answer has {len(body)} bytes, more than the {MAX_ANSWER_BYTES} allowed; change less")
    return body
