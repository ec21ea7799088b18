"""Text from outside is text everywhere (R4.4)."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.text import MAX_REASON_BYTES, clean_reason, cut, quoted, shown, without_user_info
from tests.vectors_loader import load

ANY_CHARACTER = st.characters(exclude_categories=())  # lone surrogates included
ANY_TEXT = (
    st.text(ANY_CHARACTER, max_size=700) | st.text("é😀a\x00\x85\ud83d\ude00", max_size=700) | st.text(max_size=2000)
)
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


@pytest.mark.parametrize(
    "case", [case for case in load("answer_semantics") if case.get("reason")], ids=lambda case: ascii(case["name"])
)
def test_a_reason_as_kept_is_kept_as_it_is(case: dict[str, str]) -> None:
    """The vectors' reasons were computed in Go; cleaning them again changes nothing (R4.4)."""
    assert clean_reason(case["reason"]) == case["reason"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("acme is frozen until 06:00 UTC", "acme is frozen until 06:00 UTC"),
        ("  spaces stay  ", "  spaces stay  "),
        ("one\ntwo\tthree\r\n\x00\x7f\x85end", "onetwothreeend"),
        ("\x1b[31mred", "[31mred"),
        ("\u202eabc\u2028\u200b", "\u202eabc\u2028\u200b"),  # format characters are kept, and escaped when shown
        ("a\ud800b\udc00c", "a\ufffdb\ufffdc"),
        ("\ud800\ud800", "\ufffd\ufffd"),
        ("\ud800", "\ufffd"),
        ("\ud83d\ude00", "😀"),  # two halves that make a pair are their character, as in JSON
        ("x" * 600, "x" * 512),
        ("\n" * 600 + "x", "x"),  # removed first, cut then
        ("x" * 511 + "é", "x" * 511),
        ("x" * 510 + "é", "x" * 510 + "é"),
        ("x" * 509 + "😀", "x" * 509),
        ("x" * 510 + "\ud800", "x" * 510),  # U+FFFD takes three bytes
        ("", ""),
    ],
)
def test_a_reason_loses_control_characters_and_what_is_past_512_bytes(text: str, kept: str) -> None:
    """Control characters removed, cut to 512 bytes without splitting a character, nothing trimmed (R4.4)."""
    assert clean_reason(text) == kept


@given(ANY_TEXT)
def test_a_kept_reason_is_the_longest_clean_beginning_that_fits(text: str) -> None:
    kept = clean_reason(text)
    assert len(kept.encode()) <= MAX_REASON_BYTES
    assert not any(unicodedata.category(c) == "Cc" for c in kept)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    clean = "".join(c for c in whole if unicodedata.category(c) != "Cc")
    assert clean.startswith(kept)
    assert kept == clean or len(clean[: len(kept) + 1].encode()) > MAX_REASON_BYTES
    assert clean_reason(kept) == kept


@given(ANY_TEXT, st.integers(-3, 900))
def test_cut_takes_as_much_as_fits_and_splits_no_character(text: str, most: int) -> None:
    def size(part: str) -> int:
        return len(part.encode("utf-8", "surrogatepass"))

    start = cut(text, most)
    assert text.startswith(start)
    assert size(start) <= max(most, 0)
    assert start == text or size(text[: len(start) + 1]) > most


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain text", "plain text"),
        ("Grüße, 世界 😀 – “quotes”", "Grüße, 世界 😀 – “quotes”"),
        (r"C:\new\u202e", r"C:\new\u202e"),
        ("<script>", "<script>"),
        ("no\u00a0break\u3000space", "no\u00a0break\u3000space"),
        ("two\nlines\r", r"two\u000alines\u000d"),
        ("\x1b[2J\x07\x00\x7f\x9b", r"\u001b[2J\u0007\u0000\u007f\u009b"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("a\u200bb\ufeff\u00ad", r"a\u200bb\ufeff\u00ad"),
        ("a\u2028b\u2029\x85", r"a\u2028b\u2029\u0085"),
        ("\U000e0001\U000e0041", r"\U000e0001\U000e0041"),
        ("\ud800 \udfff", r"\ud800 \udfff"),
        ("", ""),
    ],
)
def test_what_could_move_hide_or_turn_text_is_shown_as_an_escape(text: str, seen: str) -> None:
    """On a terminal, in a log line and on a page: no escapes, no line of its own; Cf as \\u202e (R4.4)."""
    assert shown(text) == seen


@given(ANY_TEXT)
def test_shown_text_is_one_line_and_touches_nothing_else(text: str) -> None:
    seen = shown(text)
    assert not any(unicodedata.category(c) in HIDDEN for c in seen)
    assert len(seen.splitlines()) <= 1
    seen.encode()  # UTF-8 can hold it
    assert shown(seen) == seen
    ordinary = [c for c in text if unicodedata.category(c) not in HIDDEN]
    assert len(ordinary) < len(text) or seen == text


@given(ANY_CHARACTER)
def test_each_character_is_shown_as_itself_or_as_its_code(character: str) -> None:
    seen = shown(character)
    if unicodedata.category(character) in HIDDEN:
        assert seen.encode().decode("unicode_escape") == character
        assert len(seen) == (6 if ord(character) <= 0xFFFF else 10)
    else:
        assert seen == character


def test_quoted_text_is_short_and_one_line() -> None:
    assert quoted("a\nb") == r"'a\u000ab'"
    assert quoted("x" * 81) == f"'{'x' * 77}...'"
    assert quoted("x" * 80) == f"'{'x' * 80}'"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("ask jo@acme at https://host/x", "ask jo@acme at https://host/x"),
        ("https://jo:s3cret@host/x and postgres://s3cret@db", "https://...@host/x and postgres://...@db"),
        ("https://jo:s3@cr:et@host", "https://...@host"),
    ],
)
def test_the_user_info_of_urls_is_left_out_of_a_message(text: str, kept: str) -> None:
    assert without_user_info(text) == kept


def test_looking_for_user_info_takes_no_longer_than_the_text_is_long() -> None:
    assert without_user_info("://" * 100_000) == "://" * 100_000
