"""Errors that come back for as long as a trouble lasts, such as a full disk: the log on that disk does not repeat them.

Whoever tries again until it works says its failures through a `Troubles`, not to the log itself.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dexaflow.observe.logs import get_logger

__all__ = ["Troubles"]

FIRST_SECONDS, LONGEST_SECONDS = 5.0, 60.0  # until the same error is said again; doubled each time
MOST_CAUSES = 20  # of one event told apart at once: a cause that is never the same twice is a flood as well


@dataclass(slots=True)
class _Trouble:
    say: Callable[..., None]  # at its level
    pause: float
    times: int = 0  # since it was last said
    fields: dict[str, Any] | None = None  # of the latest


class Troubles:
    """Says an error or a warning at once, and while it comes back after 5, 10, 20, 40 and then every 60 seconds.

    Such a line has the latest one's fields, and in `times` how often it came since it was last said. The same is what
    has the same event and cause, whomever it concerns. An error that has not come back meanwhile is news again. For the
    thread of a running event loop.
    """

    def __init__(self, logger: str) -> None:
        """Args: `logger` is the name of its owner's module."""
        self._log = get_logger(logger)
        self._going_on: dict[tuple[str, str], _Trouble] = {}

    def error(self, event: str, *, cause: str, **fields: Any) -> None:
        """Say that something failed and is tried again."""
        self._say(self._log.error, event, cause, fields)

    def warning(self, event: str, *, cause: str, **fields: Any) -> None:
        """Say that something went wrong that others will try again."""
        self._say(self._log.warning, event, cause, fields)

    def _say(self, say: Callable[..., None], event: str, cause: str, fields: dict[str, Any]) -> None:
        key = event, cause
        if key not in self._going_on and sum(known == event for known, _ in self._going_on) >= MOST_CAUSES:
            key = event, ""
        fields["cause"] = cause
        trouble = self._going_on.get(key)
        if trouble is not None:
            trouble.times += 1
            trouble.fields = fields
            return
        say(event, **fields)
        trouble = self._going_on[key] = _Trouble(say, FIRST_SECONDS)
        asyncio.get_running_loop().call_later(trouble.pause, self._look_again, key)

    def _look_again(self, key: tuple[str, str]) -> None:
        trouble = self._going_on[key]
        if trouble.fields is None:
            del self._going_on[key]
            return
        trouble.say(key[0], **trouble.fields, times=trouble.times)
        trouble.times, trouble.fields = 0, None
        trouble.pause = min(LONGEST_SECONDS, 2 * trouble.pause)
        asyncio.get_running_loop().call_later(trouble.pause, self._look_again, key)
