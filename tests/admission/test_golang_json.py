"""R4.2: JSON as Go's decoder reads it, unknown fields disallowed; twice given is malformed."""

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dexaflow.admission.decisions import MAX_ANSWER_BYTES
from dexaflow.admission.decoding import ANSWER
from dexaflow.admission.golang_json import (
    MAX_DEPTH,
    VALUES_A_STEP,
    Cause,
    Fault,
    Flag,
    ListOf,
    Record,
    Text,
    TextMap,
    Whole,
    read,
    reading,
)
from dexaflow.base.text import shown
from tests.vectors_loader import body_of, load

CASES = load("decode")


def read_answer(body: bytes) -> dict[str, Any]:
    return read(body, ANSWER, max_bytes=MAX_ANSWER_BYTES)


def fault_of(body: bytes) -> Fault:
    with pytest.raises(Fault) as caught:
        read_answer(body)
    return caught.value


def alike(decoded: dict[str, Any]) -> dict[str, Any]:
    """Return an answer in which an empty map or list and none are the same, as the vectors say."""
    response = decoded["response"]
    if response and response["changes"]:
        changes = response["changes"]
        response = response | {"changes": {name: value or None for name, value in changes.items()}}
    return decoded | {"response": response}


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_every_vector_decodes_as_go_decodes_it(case: dict[str, Any]) -> None:
    body = body_of(case)
    assert len(body) == case["body_len"]
    if not case["accept"]:
        fault = fault_of(body)
        assert fault.duplicate or case["cause"] != "duplicate"
        return
    expected = case["decoded"]
    if "decoded_reason_parts" in case:
        reason = "".join(text * times for text, times in case["decoded_reason_parts"])
        expected = expected | {"response": expected["response"] | {"reason": reason}}
    assert alike(read_answer(body)) == alike(expected)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", Cause.EMPTY),
        (b" \r\n\t", Cause.EMPTY),
        (b" " * 65_537, Cause.SIZE),
        (b"{", Cause.SYNTAX),
        (b"\xef\xbb\xbf{}", Cause.SYNTAX),
        (b"{} {}", Cause.TRAILING),
        (b"[]", Cause.TYPE),
        (b'"x"', Cause.TYPE),
        (b"12", Cause.TYPE),
        (b'{"request":{}}', Cause.UNKNOWN_FIELD),
        (b'{"kind":"a","KIND":"a"}', Cause.DUPLICATE),
        (b"NaN", Cause.SYNTAX),
        (b"<html>", Cause.SYNTAX),
    ],
)
def test_what_is_wrong_has_one_word(body: bytes, cause: Cause) -> None:
    assert fault_of(body).cause is cause


@pytest.mark.parametrize(
    "body",
    [
        b'{"response":{"decision":"refuse","decision":"admit"',  # cut off
        b'{"response":{"decision":"refuse","Decision":"admit"}} trailing',
        b'{"response":{"decision":"refuse","deci\xc5\xbfion":"admit","score":1}}',
        b'{"extra":1,"response":{"decision":"refuse","decision":"admit"}}',
        b'{"kind":3,"response":{"decision":"refuse"},"RESPONSE":{"decision":"admit"}}',
        b'{"response":[{"decision":"refuse","decision":"admit"}]}',
        b'{"extra":{"a":[{"b":1,"b":2}]}}',
        b'{"extra":1,"EXTRA":2}',
        b'{"response":{"decision":"refuse","decision":"admit"}}' + b" " * MAX_ANSWER_BYTES,
        b'{"response":{"changes":{"labels":{"a\\ud800":"1","a\\udfff":"2"}}}}',
    ],
)
def test_a_field_given_twice_shows_beside_any_other_fault(body: bytes) -> None:
    """R4.2: such an answer may be a refusal, whatever else is wrong with it; nothing may run unchecked on it."""
    assert fault_of(body).duplicate


