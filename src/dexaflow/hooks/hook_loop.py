"""An event loop of a hook's own, in a daemon thread: where async hooks run."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from dexaflow.hooks.threads import DaemonExecutor, DaemonThreads

__all__ = ["HookLoop"]

_log = structlog.get_logger("dexaflow.hooks")

Work = Callable[[], Coroutine[Any, Any, None]]  # Any: what a coroutine of asyncio yields is asyncio's affair


class HookLoop:
    """Runs coroutines that never raise, all on one event loop, for one hook.

    Its methods are for the control plane's event loop, which never waits for this one. Work that has been handed in and
    not begun can be taken back: that is how the rest gets away from a call that blocks the loop.

    Raises:
        RuntimeError: no thread can be started.
    """

    def __init__(self, name: str, threads: DaemonThreads) -> None:
        self._hook = name
        self._inbox: deque[tuple[object, Work]] = deque()  # taken from either end of the thread border, atomically
        self._woken = False
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._ending = False
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonExecutor(threads))
        thread = threading.Thread(target=self._run, name="dexaflow-hook-loop", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._loop.close()
            raise

    def submit(self, key: object, work: Work) -> None:
        """Begin `work()` as soon as the loop gets round to it."""
        self._inbox.append((key, work))
        # Many calls, one wake-up. Appended first: whoever clears the flag looks into the inbox afterwards.
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._begin)

    def take_back(self) -> list[tuple[object, Work]]:
        """Take out everything that has not begun."""
        taken = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._inbox.popleft())
        return taken

    def withdraw(self, key: object) -> bool:
        """Take out one piece of work; False when it has begun, or has been here never."""
        for item in list(self._inbox):
            if item[0] is key:
                with contextlib.suppress(ValueError):
                    self._inbox.remove(item)
                    return True
        return False

    def oldest(self) -> object | None:
        """Return the key of the work that has waited longest to begin."""
        try:
            return self._inbox[0][0]
        except IndexError:
            return None

    @property
    def ended(self) -> bool:
        """Whether its thread is done."""
        return self._loop.is_closed()

    def cancel(self, key: object) -> None:
        """Cancel work that has begun."""
        self._tell(lambda: self._cancel(key))

    def retire(self) -> None:
        """End once what has begun is done."""
        self._tell(self._end_when_done)

    def stop(self) -> None:
        """Cancel what runs, and end. Waits for nothing."""
        self._tell(self._end)

    def _tell(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(what)

    # In the thread

    def _begin(self) -> None:
        self._woken = False
        with contextlib.suppress(IndexError):
            while True:
                key, work = self._inbox.popleft()
                task = self._loop.create_task(work())
                self._tasks[key] = task
                task.add_done_callback(partial(self._done, key))

    def _done(self, key: object, _: asyncio.Task[None]) -> None:
        if self._tasks.pop(key, None) is not None and self._ending and not self._tasks:
            self._loop.stop()

    def _cancel(self, key: object) -> None:
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()

    def _end_when_done(self) -> None:
        self._ending = True
        if not self._tasks:
            self._loop.stop()

    def _end(self) -> None:
        self._ending = True
        self._tasks.clear()
        self._loop.stop()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        while not self._ending or self._tasks:
            try:
                loop.run_forever()  # returns early if the hook stops the loop, which is not its to stop
            except BaseException as error:  # noqa: BLE001 - SystemExit in a task that the hook has begun, say
                _log.warning("hook_loop_interrupted", hook=self._hook, cause=type(error).__name__)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        # What ignores that keeps this thread, and nobody else. Closed under it, the loop would only complain.
        while left := asyncio.all_tasks(loop):
            with contextlib.suppress(BaseException):  # foreign code once more, and nobody to tell
                loop.run_until_complete(asyncio.wait(left))
        with contextlib.suppress(BaseException):
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
