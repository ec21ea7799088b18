"""An answer's bytes as a value (R4.2), decoded in two ways that give the same.

`decode_quickly` is quick and takes only what it can be sure of; whatever it leaves is for `decode_strictly`, which
knows all of Go's rules and is the one that finds faults.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from dexaflow.admission import golang_json
from dexaflow.admission.decisions import MAX_ANSWER_BYTES, NO_CHANGES, Changes
from dexaflow.admission.golang_json import ListOf, Record, Text, TextMap
from dexaflow.base.in_steps import Steps, at_once
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import EMPTY

__all__ = [
    "ANSWER",
    "PLACEMENT",
    "Answer",
    "decode_answer",
    "decode_quickly",
    "decode_strictly",
    "decoding_answer",
    "frozen",
    "placement_values",
]

_TOLERATION = Record({"key": Text(), "operator": Text(), "value": Text(), "effect": Text()})
PLACEMENT = Record(
    {
        "node_selector": TextMap(),
        "tolerations": ListOf(_TOLERATION),
        "labels": TextMap(),
        "annotations": TextMap(),
        "priority_class_name": Text(),
        "service_account": Text(),
    }
)
# Exactly the structure of the answer; `Cause.UNKNOWN_FIELD` is for everything else.
ANSWER: Final = Record(
    {
        "api_version": Text(),
        "kind": Text(),
        "response": Record({"uid": Text(), "decision": Text(), "reason": Text(), "changes": PLACEMENT}),
    }
)


class Answer(NamedTuple):
    """An answer as decoded, before anything in it is judged. A field that was not given is empty."""

    api_version: str
    kind: str
    uid: str
    decision: str
    reason: str
    changes: Changes


def decode_answer(body: bytes) -> Answer:
    """Return what an answer's body says. Raises `golang_json.Fault`."""
    quick = decode_quickly(body)
    return decode_strictly(body) if quick is None else quick


def decoding_answer(body: bytes) -> Steps[Answer]:
    """`decode_answer` in steps of a few milliseconds at most."""
    quick = decode_quickly(body)
    if quick is not None:
        return quick
    yield
    return (yield from _decoding_strictly(body))


def decode_strictly(body: bytes) -> Answer:
    """Decode by Go's rules. Raises `golang_json.Fault`."""
    return at_once(_decoding_strictly(body))


def _decoding_strictly(body: bytes) -> Steps[Answer]:
    document = yield from golang_json.reading(body, ANSWER, max_bytes=MAX_ANSWER_BYTES)
    response = document["response"] or {"uid": "", "decision": "", "reason": "", "changes": None}
    changes = response["changes"]
    return Answer(
        document["api_version"],
        document["kind"],
        response["uid"],
        response["decision"],
        response["reason"],
        NO_CHANGES if changes is None else Changes(**placement_values(changes)),
    )


def frozen(value: dict[str, str] | None) -> Mapping[str, str]:
    """Return a decoded map as one that nobody changes; `EMPTY` for none."""
    return MappingProxyType(value) if value else EMPTY


def placement_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `Changes` or `Execution` out of a decoded `PLACEMENT`."""
    return {
        "node_selector": frozen(fields["node_selector"]),
        "tolerations": _tolerations(tuple(item.values()) for item in fields["tolerations"] or ()),
        "labels": frozen(fields["labels"]),
        "annotations": frozen(fields["annotations"]),
        "priority_class_name": fields["priority_class_name"],
        "service_account": fields["service_account"],
    }


def _tolerations(found: Iterable[tuple[str, str, str, str]]) -> tuple[Toleration, ...]:
    """Return tolerations by their fields, in the order of `_TOLERATION`. Equal ones are one object: an answer has room
    for twenty thousand, of the same few fields.
    """
    made: dict[tuple[str, str, str, str], Toleration] = {}
    result: list[Toleration] = []
    for fields in found:
        toleration = made.get(fields)
        if toleration is None:
            made[fields] = toleration = Toleration(*fields)
        result.append(toleration)
    return tuple(result)


class _TolerationStruct(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class _ChangesStruct(msgspec.Struct, forbid_unknown_fields=True):
    node_selector: dict[str, str] | None = None
    tolerations: list[_TolerationStruct] | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    priority_class_name: str = ""
    service_account: str = ""


class _ResponseStruct(msgspec.Struct, forbid_unknown_fields=True):
    uid: str = ""
    decision: str = ""
    reason: str = ""
    changes: _ChangesStruct | None = None


class _AnswerStruct(msgspec.Struct, forbid_unknown_fields=True):
    api_version: str
    kind: str
    response: _ResponseStruct


_decoder = msgspec.json.Decoder(_AnswerStruct)


def decode_quickly(body: bytes) -> Answer | None:
    """Decode an answer whose names are spelt as in the spec; None leaves it to `decode_strictly`.

    msgspec takes the last of two equal names, as Go does, and we may not. But every string stands between two quotes
    of its own; so if something was given twice, the body has more quotes than the names and strings that came out
    account for. (So it has where a field is there and empty, or a quote is escaped: those are left to the other too.)
    """
    if len(body) > MAX_ANSWER_BYTES:
        return None
    try:
        document = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    response = document.response
    uid, decision, reason, found = response.uid, response.decision, response.reason, response.changes
    strings = 5  # api_version and kind with their values, and the name of the response
    if uid:
        strings += 2
    if decision:
        strings += 2
    if reason:
        strings += 2
    changes = NO_CHANGES
    if found is not None:
        more, changes = _changes_of(found)
        strings += 1 + more
    if body.count(b'"') != 2 * strings:
        return None
    return Answer(document.api_version, document.kind, uid, decision, reason, changes)


def _changes_of(found: _ChangesStruct) -> tuple[int, Changes]:
    """Return how many strings the changes are made of, and the changes."""
    node_selector, labels, annotations = found.node_selector, found.labels, found.annotations
    priority_class_name, service_account = found.priority_class_name, found.service_account
    strings = 0
    if node_selector:
        strings += 1 + 2 * len(node_selector)
    if labels:
        strings += 1 + 2 * len(labels)
    if annotations:
        strings += 1 + 2 * len(annotations)
    if priority_class_name:
        strings += 2
    if service_account:
        strings += 2
    tolerations: tuple[Toleration, ...] = ()
    if found.tolerations:
        each = [(item.key, item.operator, item.value, item.effect) for item in found.tolerations]
        strings += 1 + 2 * (4 * len(each) - sum(fields.count("") for fields in each))
        tolerations = _tolerations(each)
    return strings, Changes(
        MappingProxyType(node_selector) if node_selector else EMPTY,
        tolerations,
        MappingProxyType(labels) if labels else EMPTY,
        MappingProxyType(annotations) if annotations else EMPTY,
        priority_class_name,
        service_account,
    )
