"""Durations are written like 500ms, 30s, 1m30s (requirements, section 2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.durations import MAX_SECONDS, format_duration, parse_duration
from dexaflow.base.text import shown


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("10ms", 0.01),
        ("30s", 30.0),
        ("1m30s", 90.0),
        ("90s", 90.0),
        ("2h", 7200.0),
        ("30d", 2_592_000.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("1.5s", 1.5),
        ("0.1s", 0.1),
        ("0s", 0.0),
        ("007s", 7.0),
    ],
)
def test_a_duration_is_its_seconds(written: str, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("500", "'500' has no unit; write 500ms, 30s or 15m"),
        ("1.5", "'1.5' has no unit"),
        ("1m30", "ends in a number without a unit"),
        ("", "empty"),
        ("-5s", "sign"),
        ("+5s", "sign"),
        ("30 s", "not a duration"),
        (" 30s", "not a duration"),
        ("30s\n", "not a duration"),
        ("30s1m", "out of order"),
        ("1s1s", "twice"),
        ("5min", "unknown unit 'min'"),
        ("5S", "unknown unit 'S'"),
        ("5us", "unknown unit 'us'"),
        ("1w", "unknown unit 'w'"),
        ("٣s", "not a duration"),
        ("１s", "not a duration"),
        ("1e3s", "unknown unit 'e'"),
        ("NaN", "not a duration"),
        ("nans", "not a duration"),
        ("inf", "not a duration"),
        (".5s", "not a duration"),
        ("5.s", "not a duration"),
        ("1_000s", "not a duration"),
        ("s", "not a duration"),
        ("PT30S", "not a duration"),
        ("36501d", "hundred years"),
        ("9" * 60 + "d", "hundred years"),
        ("9" * 100_000 + "s", "too long"),
        ("1s\u202e", r"\u202e"),
        ("\ud800", "not a duration"),
    ],
)
def test_what_is_not_a_duration_is_refused_with_what_to_write(written: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(written)
    assert says in str(caught.value)
    assert shown(str(caught.value)) == str(caught.value)
    assert "; " in str(caught.value)


@given(st.text(max_size=20) | st.text("0123456789.dhms ", max_size=12))
def test_any_text_is_a_duration_or_a_clear_error(written: str) -> None:
    try:
        seconds = parse_duration(written)
    except ValueError as error:
        assert shown(str(error)) == str(error)
    else:
        assert 0 <= seconds <= MAX_SECONDS


@given(st.floats(0, MAX_SECONDS) | st.integers(0, 10**6).map(float) | st.integers(0, 10**6).map(lambda n: n / 1000))
def test_a_formatted_duration_reads_back_to_the_microsecond(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=0.6e-6)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0s"),
        (0.5, "500ms"),
        (0.0005, "0.5ms"),
        (1, "1s"),
        (1.25, "1.25s"),
        (59.9999999, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (93_784.005, "1d2h3m4.005s"),
        (2_592_000, "30d"),
    ],
)
def test_a_duration_is_formatted_as_a_person_would_write_it(seconds: float, written: str) -> None:
    assert format_duration(seconds) == written


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), MAX_SECONDS * 2])
def test_what_is_no_duration_is_not_formatted(seconds: float) -> None:
    with pytest.raises(ValueError):
        format_duration(seconds)
