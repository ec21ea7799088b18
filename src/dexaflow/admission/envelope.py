"""The documents that go over the wire: the question and its answer (spec, "The request" and "The answer").

An answer is decoded in two ways that give the same value. `_exactly_spelt` is quick and takes only what it can be
sure of; whatever it leaves is for `golang_json`, which knows all of Go's rules and is the one that finds faults.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from dexaflow.admission import golang_json
from dexaflow.admission.decisions import NO_CHANGES, Admit, Changes, Decision, Hold, Refuse, Request, well_formed
from dexaflow.admission.golang_json import Flag, ListOf, Record, Text, TextMap, Whole
from dexaflow.base.errors import DexaflowError
from dexaflow.base.text import clean_reason, quoted
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import EMPTY, Execution, Resources

__all__ = [
    "API_VERSION",
    "KIND",
    "MAX_ANSWER_BYTES",
    "MAX_QUESTION_BYTES",
    "AnswerError",
    "QuestionError",
    "answer",
    "question",
    "read_answer",
    "read_question",
]

API_VERSION: Final = "dexaflow.io/admission/v1"
KIND: Final = "AdmissionReview"
MAX_ANSWER_BYTES: Final = 65_536  # spec, "The answer": at most 64 KiB
# No number of the spec: a question carries the task's own annotations, 256 KiB at most, each byte of which JSON
# may write as six; this leaves room beside them and still bounds what an endpoint reads.
MAX_QUESTION_BYTES: Final = 2_097_152


class AnswerError(DexaflowError):
    """An answer that is no decision: the hook is broken (R4, R7.1).

    ``str()`` says what is wrong, where, for the endpoint's author and the server log; it may quote the answer, so it
    is not for the task's author (R7.2). ``cause`` is one word: one of `golang_json.Cause`, or ``api_version``,
    ``kind``, ``uid``, ``decision``, ``admit_with_reason``, ``changes_without_admit``. ``ambiguous``: something in it
    is given twice, so it may be a refusal and is held even with ``fail_open`` (R4.2).
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
            "execution": _placement(
                node_selector=execution.node_selector,
                tolerations=execution.tolerations,
                labels=execution.labels,
                annotations=execution.annotations,
                priority_class_name=execution.priority_class_name,
                service_account=execution.service_account,
            ),
            "service_account_chosen": request.service_account_chosen,
        },
    }
    return _encoded(document)


def _placement(
    *,
    node_selector: Mapping[str, str],
    tolerations: tuple[Toleration, ...],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    priority_class_name: str,
    service_account: str,
) -> dict[str, Any]:
    """Return the fields that a question's `execution` and an answer's `changes` have in common, empty ones left out."""
    fields: dict[str, Any] = {}
    if service_account:
        fields["service_account"] = service_account
    if node_selector:
        fields["node_selector"] = dict(node_selector)
    if tolerations:
        fields["tolerations"] = [_toleration_document(t) for t in tolerations]
    if labels:
        fields["labels"] = dict(labels)
    if annotations:
        fields["annotations"] = dict(annotations)
    if priority_class_name:
        fields["priority_class_name"] = priority_class_name
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
_TOLERATION = Record({"key": Text(), "operator": Text(), "value": Text(), "effect": Text()})
_PLACEMENT = Record(
    {
        "node_selector": TextMap(),
        "tolerations": ListOf(_TOLERATION),
        "labels": TextMap(),
        "annotations": TextMap(),
        "priority_class_name": Text(),
        "service_account": Text(),
    }
)
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
                "execution": _PLACEMENT,
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
    try:
        document = golang_json.read(body, _QUESTION, max_bytes=MAX_QUESTION_BYTES)
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
    execution = fields.pop("execution") or _PLACEMENT.zero
    return Request(
        **fields,
        resources=Resources(requests=_frozen(resources["requests"]), limits=_frozen(resources["limits"])),
        execution=Execution(**_placement_values(execution)),
    )


def _frozen(value: dict[str, str] | None) -> Mapping[str, str]:
    return MappingProxyType(value) if value else EMPTY


