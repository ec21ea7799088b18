"""Times and durations as people read them, in the zone of whoever reads."""

from datetime import UTC, datetime

from dexaflow.base.text import shown

__all__ = ["ago", "dated", "full", "local_now", "short", "span", "until"]


def local_now() -> datetime:
    """Return the time now, aware, in the local zone."""
    return datetime.now(UTC).astimezone()


def short(moment: str | None, now: datetime) -> str:
    """Return the API's `moment` as the clock shows it here: ``18:02:17`` today, else with its date; "-" for none."""
    found = _read(moment)
    if found is None:
        return shown(moment or "-")
    return found.strftime("%H:%M:%S" if found.date() == now.astimezone().date() else "%Y-%m-%d %H:%M")


def dated(moment: str | None) -> str:
    """Return the API's `moment` to the minute, with its date always: what a run is for; "-" for none."""
    found = _read(moment)
    return shown(moment or "-") if found is None else found.strftime("%Y-%m-%d %H:%M")


def full(moment: str | None) -> str:
    """Return the API's `moment` with date, time and zone; "-" for none."""
    found = _read(moment)
    return shown(moment or "-") if found is None else found.strftime("%Y-%m-%d %H:%M:%S %Z").rstrip()


def until(moment: str | None, now: datetime) -> str:
    """Return how far off `moment` is: ``in 12 s``; ``now`` when it is past or has no meaning."""
    found = _read(moment)
    seconds = 0.0 if found is None else (found - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 0.5 else "now"


def ago(moment: str | None, now: datetime) -> str:
    """Return how long ago `moment` was: ``3m12s``; "-" for none."""
    found = _read(moment)
    return "-" if found is None else span(max(0.0, (now - found).total_seconds()))


def span(seconds: float | None) -> str:
    """Return a duration in its two largest units; "-" for none.

    ``12 ms``, ``3.2 s``, ``59 s``, ``2m05s``, ``3h12m``, ``2d04h``.
    """
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for name, size, below_name, below_size in (("d", 86_400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{name}{whole % size // below_size:02}{below_name}"
    raise AssertionError("above 60 seconds there are minutes")


def _read(moment: str | None) -> datetime | None:
    try:
        found = None if moment is None else datetime.fromisoformat(moment)
        return None if found is None else found.astimezone()
    except (ValueError, OverflowError):
        return None
