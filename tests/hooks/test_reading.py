"""Reading answers, whatever pieces they come in (R4.1)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dexaflow.hooks.reading import MAX_BODY_BYTES, MAX_HEAD_BYTES, MAX_RAW_BYTES, AnswerReader

bodies = st.binary(max_size=200)
fillers = st.sampled_from([b"", b"X-A: b\r\n", b"Content-Encoding: identity\r\n", b"Date: now\r\nX: \r\n"])
interims = st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"])


def with_length(body: bytes, headers: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (headers, len(body), body)


@st.composite
def chunked(draw: st.DrawFn, body: bytes, headers: bytes) -> bytes:
    wire = b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % headers
    rest = body
    while rest:
        size = draw(st.integers(1, len(rest)))
        extension = draw(st.sampled_from([b"", b";a=b"]))
        wire += b"%x%b\r\n%b\r\n" % (size, extension, rest[:size])
        rest = rest[size:]
    return wire + b"0\r\n" + draw(st.sampled_from([b"", b"X-Trailer: y\r\n"])) + b"\r\n"


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A body, and an answer with it."""
    body, headers = draw(bodies), draw(fillers)
    wire = with_length(body, headers) if draw(st.booleans()) else draw(chunked(body, headers))
    return body, draw(interims) + wire


@given(st.data(), st.lists(answers(), min_size=1, max_size=3))
def test_answers_are_the_same_in_whatever_pieces_they_come(
    data: st.DataObject, exchange: list[tuple[bytes, bytes]]
) -> None:
    """Several in a row on one connection: nothing of one is left for the next."""
    reader = AnswerReader()
    for body, wire in exchange:
        reader.begin()
        cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
        pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True) if a != b]
        for number, piece in enumerate(pieces, 1):
            assert reader.feed(piece) is (number == len(pieces))
        assert (reader.status, reader.body, reader.fault) == (200, body, "")
        assert reader.reusable


LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
LONG: dict[str, tuple[int, bytes, bytes, bytes]] = {  # bytes that may come up to its body, and a middle to be repeated
    "headers": (MAX_HEAD_BYTES, LENGTH + b"X: ", b"y", b"\r\n\r\n"),
    "blanks": (MAX_HEAD_BYTES, LENGTH + b"X:", b" ", b"y\r\n\r\n"),
    "interim answers": (MAX_HEAD_BYTES, b"HTTP/1.1 103 Hints\r\nX: ", b"y", b"\r\n\r\n" + LENGTH + b"\r\n"),
    "chunk extensions": (MAX_RAW_BYTES, CHUNKED + b"2;a=", b"y", b"\r\nok\r\n" + LAST),
    "trailers": (MAX_RAW_BYTES, CHUNKED + b"2\r\nok\r\n0\r\nX: ", b"y", b"\r\n\r\n"),
}


@pytest.mark.parametrize("size", [997, 65_536, 1_000_000])
@pytest.mark.parametrize("where", LONG)
def test_limits_are_the_same_in_whatever_pieces_an_answer_comes(where: str, size: int) -> None:
    """One byte over is over, also when all of it lies in the socket at once."""
    limit, before, middle, after = LONG[where]
    body = b"ok" if limit == MAX_HEAD_BYTES else b""
    for more, taken in ((0, True), (1, False), (50_000, False)):
        wire = before + middle * (limit - len(before) - len(after) + more) + after + body
        reader = AnswerReader()
        assert any(reader.feed(wire[at : at + size]) for at in range(0, len(wire), size))
        assert bool(reader.fault) is not taken, (more, reader.fault)
        if taken:
            assert (reader.status, reader.body, reader.reusable) == (200, b"ok", True)


@given(answers(), st.binary(min_size=1, max_size=30))
@example((b"", LENGTH.replace(b": 2", b": 0") + b"\r\n"), b"\r")
def test_anything_after_an_answer_spoils_the_connection_not_the_answer(
    answer: tuple[bytes, bytes], after: bytes
) -> None:
    body, wire = answer
    reader = AnswerReader()
    assert reader.feed(wire + after)
    assert (reader.status, reader.body, reader.fault) == (200, body, "")
    if not (body and set(after) <= set(b"\r\n") and body.endswith(after)):  # then it cannot be told, nor do harm
        assert not reader.reusable


@given(st.binary(max_size=300), st.lists(st.binary(max_size=50), max_size=5))
def test_no_bytes_whatever_upset_the_reader(start: bytes, more: list[bytes]) -> None:
    """It says that an answer is there, that it is not HTTP, or that it wants more."""
    for first in (
        start,
        b"HTTP/1.1 200 OK\r\n" + start,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + start,
    ):
        reader = AnswerReader()
        for piece in [first, *more]:
            if reader.feed(piece):
                assert reader.fault or reader.place.endswith(("the body of the answer", "the headers of the answer"))
                assert len(reader.body) <= MAX_BODY_BYTES
                break
        else:
            reader.end_of_stream()


@pytest.mark.parametrize("pieces", [1, 1000])
@pytest.mark.parametrize(
    ("head", "status", "fault"),
    [
        (b"000 OK\r\nTransfer-Encoding: chunked", 0, ""),
        (b"099 OK\r\nTransfer-Encoding: chunked", 99, ""),
        (b"199 OK\r\nTransfer-Encoding: chunked", 199, "an interim answer announces a body, and has none in HTTP"),
        (b"103 OK\r\nContent-Length: 12", 103, "an interim answer announces a body, and has none in HTTP"),
    ],
)
def test_what_is_no_interim_answer_is_an_answer_at_once(head: bytes, status: int, fault: str, pieces: int) -> None:
    """Found by fuzzing: with its end in the same bytes it was passed over, and the real answer waited for."""
    data = b"HTTP/1.1 " + head + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    reader = AnswerReader()
    size = -(-len(data) // pieces)
    assert any(reader.feed(data[at : at + size]) for at in range(0, len(data), size))
    assert (reader.status, reader.fault) == (status, fault)


def test_interim_answers_without_a_body_are_passed_over() -> None:
    reader = AnswerReader()
    assert not reader.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nContent-Length: 0\r\n\r\n")
    assert reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert (reader.status, reader.body, reader.fault, reader.reusable) == (200, b"{}", "", True)
