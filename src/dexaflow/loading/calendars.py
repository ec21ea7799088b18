"""What only a calendar can tell about a schedule: whether its fields, its days and its time zone exist."""

from datetime import datetime

from cronsim import CronSim, CronSimError

from dexaflow.authoring.options import zone_of
from dexaflow.model import dag_rules as rules

__all__ = ["schedule_problem"]

_FIELDS = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, or L for the last"),
    ("month", "1 to 12, or JAN to DEC"),
    ("day of the week", "0 to 7 (0 and 7 are Sunday), or SUN to SAT"),
)
_START = datetime(2024, 1, 1)  # noqa: DTZ001 - the calendar alone, on no clock


def schedule_problem(schedule: str | None, timezone: str) -> str:
    """Return what is wrong with a schedule and its time zone and what to do about it, in one line; "" for nothing.

    A schedule that never comes ("0 0 31 2 *") is wrong too: the calendar is looked through for 50 years.
    """
    try:
        zone_of(timezone)
    except rules.RuleError as error:
        return f"timezone {error}"
    try:
        fields = rules.cron(schedule)
    except rules.RuleError as error:
        return f"schedule {error}"
    if fields is None or fields == rules.ONCE:
        return ""
    expression = rules.PRESETS.get(fields, fields)
    for place, (field, (name, allowed)) in enumerate(zip(expression.split(), _FIELDS, strict=True)):
        try:
            CronSim(" ".join(field if i == place else "*" for i in range(len(_FIELDS))), _START)
        except (CronSimError, ValueError):  # of digits without end Python makes no number
            how = f"write {allowed}, or *; lists (,), ranges (-) and steps (/) of them"
            return f"schedule {rules.shown(schedule)}: there is no {name} {rules.shown(field)}; {how}"
    try:
        next(CronSim(expression, _START))
    except (CronSimError, StopIteration, OverflowError, ValueError):
        return f"schedule {rules.shown(schedule)} never comes; name a day that one of its months has"
    return ""
