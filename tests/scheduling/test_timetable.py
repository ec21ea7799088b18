"""Issue, "The DAG author": schedule (cron with a time zone, or none), start date, `catchup` off by default."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexaflow.loading.calendars import schedule_problem
from dexaflow.model.dag_rules import PRESETS
from dexaflow.scheduling.timetable import ScheduledRun, Timetable

DAY = timedelta(days=1)


def at(text: str) -> datetime:
    """Return a moment written like "2026-03-01 06:30", in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOW = at("2026-03-10 12:00")


def daily(catchup: bool = False, start: str | None = "2026-03-01 00:00", since: str | None = None) -> Timetable:
    return Timetable(
        "0 6 * * *", "UTC", None if start is None else at(start), catchup, since=None if since is None else at(since)
    )


def logical(run: ScheduledRun | None) -> datetime | None:
    return None if run is None else run.logical_date


def test_a_run_is_made_when_the_schedule_fires_and_its_interval_reaches_back_to_the_firing_before() -> None:
    run = daily().next_run(at("2026-03-10 06:00"), NOW)
    fires = at("2026-03-11 06:00")
    assert run == ScheduledRun(fires, at("2026-03-10 06:00"), fires, fires)


def test_moments_are_utc_whatever_the_time_zone() -> None:
    run = Timetable("0 6 * * *", "Asia/Kolkata", at("2026-03-01 00:00"), False).next_run(None, at("2026-03-01 00:00"))
    assert run is not None
    assert run.logical_date == at("2026-03-01 00:30")
    assert run.logical_date.tzinfo is UTC


def test_without_catchup_the_latest_missed_firing_is_made_up_and_only_once() -> None:
    """As Airflow: after downtime, unpausing or a start date long gone, one run, then the next in the future."""
    first = daily().next_run(None, NOW)
    assert logical(first) == at("2026-03-10 06:00")
    assert logical(daily().next_run(logical(first), NOW)) == at("2026-03-11 06:00")
    assert logical(daily().next_run(at("2026-03-05 06:00"), NOW)) == at("2026-03-10 06:00")


def test_with_catchup_every_firing_since_the_start_date_is_made_in_order() -> None:
    made, last = [], None
    while (run := daily(catchup=True).next_run(last, NOW)) is not None and run.run_after <= NOW:
        last = run.logical_date
        made.append(last)
    assert made == [at(f"2026-03-{day:02} 06:00") for day in range(1, 11)]


@pytest.mark.parametrize("catchup", [True, False])
def test_nothing_is_made_before_the_start_date(catchup: bool) -> None:
    table = daily(catchup, start="2026-03-20 06:00")
    assert logical(table.next_run(None, NOW)) == at("2026-03-20 06:00")  # a firing at the start date counts
    assert logical(table.next_run(at("2026-03-09 06:00"), NOW)) == at("2026-03-20 06:00")  # it was moved ahead
    assert logical(daily(catchup, start="2026-03-20 06:00:01").next_run(None, NOW)) == at("2026-03-21 06:00")


@pytest.mark.parametrize("catchup", [True, False])
def test_a_firing_at_this_very_moment_is_due(catchup: bool) -> None:
    now = at("2026-03-10 06:00")
    assert logical(daily(catchup).next_run(now - DAY, now)) == now
    assert logical(daily(catchup).next_run(now - 3 * DAY, now)) == (now - 2 * DAY if catchup else now)


@pytest.mark.parametrize("catchup", [True, False])
def test_without_a_start_date_the_schedule_begins_when_the_dag_was_registered(catchup: bool) -> None:
    table = daily(catchup, start=None, since="2026-03-10 11:00")
    assert logical(table.next_run(None, NOW)) == at("2026-03-11 06:00")
    later = at("2026-03-14 00:00")  # it was paused meanwhile
    assert logical(table.next_run(None, later)) == at("2026-03-11 06:00" if catchup else "2026-03-13 06:00")


def test_without_any_beginning_the_schedule_begins_now() -> None:
    assert logical(Timetable("0 6 * * *").next_run(None, NOW)) == at("2026-03-11 06:00")


def test_a_dag_without_schedule_makes_no_runs() -> None:
    assert Timetable(None, "UTC", at("2026-01-01 00:00"), True).next_run(None, NOW) is None


