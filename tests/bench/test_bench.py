"""`make bench`: that each measurement runs. No figure is asserted: a slow machine is not a fault."""

import math

import pytest
from bench.__main__ import MEASUREMENTS, main
from bench.scale import TINY
from bench.table import AT_LEAST, AT_MOST, Line, line, table


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_each_measurement_runs_and_gives_figures(name: str) -> None:
    lines = MEASUREMENTS[name](TINY)

    assert lines
    assert all(math.isfinite(found.value) and found.low <= found.value <= found.high for found in lines)
    assert len({found.name for found in lines}) == len(lines)


def test_a_name_that_is_none_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gait"])

    assert "choose from gate," in capsys.readouterr().err


def test_the_figure_is_the_median_and_its_range_is_shown() -> None:
    text = table([line("decision", [3.0, 1.0, 2.0], unit="us", in_flight=16, at_most=2.5)])

    assert text.splitlines()[2].split() == [
        "decision",
        "2.00",
        "us",
        "1.00",
        "..",
        "3.00",
        "16",
        *["at", "most", "2.5", "us", "met"],
    ]


@pytest.mark.parametrize(
    ("bound", "value", "meets", "short"),
    [
        (AT_LEAST, 70.0, True, False),
        (AT_LEAST, 60.0, False, False),
        (AT_LEAST, 58.0, False, True),
        (AT_MOST, 70.0, True, False),
        (AT_MOST, 80.0, False, False),
        (AT_MOST, 85.0, False, True),
    ],
)
def test_a_line_falls_short_when_it_misses_by_more_than_a_fifth(
    bound: str, value: float, meets: bool, short: bool
) -> None:
    found = Line("x", value, value, value, bound=bound, target=70.0)

    assert (found.meets, found.falls_short) == (meets, short)
    assert not Line("x", value, value, value, bound=bound).falls_short
