"""How long a token lives, on a clock that neither jumps nor runs while nobody could have renewed it."""

from dataclasses import dataclass
from datetime import datetime

from dexaflow.base.clock import Clock

__all__ = ["AUDIENCE", "ISSUER", "LIFETIME_SECONDS", "Outage", "SteadyTime"]

ISSUER = "dexaflow"
AUDIENCE = "dexaflow/agent"
LIFETIME_SECONDS = 600.0  # many heartbeats long; short beside the time a leaked one would be of use


class SteadyTime:
    """Wall-clock seconds as of the start of this process, moved on by the monotonic clock.

    A wall clock set an hour forward must not end the tokens of all running tasks at once, nor one set back keep a
    leaked one alive. Processes that start on either side of such a jump disagree; `Outage` covers a restart of Lite.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.now().timestamp() - clock.monotonic()

    def seconds(self) -> float:
        """Seconds since 1970."""
        return self._offset + self._clock.monotonic()


@dataclass(frozen=True, slots=True)
class Outage:
    """The last time in which no control plane was up: agents outlive it (R10.3), so their tokens must.

    A token that had not run out when it began is good for `LIFETIME_SECONDS` after it ended.
    """

    began: datetime  # aware; when the control plane before this one was last known to be up
    ended: datetime  # aware; when this one began to answer

    def excuses(self, expires: float, now: float) -> bool:
        """Whether a token that ran out at `expires` is still good at `now`; both seconds since 1970."""
        return expires >= self.began.timestamp() and now < self.ended.timestamp() + LIFETIME_SECONDS