def test_once_comes_once_at_the_start_date() -> None:
    start = at("2026-03-20 06:07")
    assert Timetable("@once", "UTC", start).next_run(None, NOW) == ScheduledRun(start, start, start, start)
    assert Timetable("@once", "UTC", start).next_run(start, NOW) is None
    assert logical(Timetable("@once", since=NOW).next_run(None, NOW + DAY)) == NOW


@pytest.mark.parametrize(
    ("preset", "fires"),
    [
        ("@hourly", "2026-03-10 13:00"),
        ("@daily", "2026-03-11 00:00"),
        ("@midnight", "2026-03-11 00:00"),
        ("@weekly", "2026-03-15 00:00"),
        ("@monthly", "2026-04-01 00:00"),
        ("@quarterly", "2026-04-01 00:00"),
        ("@yearly", "2027-01-01 00:00"),
        ("@annually", "2027-01-01 00:00"),
    ],
)
def test_presets_are_airflows(preset: str, fires: str) -> None:
    assert preset in PRESETS
    assert schedule_problem(preset, "Europe/Berlin") == ""
    assert logical(Timetable(preset, since=NOW + timedelta(seconds=1)).next_run(None, NOW)) == at(fires)


def test_a_clock_that_went_back_makes_no_run_twice() -> None:
    """An hour back: the latest run lies ahead, and the next is the one after it."""
    assert logical(daily().next_run(at("2026-03-11 06:00"), NOW)) == at("2026-03-12 06:00")


