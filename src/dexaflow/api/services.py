"""What the routes work with, handed to each of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

import anyio.to_thread
from fastapi import Request

from dexaflow.api.ports import Commands, Health, LogReader, SleepingWatch, Watch
from dexaflow.store.reading import Reader

__all__ = ["MAX_PAGE", "Services", "asked_by"]

P = ParamSpec("P")
T = TypeVar("T")

MAX_PAGE = 250  # rows of one page, whatever is asked for: a page of the largest rows still fits into memory
MAX_READERS = 4  # threads that read at once; the reading side of the database has as many connections
MAX_STREAMS = 64  # runs watched at once


@dataclass(slots=True)
class Services:
    """The rest of the control plane, as the API sees it.

    `stopping` is set by whoever stops the server: streams end, so that the shutdown does not wait for their readers.
    """

    reader: Reader
    commands: Commands
    logs: LogReader
    health: Callable[[], Health]
    metrics: Callable[[], bytes]
    watch: Watch = field(default_factory=SleepingWatch)
    streams: int = 0
    stopping: bool = False
    _limiter: anyio.CapacityLimiter | None = None

    async def read(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a synchronous reading method in one of a few threads."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MAX_READERS)
        return await anyio.to_thread.run_sync(partial(method, *args, **kwargs), limiter=self._limiter)


def asked_by(request: Request) -> str:
    """Return who asks, as they say it in `X-Dexaflow-User`; "api" when they do not.

    Whoever has the token may say any name: it explains a run's note to colleagues and gives no right.
    """
    name = "".join(c for c in request.headers.get("x-dexaflow-user", "") if c.isprintable()).strip()
    return name[:64] or "api"
