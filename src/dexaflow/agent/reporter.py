"""Keeps the server informed while the user's process runs: heartbeats, and the log as it grows."""

import threading
import time
from collections.abc import Callable
from typing import Any

from dexaflow.agent.link import GaveUp, Link, NotAcceptable, TurnedAway
from dexaflow.agent.spool import Spool
from dexaflow.agent.user_process import Stop

__all__ = ["LOG_PART_BYTES", "LOOK_SECONDS", "Reporter", "ship"]

LOG_PART_BYTES = 262_144
_STALLED = 3  # answers in a row that take nothing: it is left for later
LOOK_SECONDS = 1.0  # how old a line may be before it is on its way


def ship(link: Link, spool: Spool, heard: int, left: int, until: threading.Event | None) -> int:
    """Send the log on from `heard`, until at most `left` bytes are not heard. Returns how much is heard.

    Raises:
        TurnedAway, GaveUp: see `Link.call`.
    """
    stalled = 0
    while spool.size - heard > left and stalled < _STALLED:
        part = spool.read(heard, LOG_PART_BYTES)
        if not part:
            break
        try:
            offset = link.call(
                f"/agent/v1/log?offset={heard}",
                part,
                lambda said: int(said["offset"]),
                content_type="application/octet-stream",
                until=until,
            )
        except NotAcceptable:
            return spool.size  # this server takes no log; that must not keep the attempt from ending
        # The server's word counts, also when it has less than it said before; ours bounds it.
        offset = min(max(offset, 0), spool.size)
        stalled = 0 if offset > heard else stalled + 1
        heard = offset
    return heard


class Reporter(threading.Thread):
    """Started when an attempt is not a tiny one. `stop` is set to why the server wants it to end, then `wake` called.

    After `finish` it is joined, and `heard` is how much of the log the server has.
    """

    def __init__(
        self, link: Link, spool: Spool, heartbeat_seconds: float, wake: Callable[[], None], last_heard: float
    ) -> None:
        """Args: `last_heard`: when the server last heard from us, monotonic seconds."""
        super().__init__(name="reporter", daemon=True)
        self._beat_at = last_heard + heartbeat_seconds
        self._link = link
        self._spool = spool
        self._every = heartbeat_seconds
        self._wake = wake
        self._over = threading.Event()
        self.heard = 0
        self.stop: Stop | None = None

    def run(self) -> None:
        """Beat and ship until told to finish, or turned away."""
        try:
            while not self._over.is_set():
                now = time.monotonic()
                if now >= self._beat_at:
                    # Counted from its beginning, so that the server hears from us as often as it asked for.
                    self._beat_at = now + self._every
                    self._beat()
                self.heard = ship(self._link, self._spool, self.heard, 0, self._over)
                self._over.wait(max(0.01, min(LOOK_SECONDS, self._beat_at - time.monotonic())))
        except TurnedAway:
            self._end(Stop("turned away", silent=True))
        except GaveUp:
            pass

    def _beat(self) -> None:
        def understand(said: Any) -> str | None:
            token, stop = said["token"], said.get("stop")
            if (
                not isinstance(token, str)
                or not (token.isascii() and token.isprintable() and token)
                or not (stop is None or isinstance(stop, str))
            ):
                raise ValueError("not an answer to a heartbeat")
            self._link.token = token
            return stop

        try:
            stop = self._link.call("/agent/v1/heartbeat", b"{}", understand, until=self._over)
        except NotAcceptable:
            return
        if stop:
            self._end(Stop(stop))

    def _end(self, stop: Stop) -> None:
        self.stop = stop
        self._wake()

    def finish(self) -> None:
        """Stop reporting; returns once the thread is over and the link is free."""
        self._over.set()
        while self.is_alive():
            self._link.abort()
            self.join(0.1)
