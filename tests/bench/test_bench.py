"""`make bench`: that each measurement runs. No figure is asserted: a slow machine is not a fault."""

import math
import shutil
from typing import Any

import pytest
from bench.__main__ import MEASUREMENTS, main
from bench.scale import TINY
from bench.table import line, not_measured, table


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_each_measurement_runs_and_gives_figures(name: str) -> None:
    lines = MEASUREMENTS[name](TINY)

    assert lines
    assert all(math.isfinite(found.value) and found.low <= found.value <= found.high for found in lines)
    assert len({found.name for found in lines}) == len(lines)
    assert all(found.in_flight for found in lines)


def test_a_name_that_is_none_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gait"])

    assert "choose from gate," in capsys.readouterr().err


def test_the_figure_is_the_median_and_its_range_is_shown() -> None:
    text = table([line("decision", [3.0, 1.0, 2.0], unit="us", in_flight=16, at_most=2.5)])

    assert text.splitlines()[2].split() == [
        "decision",
        "2",
        "us",
        "1",
        "..",
        "3",
        "16",
        *["at", "most", "2.5", "us", "met"],
    ]


@pytest.mark.parametrize(
    ("aim", "value", "meets", "short"),
    [
        ({"at_least": 70.0}, 70.0, True, False),
        ({"at_least": 70.0}, 60.0, False, False),
        ({"at_least": 70.0}, 58.0, False, True),
        ({"at_most": 70.0}, 70.0, True, False),
        ({"at_most": 70.0}, 80.0, False, False),
        ({"at_most": 70.0}, 85.0, False, True),
        ({"at_most": 0.0}, 1.0, False, True),
        ({"at_least": 0.9, "at_most": 1.1}, 0.9, True, False),
        ({"at_least": 0.9, "at_most": 1.1}, 0.8, False, False),
        ({"at_least": 0.9, "at_most": 1.1}, 0.7, False, True),
        ({"at_least": 0.9, "at_most": 1.1}, 1.4, False, True),
        ({}, 85.0, True, False),
    ],
)
def test_a_line_falls_short_when_it_misses_by_more_than_a_fifth(
    aim: dict[str, Any], value: float, meets: bool, short: bool
) -> None:
    found = line("x", [value], in_flight=1, **aim)

    assert (found.meets, found.falls_short) == (meets, short)


def test_what_cannot_be_measured_says_why_and_is_no_failure() -> None:
    found = not_measured("against Go", "Go is not installed", in_flight=16)

    assert "not measured" in table([found]).splitlines()[2]
    assert table([found]).splitlines()[-1] == "not measured: against Go: Go is not installed"
    assert not found.falls_short


def test_without_go_the_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)

    (found,) = MEASUREMENTS["transport"](TINY)

    assert found.missing == "Go is not installed"


def test_make_bench_check_fails_where_a_line_falls_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(MEASUREMENTS, "gate", lambda _: [line("  decision", [10.0], in_flight=1, at_most=5.0)])
    monkeypatch.setitem(MEASUREMENTS, "lite", lambda _: [line("end to end", [69.0], in_flight=1, at_least=70.0)])

    assert main(["gate", "--tiny"]) == 0
    assert main(["lite", "--tiny", "--check"]) == 0
    assert main(["gate,lite", "--tiny", "--check"]) == 1
    assert "more than a fifth short: decision\n" in capsys.readouterr().err
