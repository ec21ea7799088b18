"""R4.2: the two decoders of an answer give the same."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexaflow.admission.decisions import admit, hold, refuse
from dexaflow.admission.decoding import decode_quickly, decode_strictly
from dexaflow.admission.envelope import answer
from dexaflow.admission.golang_json import Fault
from tests.admission.builders import UID
from tests.vectors_loader import body_of, load


def test_both_decoders_give_the_same_over_all_vectors() -> None:
    quick = 0
    for body in map(body_of, [*load("decode"), *load("answer_semantics")]):
        found = decode_quickly(body)
        if found is not None:
            quick += 1
            assert decode_strictly(body) == found
    assert quick > 100  # most answers take the quick way


def test_the_usual_answers_take_the_quick_way() -> None:
    for decision in (admit(), hold("freeze"), refuse("休み"), admit(labels={"a": "b"}, tolerations=[{"key": "x"}])):
        assert decode_quickly(answer(UID, decision)) is not None


Pairs = tuple[tuple[str, Any], ...]  # an object that may have a name twice


def written(value: Any, *, ascii_only: bool = False) -> str:
    """Return JSON in which a tuple of pairs is an object, names given twice included."""
    if isinstance(value, tuple):
        items = (
            f"{json.dumps(name, ensure_ascii=ascii_only)}:{written(v, ascii_only=ascii_only)}" for name, v in value
        )
        return "{" + ",".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(item, ascii_only=ascii_only) for item in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def once(pairs: st.SearchStrategy[tuple[str, Any]], max_size: int) -> st.SearchStrategy[Pairs]:
    return st.lists(pairs, max_size=max_size, unique_by=lambda pair: pair[0]).map(tuple)


simple = st.text(st.characters(codec="utf-8", exclude_characters='"'), max_size=4)
maybe_text = st.none() | simple
toleration = once(st.tuples(st.sampled_from(["key", "operator", "value", "effect"]), maybe_text), 4)
text_map = once(st.tuples(simple, maybe_text), 4)
changes_object = once(
    st.one_of(
        st.tuples(st.sampled_from(["node_selector", "labels", "annotations"]), st.none() | text_map),
        st.tuples(st.just("tolerations"), st.none() | st.lists(st.none() | toleration, max_size=3)),
        st.tuples(st.sampled_from(["priority_class_name", "service_account"]), maybe_text),
    ),
    6,
)
response_object = once(
    st.tuples(st.sampled_from(["uid", "decision", "reason"]), maybe_text)
    | st.tuples(st.just("changes"), st.none() | changes_object),
    4,
)
answers = st.tuples(
    st.tuples(st.just("api_version"), simple),
    st.tuples(st.just("kind"), simple),
    st.tuples(st.just("response"), response_object),
)


@settings(max_examples=300)
@given(answers)
def test_both_decoders_give_the_same_for_every_answer_spelt_exactly(document: Pairs) -> None:
    for body in (written(document).encode(), written(document, ascii_only=True).encode()):
        found = decode_quickly(body)

        assert found is not None or has_nothing_in_it(document)
        assert found is None or decode_strictly(body) == found


def has_nothing_in_it(value: Any) -> bool:
    """Whether a field is there with nothing in it, null or empty: rare, and left to the strict decoder."""
    if isinstance(value, tuple):
        return any(inner in (None, "", (), []) or has_nothing_in_it(inner) for _, inner in value)
    return isinstance(value, list) and any(inner is None or has_nothing_in_it(inner) for inner in value)


def objects_in(value: Any) -> list[Pairs]:
    if isinstance(value, tuple):
        return [value, *(found for _, inner in value for found in objects_in(inner))]
    return [found for item in value for found in objects_in(item)] if isinstance(value, list) else []


def replaced(value: Any, old: Pairs, new: Pairs) -> Any:
    if value is old:
        return new
    if isinstance(value, tuple):
        return tuple((name, replaced(inner, old, new)) for name, inner in value)
    return [replaced(item, old, new) for item in value] if isinstance(value, list) else value


@settings(max_examples=300)
@given(document=answers, data=st.data())
def test_the_quick_decoder_overlooks_nothing_given_twice(document: Pairs, data: st.DataObject) -> None:
    """R4.2: in whatever object, before or after, with the same value or another."""
    somewhere = data.draw(st.sampled_from([found for found in objects_in(document) if found]))
    name, value = data.draw(st.sampled_from(somewhere))
    again = (name, data.draw(st.sampled_from([value, None, "", "x", (), []])))
    at = data.draw(st.integers(0, len(somewhere)))
    body = written(replaced(document, somewhere, (*somewhere[:at], again, *somewhere[at:]))).encode()

    assert decode_quickly(body) is None
    with pytest.raises(Fault) as caught:
        decode_strictly(body)
    assert caught.value.duplicate


BROKEN_PARTS = [
    *(b"", b'"', b"\\", b"\x00", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b" ", b"\x0b"),
    *(b",", b"{}", b"}", b"[", b"1", b"null", b'"uid":"",', b'"a":"b",', b'"key":"",'),
    *(
        b"\\u0022",
        b"\\u0041",
        b"\\ud83d\\ude00",
        b"\\ud800",
        b"\\n",
        b"\\/",
        b"\\x",
        b'\\"',
        b"\\u00",
        b'"\\u0075id":"",',
    ),
]


@settings(max_examples=400)
@given(
    base=st.sampled_from(
        [
            answer(UID, admit()),
            answer(UID, hold('say "when"')),
            answer(
                UID,
                admit(node_selector={"a": "b"}, labels={"c": "é"}, tolerations=[{"key": "k"}, {}], service_account="s"),
            ),
        ]
    ),
    edits=st.lists(
        st.tuples(
            st.integers(0, 400),
            st.integers(0, 3),
            st.sampled_from(BROKEN_PARTS),
        ),
        max_size=3,
    ),
)
def test_broken_bytes_do_not_tell_the_decoders_apart(base: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    body = base
    for at, dropped, put in edits:
        body = body[:at] + put + body[at + dropped :]

    found = decode_quickly(body)

    if found is not None:
        assert decode_strictly(body) == found
