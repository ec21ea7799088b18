"""When a held attempt is asked again, and when broken waiting has been long enough. Pure."""

from dataclasses import dataclass

__all__ = ["BROKEN_LIMIT_SECONDS", "NextAsk", "next_ask"]

BROKEN_LIMIT_SECONDS = 900.0  # spec: "fails as dispatch_failed once it has waited 15 minutes"


@dataclass(frozen=True, slots=True)
class NextAsk:
    """Asked again at `due` (on the clock of `up`), or failed now."""

    due: float
    failed: bool = False


def next_ask(*, up: float, recheck: float, jitter: float, broken: bool, broken_wait: float) -> NextAsk:
    """Return when a held attempt is asked again (R6.1), or that it has waited broken for too long (R7.2).

    Args:
        up: Seconds of uptime now.
        recheck: Seconds between two asks of one attempt.
        jitter: In [0, 1); up to a tenth of `recheck` is added.
        broken: Its last answer was no decision.
        broken_wait: Seconds it has waited broken, this answer included.

    A broken wait is cut short so that the attempt is asked once more at the limit, and not an hour later.

    Raises:
        ValueError: `jitter` is outside [0, 1).
    """
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter {jitter} is outside [0, 1)")
    wait = recheck * (1 + jitter / 10)
    if not broken:
        return NextAsk(up + wait)
    left = BROKEN_LIMIT_SECONDS - broken_wait
    if left <= 1e-6:  # sums of seconds are not exact
        return NextAsk(up, failed=True)
    return NextAsk(up + min(wait, left))