@pytest.mark.parametrize(
    ("schedule", "timezone", "says"),
    [
        ("0 0 0 * * *", "UTC", "five cron fields: seconds cannot be scheduled"),
        ("0 0 31 2 *", "UTC", "never comes; name a day"),
        ("0 0 30,31 2 *", "UTC", "never comes; name a day"),
        ("0 0 31 4,6,9,11 *", "UTC", "never comes; name a day"),
        ("0 0 */31 2 MON#5", "Europe/Berlin", "never comes; name a day"),  # the first, a fifth Monday
        ("60 * * * *", "UTC", "there is no minute '60'; write 0 to 59,"),
        ("* 24 * * *", "UTC", "there is no hour '24'; write 0 to 23,"),
        ("* * 32 2 *", "UTC", "there is no day of the month '32'; write 1 to 31,"),
        ("* * * 13 *", "UTC", "there is no month '13'; write 1 to 12,"),
        ("* * * * 8", "UTC", "there is no day of the week '8'; write 0 to 7"),
        ("5-1 * * * *", "UTC", "there is no minute '5-1'"),
        ("*/0 * * * *", "UTC", "minute"),
        (f"{'9' * 5000} * * * *", "UTC", "there is no minute '999"),
        ("@fortnightly", "UTC", "@daily"),
        ("@reboot", "UTC", "@daily"),
        ("every day", "UTC", "five cron fields"),
        ("", "UTC", "five cron fields"),
        ("0 6 * *", "UTC", "five cron fields"),
        ("0 6 * * *", "Europe/Atlantis", "timezone 'Europe/Atlantis'"),
        (None, "", "timezone"),
        ("0 6 * * *", "../../etc/passwd", "timezone"),
        ("0 6 * * *", "Europe", "timezone"),
        ("0 6 * * *", "UTC\0", "timezone"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_and_if_there_all_the_same_never_comes(
    schedule: str | None, timezone: str, says: str
) -> None:
    """One impossible schedule is its author's problem and nobody else's: it neither hangs nor raises in the loop."""
    problem = schedule_problem(schedule, timezone)
    assert says in problem
    assert "\n" not in problem
    assert len(problem) < 400
    assert Timetable(schedule, timezone, at("2026-01-01 00:00"), True).next_run(None, NOW) is None


@pytest.mark.parametrize(
    "schedule", [None, "@once", "*/5 * * * *", "0 0 29 2 *", "0 0 L * *", "0 9 * * MON#1", "0 0 31 2 1"]
)
def test_a_schedule_that_can_be_is_accepted(schedule: str | None) -> None:
    """The last one is every Monday of February: cron takes either day when both are named."""
    assert schedule_problem(schedule, "America/New_York") == ""


def test_a_leap_day_is_found_across_the_century() -> None:
    run = Timetable("0 0 29 2 *", since=at("2096-03-01 00:00")).next_run(None, at("2096-03-01 00:00"))
    assert run is not None
    assert (run.logical_date, run.data_interval_start) == (at("2104-02-29 00:00"), at("2096-02-29 00:00"))


@pytest.mark.parametrize("start", [datetime.max, datetime.min])  # noqa: DTZ901 - UTC is added below
@pytest.mark.parametrize("schedule", ["@yearly", "@hourly", "@once", "* * * * *"])
@pytest.mark.parametrize("timezone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"])
def test_the_ends_of_the_calendar_are_no_error(start: datetime, schedule: str, timezone: str) -> None:
    for catchup in (True, False):
        table = Timetable(schedule, timezone, start.replace(tzinfo=UTC), catchup)
        for last, now in ((None, NOW), (NOW, NOW), (None, start.replace(tzinfo=UTC))):
            run = table.next_run(last, now)
            assert run is None or run.data_interval_start <= run.data_interval_end == run.run_after


def test_a_moment_without_time_zone_is_a_mistake_of_the_caller() -> None:
    naive = datetime(2026, 3, 1)  # noqa: DTZ001 - what is tested
    with pytest.raises(ValueError, match="no time zone"):
        Timetable("@daily", "UTC", naive)
    with pytest.raises(ValueError, match="no time zone"):
        Timetable("@daily").next_run(naive, NOW)
    with pytest.raises(ValueError, match="no time zone"):
        Timetable("@daily").next_run(None, naive)


schedules = st.one_of(
    st.sampled_from(["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "*/7 * * * *", "30 2 * * *", "0 0 29 2 *"]),
    st.builds(
        "{} {} * * {}".format,
        st.sampled_from(["0", "30", "*/20", "5,35"]),
        st.sampled_from(["*", "2", "1-3", "*/6", "0,23"]),
        st.sampled_from(["*", "1-5", "0", "SAT#2"]),
    ),
)
zones = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Beirut"]
)
moments = st.datetimes(datetime(2015, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds


@given(schedules, zones, moments, st.booleans(), st.lists(st.floats(0, 400 * 86_400.0), min_size=1, max_size=12))
def test_runs_only_go_forward_and_none_comes_twice_however_time_passes(
    schedule: str, zone: str, start: datetime, catchup: bool, waits: list[float]
) -> None:
    """Asked again after each run and each wait, year-long ones too."""
    table = Timetable(schedule, zone, start, catchup)
    now, last = start, None
    for wait in waits:
        run = table.next_run(last, now)
        assert run is not None
        assert run.logical_date >= start
        assert last is None or run.logical_date > last
        assert run.data_interval_start < run.data_interval_end == run.logical_date == run.run_after
        if catchup and last is not None:
            assert run.data_interval_start == last  # intervals lie end to end
        if run.run_after <= now:
            last = run.logical_date
            if not catchup:
                later = table.next_run(last, now)
                assert later is not None
                assert later.run_after > now  # one makes up for all that were missed
        else:
            assert table.next_run(last, run.run_after) == run  # it is still that one when its time comes
        now += timedelta(seconds=wait)


@given(zones, moments)
def test_the_wall_clock_of_the_zone_shows_the_hour_that_was_named(zone: str, start: datetime) -> None:
    run = Timetable("15 12 * * *", zone, start, True).next_run(None, start)
    assert run is not None
    local = run.logical_date.astimezone(ZoneInfo(zone))
    assert (local.hour, local.minute, local.second, local.microsecond) == (12, 15, 0, 0)


_FIELD = st.text("0123456789*/,-LMONSU#", min_size=1, max_size=6)


@settings(max_examples=150)
@given(st.lists(_FIELD, min_size=5, max_size=5).map(" ".join) | st.text(max_size=30))
def test_whatever_is_written_as_schedule_comes_or_is_refused_in_a_line(schedule: str) -> None:
    """Nothing in between: a schedule that registration takes makes runs."""
    problem = schedule_problem(schedule, "UTC")
    comes = Timetable(schedule, "UTC", at("2026-01-01 00:00"), True).next_run(None, NOW) is not None
    assert comes == (problem == "")
    assert len(problem.splitlines()) == len(problem[:1])
