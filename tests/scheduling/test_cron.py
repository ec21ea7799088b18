"""Firings across changes of the clocks: never twice and never lost where hours are named, real hours for the rest."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dexaflow.scheduling.cron import Cron

MINUTE = timedelta(minutes=1)


def firings(expression: str, zone: str, start: str, count: int) -> list[str]:
    """Return the firings after `start` (local time) as local time with offset; checks that `before` sees the same."""
    cron, tz = Cron(expression, ZoneInfo(zone)), ZoneInfo(zone)
    moment = datetime.fromisoformat(start).replace(tzinfo=tz).astimezone(UTC)
    found: list[datetime] = []
    for _ in range(count):
        following = cron.after(found[-1] if found else moment)
        assert following is not None
        found.append(following)
    for earlier, later in pairwise(found):
        assert earlier < later
        assert cron.before(later) == earlier
    return [f.astimezone(tz).strftime("%d. %H:%M %z") for f in found]


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        # the clocks jump from 2:00 to 3:00 on the 31st
        ("30 2 * * *", "Europe/Berlin", "2024-03-30 00:00", ["30. 02:30 +0100", "31. 03:00 +0200", "01. 02:30 +0200"]),
        ("0 2,3 * * *", "Europe/Berlin", "2024-03-30 12:00", ["31. 03:00 +0200", "01. 02:00 +0200", "01. 03:00 +0200"]),
        ("30 2,3 * * *", "Europe/Berlin", "2024-03-30 12:00", ["31. 03:00 +0200", "31. 03:30 +0200"]),
        ("*/20 2 * * *", "Europe/Berlin", "2024-03-30 12:00", ["31. 03:00 +0200", "01. 02:00 +0200"]),
        ("0 * * * *", "Europe/Berlin", "2024-03-31 00:30", ["31. 01:00 +0100", "31. 03:00 +0200", "31. 04:00 +0200"]),
        # 3:00 is 2:00 once more on the 27th
        ("30 2 * * *", "Europe/Berlin", "2024-10-26 12:00", ["27. 02:30 +0200", "28. 02:30 +0100"]),
        (
            "*/30 2 * * *",
            "Europe/Berlin",
            "2024-10-26 12:00",
            ["27. 02:00 +0200", "27. 02:30 +0200", "28. 02:00 +0100"],
        ),
        (
            "*/30 * * * *",
            "Europe/Berlin",
            "2024-10-27 01:45",
            ["27. 02:00 +0200", "27. 02:30 +0200", "27. 02:00 +0100", "27. 02:30 +0100", "27. 03:00 +0100"],
        ),
        (
            "0 0-23 * * *",
            "Europe/Berlin",
            "2024-10-27 01:45",
            ["27. 02:00 +0200", "27. 02:00 +0100", "27. 03:00 +0100"],
        ),
        # midnight comes twice, or not at all
        ("0 0 * * *", "America/Havana", "2024-11-02 12:00", ["03. 00:00 -0400", "04. 00:00 -0500"]),
        ("0 0 * * *", "Asia/Beirut", "2024-03-30 12:00", ["31. 01:00 +0300", "01. 00:00 +0300"]),
        # the hour before midnight comes twice: an hour of the day before
        (
            "0 * * * SAT",
            "America/Sao_Paulo",
            "2018-02-17 22:30",
            ["17. 23:00 -0200", "17. 23:00 -0300", "24. 00:00 -0300"],
        ),
        (
            "30 * 10,17 1,2 *",
            "America/Sao_Paulo",
            "2018-02-17 23:00",
            ["17. 23:30 -0200", "17. 23:30 -0300", "10. 00:30 -0200"],
        ),
        ("30 23 * * *", "America/Sao_Paulo", "2018-02-17 12:00", ["17. 23:30 -0200", "18. 23:30 -0300"]),
        # half an hour
        (
            "45 * * * *",
            "Australia/Lord_Howe",
            "2024-04-07 01:15",
            ["07. 01:45 +1100", "07. 01:45 +1030", "07. 02:45 +1030"],
        ),
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-05 12:00", ["06. 02:30 +1100", "07. 02:15 +1100"]),
        # a day that was left out
        ("0 12 * * *", "Pacific/Apia", "2011-12-29 06:00", ["29. 12:00 -1000", "31. 00:00 +1400", "31. 12:00 +1400"]),
        ("30 * 29 2 *", "Europe/Berlin", "2024-02-29 22:45", ["29. 23:30 +0100", "29. 00:30 +0100"]),
    ],
)
def test_changes_of_the_clocks(expression: str, zone: str, start: str, expected: Sequence[str]) -> None:
    assert firings(expression, zone, start, len(expected)) == list(expected)


def test_the_last_firing_before_an_hours_second_pass_lies_in_its_first() -> None:
    """Also where it was named later in the hour than the second pass has come."""
    second_pass = datetime(2024, 10, 27, 1, 10, tzinfo=UTC)  # 2:10 in Berlin, once more
    assert Cron("30 2 * * *", ZoneInfo("Europe/Berlin")).before(second_pass) == second_pass - 40 * MINUTE


@pytest.mark.parametrize(
    "expression", ["0 0 31 2 *", "x * * * *", "* * * *", "0 * * * * *", "*/0 * * * *", "MON#1/2 * * * *"]
)
def test_what_is_no_cron_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"Bad|Wrong"):
        Cron(expression, UTC)


def test_a_schedule_that_never_comes_is_given_up() -> None:
    """On a day of February's that no calendar has: bounded work, and None."""
    for expression in ("0 0 */31 2 MON#5", "0 * */31 2 MON#5"):
        cron = Cron(expression, ZoneInfo("Europe/Berlin"))
        assert cron.after(datetime(2026, 1, 1, tzinfo=UTC)) is None
        assert cron.before(datetime(2026, 1, 1, tzinfo=UTC)) is None


