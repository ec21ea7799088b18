"""An answer's bytes as a value (R4.2), decoded in two ways that give the same.

`decode_quickly` is quick and takes only what it can be sure of; whatever it leaves is for `decode_strictly`, which
knows all of Go's rules and is the one that finds faults.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from dexaflow.admission import golang_json
from dexaflow.admission.decisions import MAX_ANSWER_BYTES, NO_CHANGES, Changes
from dexaflow.admission.golang_json import ListOf, Record, Text, TextMap
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import EMPTY

__all__ = [
    "ANSWER",
    "MAX_ANSWER_BYTES",
    "PLACEMENT",
    "Answer",
    "decode_answer",
    "decode_quickly",
    "decode_strictly",
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


def decode_strictly(body: bytes) -> Answer:
    """Decode by Go's rules. Raises `golang_json.Fault`."""
    document = golang_json.read(body, ANSWER, max_bytes=MAX_ANSWER_BYTES)
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
        "tolerations": tuple(Toleration(**item) for item in fields["tolerations"] or ()),
        "labels": frozen(fields["labels"]),
        "annotations": frozen(fields["annotations"]),
        "priority_class_name": fields["priority_class_name"],
        "service_account": fields["service_account"],
    }


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


def decode_quickly(body: bytes) -> Answer | None:
    """Decode an answer whose names are spelt as in the spec; None leaves it to `decode_strictly`.

    msgspec takes the last of two equal names, as Go does, and we may not. But every string stands between two quotes
    of its own; so if something was given twice, the body has more quotes than the names and strings that came out
    account for. (An escaped quote makes more too; such a body is left to the other.)
    """
    if len(body) > MAX_ANSWER_BYTES:
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
    return Answer(document.api_version, document.kind, uid or "", decision or "", reason or "", changes)


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
