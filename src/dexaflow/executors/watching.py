"""Learning of the end of a process that is nobody's child here: an agent from before a restart."""

import asyncio
import os
from collections.abc import Callable

from dexaflow.agent.processes import birth

__all__ = ["Watching"]

_LOOK_SECONDS = 0.25  # where the kernel cannot tell us


class Watching:
    """Calls back once when a process ends; on the event loop."""

    def __init__(self) -> None:
        self._stops: dict[object, Callable[[], None]] = {}

    def watch(self, pid: int, born: str, ended: Callable[[], None]) -> None:
        """Call `ended` once that very process has ended; soon if it has already."""
        loop = asyncio.get_running_loop()
        if birth(pid) != born:
            loop.call_soon(ended)
        elif hasattr(os, "pidfd_open"):
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                loop.call_soon(ended)
                return
            if birth(pid) != born:  # between the look and the handle
                os.close(handle)
                loop.call_soon(ended)
                return
            self._by_handle(handle, ended)
        else:
            self._by_looking(pid, born, ended)

    def _by_handle(self, handle: int, ended: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        key = object()

        def stop() -> None:
            loop.remove_reader(handle)
            os.close(handle)

        def readable() -> None:
            self._stops.pop(key)()
            ended()

        self._stops[key] = stop
        loop.add_reader(handle, readable)

    def _by_looking(self, pid: int, born: str, ended: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        key = object()

        def look() -> None:
            if birth(pid) == born:
                self._stops[key] = loop.call_later(_LOOK_SECONDS, look).cancel
            else:
                self._stops.pop(key)
                ended()

        self._stops[key] = loop.call_later(_LOOK_SECONDS, look).cancel

    def close(self) -> None:
        """Watch nothing any more."""
        for stop in self._stops.values():
            stop()
        self._stops.clear()