@pytest.mark.parametrize(
    "body",
    [
        b'{"response":{"changes":{"labels":{"a":"1","A":"2"}}}}',  # keys of a map are not folded
        b'{"response":{"changes":{"labels":{"a":"1"},"annotations":{"a":"1"}}}}',
        b'{"response":{"changes":{"tolerations":[{"key":"a"},{"key":"a"}]}}}',
    ],
)
def test_what_only_looks_like_twice_is_fine(body: bytes) -> None:
    read_answer(body)


@pytest.mark.parametrize("opening", [b"[", b'{"":', b'{"response":['])
@pytest.mark.parametrize("times", [9_000, 30_000])
def test_depth_is_no_trouble(opening: bytes, times: int) -> None:
    assert fault_of((opening * times)[:MAX_ANSWER_BYTES]).cause is Cause.SYNTAX


@pytest.mark.parametrize(("times", "cause"), [(MAX_DEPTH, Cause.TYPE), (MAX_DEPTH + 1, Cause.SYNTAX)])
def test_the_depth_allowed_is_gos(times: int, cause: Cause) -> None:
    assert fault_of(b"[" * times + b"]" * times).cause is cause


def test_a_giant_number_is_a_wrong_type_and_never_converted() -> None:
    """A number of 60,000 digits would cost seconds, or raise Python's own ValueError."""
    shape = Record({"n": Whole()})
    for number in (b"9" * 60_000, b"1e999999999", b"0." + b"0" * 60_000 + b"1", b"-" + b"9" * 25):
        with pytest.raises(Fault) as caught:
            read(b'{"n":' + number + b"}", shape, max_bytes=MAX_ANSWER_BYTES)
        assert caught.value.cause is Cause.TYPE


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-0", 0), ("12", 12), (str(2**63 - 1), 2**63 - 1), (str(-(2**63)), -(2**63)), ("null", 0)],
)
def test_whole_numbers_of_64_bits_are_read(text: str, number: int) -> None:
    assert read(f'{{"n":{text}}}'.encode(), Record({"n": Whole()}), max_bytes=100) == {"n": number}


@pytest.mark.parametrize("text", [str(2**63), str(-(2**63) - 1), "1.0", "1e2", '"1"', "true", "[1]"])
def test_other_numbers_are_a_wrong_type(text: str) -> None:
    with pytest.raises(Fault) as caught:
        read(f'{{"n":{text}}}'.encode(), Record({"n": Whole()}), max_bytes=100)
    assert caught.value.cause is Cause.TYPE


def test_flags_are_true_or_false() -> None:
    shape = Record({"a": Flag(), "b": Flag(), "c": Flag()})
    assert read(b'{"a":true,"b":false,"c":null}', shape, max_bytes=100) == {"a": True, "b": False, "c": False}
    with pytest.raises(Fault):
        read(b'{"a":1}', shape, max_bytes=100)


def test_a_fault_says_where_it_is_in_one_printable_line() -> None:
    said = str(fault_of(b'{"response":{"changes":{"labels":{"a\\n\\u001b[0m\\u202e":1}}}}'))
    assert "response.changes.labels" in said
    assert said == shown(said)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"response":{"desicion":"hold"}}', "'desicion' is not a field of response, which has uid, decision, reason"),
        (b'{"apiVersion":"v1"}', "'apiVersion' is not a field of the document, which has api_version, kind, response"),
        (
            b'{"response":{"changes":{"tolerations":[{},{},{"key":"a","tolerationSeconds":60}]}}}',
            "of response.changes.tolerations[2], which has key, operator, value, effect",
        ),
        (b'{"response":{"changes":{"tolerations":[{},5]}}}', "response.changes.tolerations[1] must be an object"),
        (b"{'kind': 'x'}", "at byte 1, not '''"),
        (b'{"kind":"x",}', "at byte 12, not '}'"),
        (b'{"kind":NaN}', "at byte 8, not 'N'"),
        (b'{"kind":\x00}', "not byte 0x00"),
        (b'{"kind":', "not the end"),
        (b'\xef\xbb\xbf{"kind":"x"}', "at byte 0, not a byte order mark"),
    ],
)
def test_a_fault_says_what_is_there_and_what_might_be(body: bytes, said: str) -> None:
    assert said in str(fault_of(body))


