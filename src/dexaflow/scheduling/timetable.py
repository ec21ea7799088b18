"""When the schedule makes runs: one run after the other, from values alone.

A run is made when the schedule fires: its logical date is that moment, its data interval reaches back to the firing
before. Firings missed (the server was down, the DAG was paused, its start date lies back) are made up as Airflow
does: with `catchup` each of them, in order; without it the latest one only, and once.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from dexaflow.authoring.options import zone_of
from dexaflow.model import dag_rules as rules
from dexaflow.scheduling.cron import Cron

__all__ = ["ScheduledRun", "Timetable"]


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """One run that the schedule asks for. All in aware UTC."""

    logical_date: datetime  # when the schedule fires
    data_interval_start: datetime  # the firing before; the logical date itself when there is none
    data_interval_end: datetime  # the logical date
    run_after: datetime  # the logical date: the run may begin from then on


@dataclass(frozen=True, slots=True)
class Timetable:
    """A DAG's schedule: None, five cron fields, a preset or ``@once``, read on the clock of `timezone`.

    `start_date`: no run has a logical date before it. Without one, `since` (when the DAG was registered) takes its
    place, and where that is not given either, the `now` of each question. All aware.

    A schedule or time zone that is wrong never comes: it was refused when the DAG was registered, and
    if it is here all the same (time zone data were removed), the other DAGs' schedules must go on.

    Raises:
        ValueError: A moment has no time zone.
    """

    schedule: str | None
    timezone: str = "UTC"
    start_date: datetime | None = None
    catchup: bool = False
    since: datetime | None = None
    _cron: Cron | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        for moment in (self.start_date, self.since):
            _aware(moment)
        if self.schedule is None or self.schedule == rules.ONCE:
            return
        try:
            cron = Cron(rules.PRESETS.get(self.schedule, self.schedule), zone_of(self.timezone))
        except ValueError:
            return
        object.__setattr__(self, "_cron", cron)

    def next_run(self, last: datetime | None, now: datetime) -> ScheduledRun | None:
        """Return the run to make next: at once when its `run_after` has come, else then. None: never again.

        Without `catchup` the answer depends on `now`, since the latest missed firing wins: ask again when making it.

        Args:
            last: Logical date of the latest scheduled run; None when there has been none.
            now: The time.
        """
        _aware(last)
        _aware(now)
        first = (self.start_date or self.since or now).astimezone(UTC)
        if self.schedule == rules.ONCE:
            return ScheduledRun(first, first, first, first) if last is None else None
        if self._cron is None:
            return None
        fires = _at_or_after(self._cron, first)
        if last is not None and fires is not None and fires <= last:
            fires = self._cron.after(last)
        if not self.catchup and fires is not None and fires < now:
            fires = max(fires, _at_or_before(self._cron, now) or fires)
        if fires is None:
            return None
        return ScheduledRun(fires, self._cron.before(fires) or fires, fires, fires)


def _aware(moment: datetime | None) -> None:
    if moment is not None and moment.utcoffset() is None:
        raise ValueError(f"{moment.isoformat()} has no time zone")


def _at_or_after(cron: Cron, moment: datetime) -> datetime | None:
    try:
        return cron.after(moment - datetime.resolution)
    except OverflowError:  # the beginning of the calendar
        return cron.after(moment)


def _at_or_before(cron: Cron, moment: datetime) -> datetime | None:
    try:
        return cron.before(moment + datetime.resolution)
    except OverflowError:
        return cron.before(moment)