def _placement_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `Changes` or `Execution` out of a decoded `_PLACEMENT`."""
    return {
        "node_selector": _frozen(fields["node_selector"]),
        "tolerations": tuple(Toleration(**item) for item in fields["tolerations"] or ()),
        "labels": _frozen(fields["labels"]),
        "annotations": _frozen(fields["annotations"]),
        "priority_class_name": fields["priority_class_name"],
        "service_account": fields["service_account"],
    }


# -- the answer


class _Answer(NamedTuple):
    """An answer as decoded, before anything in it is judged. A field that was not given is empty."""

    api_version: str
    kind: str
    uid: str
    decision: str
    reason: str
    changes: Changes


def read_answer(body: bytes, uid: str | None) -> Decision:
    """Return the decision in an answer's body (R4.2, R4.3). A reason is given as it came: the gate cleans it.

    Args:
        uid: The request's; the answer must echo it. None takes the answer's own, if it has one.

    Raises:
        AnswerError: the answer is not well-formed, or does not answer this question.
    """
    decoded = _exactly_spelt(body)
    if decoded is None:
        decoded = _strictly(body)
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


def answer(uid: str, decision: Decision) -> bytes:
    """Return the document that answers the request of that uid; what an endpoint sends with status 200.

    A reason is cleaned and cut as the control plane would (R4.4), so that a long one cannot make the answer too large.

    Raises:
        TypeError: `decision` is not a decision, or a value in it is not of its type.
        ValueError: its changes make the answer larger than 64 KiB.
    """
    response: dict[str, Any] = {"uid": uid}
    match well_formed(decision):
        case Admit(changes=changes):
            response["decision"] = "admit"
            if changes:
                response["changes"] = _placement(
                    node_selector=changes.node_selector,
                    tolerations=changes.tolerations,
                    labels=changes.labels,
                    annotations=changes.annotations,
                    priority_class_name=changes.priority_class_name,
                    service_account=changes.service_account,
                )
        case Hold(reason=reason):
            response["decision"] = "hold"
            response["reason"] = clean_reason(reason)
        case Refuse(reason=reason):
            response["decision"] = "refuse"
            response["reason"] = clean_reason(reason)
    body = _encoded({"api_version": API_VERSION, "kind": KIND, "response": response})
    if len(body) > MAX_ANSWER_BYTES:
        raise ValueError(f"the answer has {len(body)} bytes, more than the {MAX_ANSWER_BYTES} allowed; change less")
    return body


# Exactly the structure of the answer. `Cause.UNKNOWN_FIELD` is for everything else.
ANSWER: Final = Record(
    {
        "api_version": Text(),
        "kind": Text(),
        "response": Record({"uid": Text(), "decision": Text(), "reason": Text(), "changes": _PLACEMENT}),
    }
)


def _strictly(body: bytes) -> _Answer:
    """Decode by Go's rules. Raises `AnswerError`."""
    try:
        document = golang_json.read(body, ANSWER, max_bytes=MAX_ANSWER_BYTES)
    except golang_json.Fault as fault:
        problem = f"the answer cannot be read: {fault}"
        raise AnswerError(fault.cause.value, problem, ambiguous=fault.duplicate) from fault
    response = document["response"] or {"uid": "", "decision": "", "reason": "", "changes": None}
    changes = response["changes"]
    return _Answer(
        document["api_version"],
        document["kind"],
        response["uid"],
        response["decision"],
        response["reason"],
        NO_CHANGES if changes is None else Changes(**_placement_values(changes)),
    )


_OptText = str | UnsetType | None
_OptMap = dict[str, str | None] | UnsetType | None


class _TolerationStruct(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: _OptText = UNSET
    operator: _OptText = UNSET
    value: _OptText = UNSET
    effect: _OptText = UNSET


class _ChangesStruct(msgspec.Struct, forbid_unknown_fields=True):
    node_selector: _OptMap = UNSET
    tolerations: list[_TolerationStruct | None] | UnsetType | None = UNSET
    labels: _OptMap = UNSET
    annotations: _OptMap = UNSET
    priority_class_name: _OptText = UNSET
    service_account: _OptText = UNSET


class _ResponseStruct(msgspec.Struct, forbid_unknown_fields=True):
    uid: _OptText = UNSET
    decision: _OptText = UNSET
    reason: _OptText = UNSET
    changes: _ChangesStruct | UnsetType | None = UNSET


class _AnswerStruct(msgspec.Struct, forbid_unknown_fields=True):
    api_version: str
    kind: str
    response: _ResponseStruct


_decoder = msgspec.json.Decoder(_AnswerStruct)


def _exactly_spelt(body: bytes) -> _Answer | None:
    """Decode an answer whose names are spelt as in the spec; None leaves it to `_strictly`.

    msgspec takes the last of two equal names, as Go does, and we may not. But without a backslash every string
    stands between two quotes of its own; so if something was given twice, the body has more quotes than the decoded
    names and strings account for.
    """
    if len(body) > MAX_ANSWER_BYTES or b"\\" in body:
        return None
    try:
        document = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    response = document.response
    strings = 5  # api_version and kind with their values, and the name of the response
    uid, decision, reason = response.uid, response.decision, response.reason
    for value in (uid, decision, reason):
        strings += _strings_of(value)
    found = response.changes
    changes = NO_CHANGES
    if found is not UNSET:
        strings += 1
        if found is not None:
            more, changes = _changes_of(found)
            strings += more
    if body.count(b'"') != 2 * strings:
        return None
    return _Answer(document.api_version, document.kind, uid or "", decision or "", reason or "", changes)


def _strings_of(value: str | UnsetType | None) -> int:
    """Return how many strings a field of text takes: its name, and its value unless that is null."""
    return 0 if value is UNSET else 1 if value is None else 2


def _changes_of(found: _ChangesStruct) -> tuple[int, Changes]:
    """Return how many strings the changes are made of, and the changes."""
    strings = _strings_of(found.priority_class_name) + _strings_of(found.service_account)
    maps: list[Mapping[str, str]] = []
    for value in (found.node_selector, found.labels, found.annotations):
        if value is UNSET:
            maps.append(EMPTY)
            continue
        strings += 1
        if not value:
            maps.append(EMPTY)
            continue
        strings += 2 * len(value)
        nulls = sum(text is None for text in value.values())
        strings -= nulls
        maps.append(MappingProxyType({key: text or "" for key, text in value.items()}))
    tolerations: list[Toleration] = []
    if found.tolerations is not UNSET:
        strings += 1
        for item in found.tolerations or ():
            if item is None:
                tolerations.append(Toleration())
                continue
            for text in (item.key, item.operator, item.value, item.effect):
                strings += _strings_of(text)
            tolerations.append(Toleration(item.key or "", item.operator or "", item.value or "", item.effect or ""))
    node_selector, labels, annotations = maps
    return strings, Changes(
        node_selector=node_selector,
        tolerations=tuple(tolerations),
        labels=labels,
        annotations=annotations,
        priority_class_name=found.priority_class_name or "",
        service_account=found.service_account or "",
    )