zones = st.sampled_from(
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Havana",
        "America/Sao_Paulo",
        "Australia/Lord_Howe",
        "Asia/Beirut",
        "Asia/Kathmandu",
        "Africa/Casablanca",
        "Pacific/Apia",
        "Antarctica/Troll",
    ]
).map(ZoneInfo)
moments = st.datetimes(datetime(2005, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
minutes = st.sampled_from(["0", "15", "30", "*", "*/20", "59"])


@lru_cache
def _changes(zone: ZoneInfo, year: int) -> list[datetime]:
    """Return the hours of a year in which the zone's offset changes."""
    hours = (datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(366 * 24))
    offsets = [(hour, hour.astimezone(zone).utcoffset()) for hour in hours]
    return [here[0] for here, there in pairwise(offsets) if here[1] != there[1]]


@st.composite
def near_a_change(draw: st.DrawFn) -> tuple[ZoneInfo, datetime]:
    zone = draw(zones)
    changes = _changes(zone, draw(st.integers(2008, 2030))) or [datetime(2024, 1, 1, tzinfo=UTC)]
    return zone, draw(st.sampled_from(changes)) + timedelta(seconds=draw(st.integers(-30 * 3600, 30 * 3600)))


def _shown(zone: ZoneInfo, moment: datetime) -> tuple[int, int]:
    local = moment.astimezone(zone)
    return local.hour, local.minute


@given(near_a_change(), st.sampled_from(["0", "15", "30", "*/20", "59"]))
def test_an_hourly_schedule_fires_exactly_when_the_wall_clock_shows_its_minute(
    where: tuple[ZoneInfo, datetime], minute: str
) -> None:
    """Compared with looking at the clock every minute."""
    zone, start = where
    named = set(range(0, 60, 20)) if minute == "*/20" else {int(minute)}
    cron = Cron(f"{minute} * * * *", zone)
    expected = start.replace(second=0, microsecond=0) + MINUTE
    while _shown(zone, expected)[1] not in named:
        expected += MINUTE
    assert cron.after(start) == expected
    expected = start.replace(second=0, microsecond=0) - (MINUTE if start.second == 0 else timedelta())
    while _shown(zone, expected)[1] not in named:
        expected -= MINUTE
    assert cron.before(start) == expected


@given(near_a_change(), st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))
def test_a_daily_schedule_fires_once_for_every_day_of_the_calendar(
    where: tuple[ZoneInfo, datetime], hour: int, minute: int
) -> None:
    """Never twice, never lost: as many firings as days, and all but those jumped over show the time named."""
    zone, start = where
    cron = Cron(f"{minute} {hour} * * *", zone)
    fired: list[datetime] = []
    while len(fired) < 6:
        following = cron.after(fired[-1] if fired else start)
        assert following is not None
        fired.append(following)
    days = [f.astimezone(zone).date() for f in fired]
    jumped = [f for f in fired if _shown(zone, f) != (hour, minute)]
    assert all((f - MINUTE).astimezone(zone).utcoffset() != f.astimezone(zone).utcoffset() for f in jumped)
    if date(2011, 12, 30) not in [d - timedelta(days=1) for d in days]:  # the day that Samoa left out
        assert days == [days[0] + timedelta(days=n) for n in range(6)]
    assert fired == sorted(set(fired))


@example("0", "1-3", "*", (ZoneInfo("Europe/Berlin"), datetime(2024, 3, 31, 0, 30, tzinfo=UTC)))
@given(
    minutes,
    st.sampled_from(["*", "0", "2", "1-3", "*/2", "0,23"]),
    st.sampled_from(["*", "SUN", "1-5", "MON#2"]),
    near_a_change() | st.tuples(zones, moments),
)
def test_backwards_is_forwards_read_the_other_way(
    minute: str, hour: str, weekday: str, where: tuple[ZoneInfo, datetime]
) -> None:
    zone, start = where
    cron = Cron(f"{minute} {hour} * * {weekday}", zone)
    following = cron.after(start)
    assert following is not None
    assert following > start
    assert cron.after(following - timedelta(microseconds=1)) == following
    previous = cron.before(following)
    assert previous is not None
    assert previous <= start
    assert cron.after(previous) == following
    assert cron.before(start + timedelta(microseconds=1)) == previous
