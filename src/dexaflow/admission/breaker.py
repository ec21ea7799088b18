"""The breaker of one hook, as a value (R7.4).

Closed, it lets every question through. After `FAILURES_TO_OPEN` failures in a row it is open: nothing is asked for
`OPEN_SECONDS`. Then it is half-open: one question, the probe, is let through; its success closes the breaker, its
failure opens it for as long again. Whoever asks takes a `Ticket` first and settles it in the end, whatever the end.

An epoch tells questions apart: opening starts a new one, and a ticket of an older epoch settles to nothing, since
an answer to a question put before the breaker opened says nothing about now.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = [
    "FAILURES_TO_OPEN",
    "OPEN_SECONDS",
    "PROBE_LOST_SECONDS",
    "Breaker",
    "BreakerState",
    "End",
    "Ticket",
    "breaker_state",
    "is_open",
    "probe_due",
    "retry_at",
    "settle",
    "take_ticket",
]

FAILURES_TO_OPEN: Final = 5  # spec, "When the endpoint is broken"
OPEN_SECONDS: Final = 30.0  # ditto
# A probe that was never settled must not keep the breaker half-open for good. A question takes 30 s at most, and
# waits for a connection no longer than the questions before it take; what is older than both was lost.
PROBE_LOST_SECONDS: Final = 90.0


class End(StrEnum):
    """How a question ended."""

    ANSWERED = "answered"  # with a decision: a hold, a refuse and a change that may not be made are success
    FAILED = "failed"
    CANCELLED = "cancelled"  # by the asker: neither success nor failure


class BreakerState(StrEnum):
    """What a breaker does with the next question."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """One hook's breaker. Times are monotonic seconds; `Breaker()` is a closed one."""

    epoch: int = 0
    failures: int = 0  # in a row
    opened_at: float | None = None  # None: closed
    probe_since: float | None = None  # when the probe that is out took its ticket


class Ticket(NamedTuple):
    """The right to put one question; to be settled exactly once."""

    epoch: int
    probe: bool = False


def is_open(breaker: Breaker) -> bool:
    """Return whether the breaker has opened and no success has closed it since; half-open counts as open."""
    return breaker.opened_at is not None


def retry_at(breaker: Breaker) -> float | None:
    """Return the moment from which the next probe may be taken, None while the breaker is closed.

    While a probe is out this is when it would count as lost; its own end usually comes first.
    """
    if breaker.opened_at is None:
        return None
    if breaker.probe_since is not None:
        return breaker.probe_since + PROBE_LOST_SECONDS
    return breaker.opened_at + OPEN_SECONDS


def probe_due(breaker: Breaker, now: float) -> bool:
    """Return whether a probe may be taken at `now`."""
    due = retry_at(breaker)
    return due is not None and now >= due


def breaker_state(breaker: Breaker, now: float) -> BreakerState:
    """Return the breaker's state at `now`, in the words of its field."""
    if breaker.opened_at is None:
        return BreakerState.CLOSED
    if breaker.probe_since is not None or now >= breaker.opened_at + OPEN_SECONDS:
        return BreakerState.HALF_OPEN
    return BreakerState.OPEN


def take_ticket(breaker: Breaker, now: float) -> tuple[Breaker, Ticket | None]:
    """Return the breaker with a ticket taken, and the ticket; None when nothing may be asked."""
    if breaker.opened_at is None:
        return breaker, Ticket(breaker.epoch)
    if not probe_due(breaker, now):
        return breaker, None
    # A new epoch for each probe: one that was given up as lost must not settle in its successor's name.
    taken = replace(breaker, epoch=breaker.epoch + 1, probe_since=now)
    return taken, Ticket(taken.epoch, probe=True)


def settle(breaker: Breaker, ticket: Ticket, end: End, now: float) -> Breaker:
    """Return the breaker after one question has ended."""
    if ticket.epoch != breaker.epoch:
        return breaker
    match end:
        case End.CANCELLED:
            return replace(breaker, probe_since=None) if ticket.probe else breaker
        case End.ANSWERED:
            return Breaker(epoch=breaker.epoch + ticket.probe) if breaker.failures else breaker
        case End.FAILED:
            failures = breaker.failures + 1
            if ticket.probe or failures >= FAILURES_TO_OPEN:
                return Breaker(epoch=breaker.epoch + 1, failures=failures, opened_at=now)
            return replace(breaker, failures=failures)
