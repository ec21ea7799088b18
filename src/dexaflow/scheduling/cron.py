"""Cron on the clock of a time zone: the moments at which a schedule fires, also across changes of the clocks.

A schedule that names its hours fires once for each time it names: when that time comes twice, the first time;
when the clocks jump over it, at the moment they jump. So a daily job runs once every day, never twice, never not.
A schedule of every hour (``*`` or all 24) fires whenever the wall clock shows a time it names: an hour that comes
twice counts twice, one that does not come does not count. Airflow and Debian's cron draw the line likewise.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError

__all__ = ["Cron"]

_SECOND = timedelta(seconds=1)
_NEAR = timedelta(days=2)  # the clocks change at most once in so long, by a day at most (Samoa, 2011)
_EVERY_HOUR = frozenset(range(24))


class Cron:
    """Five cron fields in a time zone. Immutable; moments in and out are aware, those out are UTC.

    Looks 50 years ahead and back: a schedule that does not come in that time never comes.

    Raises:
        ValueError: The expression is not cron, or names a day that no month has; says which field.
    """

    def __init__(self, expression: str, zone: tzinfo) -> None:
        try:
            if len(expression.split()) != 5:
                raise ValueError("Wrong number of fields")
            hours = CronSim(expression, datetime(2024, 1, 1)).hours  # noqa: DTZ001 - a wall clock has no zone
        except CronSimError as error:
            raise ValueError(str(error)) from None
        self._expression = expression
        self._zone = zone
        self._every_hour = hours == _EVERY_HOUR

    def after(self, moment: datetime) -> datetime | None:
        """Return the first firing strictly after `moment`; None when there is none within 50 years."""
        start = moment.astimezone(UTC).replace(microsecond=0)
        try:
            return self._matching_after(start) if self._every_hour else self._named_after(start)
        except OverflowError:  # the end of the calendar
            return None

    def before(self, moment: datetime) -> datetime | None:
        """Return the last firing strictly before `moment`; None when there is none within 50 years."""
        start = moment.astimezone(UTC)
        try:
            if start.microsecond:
                start = start.replace(microsecond=0) + _SECOND
            return self._matching_before(start) if self._every_hour else self._named_before(start)
        except OverflowError:
            return None

    # Each time the fields name, once.

    def _named_after(self, start: datetime) -> datetime | None:
        for wall in self._walls(_wall(start, self._offset(start)), reverse=False):
            found = self._instant(wall)
            if found > start:  # else: named in an hour that comes twice, whose first time is over
                return found
        return None

    def _named_before(self, start: datetime) -> datetime | None:
        local = start.astimezone(self._zone)
        first_pass = local.replace(fold=0).utcoffset() or timedelta()  # in an hour's second pass, its first is all past
        for wall in self._walls(_wall(start, first_pass), reverse=True):
            found = self._instant(wall)
            if found < start:  # else: jumped over by the clocks, and fired at `start`
                return found
        return None

    # Every moment at which the wall clock shows a time that the fields name.

    def _matching_after(self, start: datetime) -> datetime | None:
        offset = self._offset(start)
        wall = _wall(start, offset)
        while True:
            named = next(self._walls(wall, reverse=False), None)
            if named is None:
                return None
            found = _moment(named, offset)
            horizon = min(found, start + _NEAR)
            if self._offset(horizon) != offset:  # the clocks change first: go on from there, that moment included
                start = self._change(start, horizon)
                offset = self._offset(start)
                wall = _wall(start, offset) - _SECOND
            elif horizon == found:
                return found
            else:  # nothing for days, whatever the clocks do: skip to where it may come
                start = max(horizon, self._instant(named) - _NEAR)
                offset = self._offset(start)
                wall = _wall(start, offset)

    def _matching_before(self, start: datetime) -> datetime | None:
        while True:
            offset = self._offset(start - _SECOND)
            named = next(self._walls(_wall(start, offset), reverse=True), None)
            if named is None:
                return None
            found = _moment(named, offset)
            horizon = max(found, start - _NEAR)
            if self._offset(horizon) != offset:
                start = self._change(horizon, start - _SECOND)
            elif horizon == found:
                return found
            else:
                start = min(horizon, self._instant(named) + _NEAR)

    def _walls(self, wall: datetime, *, reverse: bool) -> Iterator[datetime]:
        return CronSim(self._expression, wall, reverse=reverse)  # without a zone: only the calendar

    def _offset(self, moment: datetime) -> timedelta:
        return moment.astimezone(self._zone).utcoffset() or timedelta()

    def _instant(self, wall: datetime) -> datetime:
        """Return when the wall clock first shows `wall`, or when it jumps over it."""
        local = wall.replace(tzinfo=self._zone)
        moment = local.astimezone(UTC)
        if moment.astimezone(self._zone).replace(tzinfo=None) == wall:
            return moment
        return self._change(_moment(wall, local.replace(fold=1).utcoffset() or timedelta()), moment)

    def _change(self, low: datetime, high: datetime) -> datetime:
        """Return the moment in (`low`, `high`] at which the zone's offset changes; there is one."""
        offset = self._offset(low)
        while high - low > _SECOND:
            middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
            low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
        return high


def _wall(moment: datetime, offset: timedelta) -> datetime:
    return moment.replace(tzinfo=None) + offset


def _moment(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)
