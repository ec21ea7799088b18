"""Daemon threads that are reused, and that nobody waits for: foreign and blocking code runs here.

A thread that never comes back costs its memory, and neither the event loop, nor another job, nor the end of the
process (`concurrent.futures` joins its threads at exit, and so would wait for ever).
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

__all__ = ["DaemonExecutor", "DaemonThreads", "in_thread"]

T = TypeVar("T")

IDLE_SECONDS: Final = 30.0  # a thread that has had nothing to do for so long ends


class DaemonThreads:
    """Runs each job at once, in an idle thread or a new one. Bounded by whoever hands out the jobs.

    Args:
        name: Of the threads, for a debugger.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle = 0  # threads that wait for a job and have not been promised one
        self._closed = False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self, job: Callable[[], None]) -> None:
        """Run `job`, which must not raise.

        Raises:
            RuntimeError: no thread can be started.
        """
        with self._lock:
            reuse = self._idle > 0
            if reuse:
                self._idle -= 1
        if reuse:
            self._jobs.put(job)
        else:
            threading.Thread(target=self._work, args=(job,), name=self._name, daemon=True).start()

    def close(self) -> None:
        """Let the idle threads end, and the others after their job. Later jobs still run, each in a new thread."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._jobs.put(None)

    def _work(self, job: Callable[[], None] | None) -> None:
        while job is not None:
            job()
            job = None  # what it holds on to may go
            with self._lock:
                if self._closed:
                    return
                self._idle += 1
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._idle:
                        self._idle -= 1
                        return
                job = self._jobs.get()  # promised to one of us just now


async def in_thread(threads: DaemonThreads, work: Callable[[], T]) -> T:
    """Return or raise what `work` does, run in a thread. Cancelled, it leaves the thread to itself.

    Raises:
        RuntimeError: no thread can be started.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[T | None, BaseException | None]] = loop.create_future()

    def job() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (work(), None)
        except BaseException as error:  # noqa: BLE001 - carried over to whoever waits
            outcome = (None, error)
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            pass  # the loop is closed: nobody waits

    def settle(outcome: tuple[T | None, BaseException | None]) -> None:
        if not ended.done():
            ended.set_result(outcome)

    threads.run(job)
    value, error = await ended
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # None only where T allows it


class DaemonExecutor(ThreadPoolExecutor):
    """The executor of a hook's own event loop: `asyncio.to_thread` and name look-ups end up here.

    A `ThreadPoolExecutor` in name, since asyncio asks for one; in deed its threads are daemons, for the reason above.
    """

    def __init__(self, threads: DaemonThreads) -> None:
        super().__init__(max_workers=1)  # starts no thread until its own `submit` is called, which is replaced
        self._daemons = threads

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> ThreadFuture[T]:
        """Run `fn` in a daemon thread. Any: the arguments of foreign code."""
        future: ThreadFuture[T] = ThreadFuture()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - foreign code, carried over to whoever waits
                future.set_exception(error)
            else:
                future.set_result(result)

        self._daemons.run(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nobody."""
        self._daemons.close()