def test_field_names_are_declared_in_lower_case() -> None:
    with pytest.raises(ValueError, match="lower case"):
        Record({"Uid": Text()})


fragments = st.sampled_from(
    [
        *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b" ", b"\n", b"\x00", b"\xff", b"\\ud800", b"\\u0041"),
        *(b"null", b"true", b"1", b"-", b"1e5", b'"a"', b'"uid"', b'"UID"', b'"response"', b'"changes"', b'"labels"'),
    ]
)


@given(st.one_of(st.binary(max_size=60), st.lists(fragments, max_size=40).map(b"".join)))
@example(b'"\\u12')
@example(b'"\\ud800\\u')
@example(b'{"a"')
@example(b"-")
def test_any_bytes_give_a_value_or_a_fault(body: bytes) -> None:
    """Never a RecursionError, a UnicodeError, a ValueError: a border has one error."""
    try:
        value = read_answer(body)
    except Fault as fault:
        said = str(fault)
        assert said == shown(said)
    else:
        json.dumps(value, ensure_ascii=False).encode()  # nothing in it that UTF-8 cannot hold


plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


@given(value=plain_json, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_json_that_python_wrote_is_never_bad_syntax(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps({"response": value}, ensure_ascii=ascii_only, indent=indent)
    fault = None
    try:
        read_answer(text.encode("utf-8", "surrogatepass"))
    except Fault as found:
        fault = found
    assert fault is None or (fault.cause in (Cause.TYPE, Cause.UNKNOWN_FIELD) and not fault.duplicate)


@given(st.dictionaries(st.text(), st.text()))
def test_a_map_reads_as_it_was_written(texts: dict[str, str]) -> None:
    shape = Record({"m": TextMap(), "l": ListOf(Record({"t": Text()}))})
    document = {"m": texts, "l": [{"t": text} for text in texts.values()]}
    for ascii_only in (True, False):
        body = json.dumps(document, ensure_ascii=ascii_only).encode()
        assert read(body, shape, max_bytes=10**6) == document


@given(st.binary(max_size=12))
def test_bytes_that_are_not_utf8_become_one_replacement_each(raw: bytes) -> None:
    """As Go's utf8.DecodeRune: each byte that is no part of a valid sequence is one U+FFFD."""
    inside = bytes(b for b in raw if b >= 0x20 and b not in b'"\\')
    expected, at = "", 0
    while at < len(inside):
        for width in (1, 2, 3, 4):
            try:
                expected += inside[at : at + width].decode()
            except UnicodeDecodeError:
                continue
            at += width
            break
        else:
            expected += "\ufffd"
            at += 1
    assert read(b'{"t":"' + inside + b'"}', Record({"t": Text()}), max_bytes=100) == {"t": expected}


def test_numbers_are_checked_by_the_grammar_alone() -> None:
    for text in ("01", "-", "+1", ".5", "1.", "1e", "1e+", "0x1", "1_0", "--1", "Infinity", "-Infinity", str(math.nan)):
        assert fault_of(f'{{"x":{text}}}'.encode()).cause is Cause.SYNTAX, text


@pytest.mark.parametrize(
    "unit",
    [b"{}", b"[]", b"0", b'""', b"null", b'{"key":"a","key":"b"}', b'{"x":0}', b'{"key":null,"value":1}'],
)
@pytest.mark.parametrize("before", [b'{"x":[', b'{"response":{"changes":{"tolerations":['])
def test_a_long_body_is_read_in_many_steps_whatever_is_in_it(before: bytes, unit: bytes) -> None:
    """Nobody waits for an answer of 64 KB that is all names, or all faults."""
    values = 5_000
    steps: list[None] = []
    work = reading(before + b",".join([unit] * values), ANSWER, max_bytes=MAX_ANSWER_BYTES * 2)

    with pytest.raises(Fault):
        steps.extend(iter(work))

    assert len(steps) >= values // VALUES_A_STEP
