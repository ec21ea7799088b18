"""Hooks in process: foreign code, run where it can hurt nobody (R8).

Plain hooks run in daemon threads, async ones on an event loop of their own in such a thread; the control plane's event
loop only ever hands a call over and is told of its end. So the one who asks stops waiting at the deadline whatever the
hook does. A call that does not come back cannot be ended from outside, only counted: at eight of them the hook is
broken without being called, until one comes back.

All calls of an async hook share one event loop, so that its clients, locks and counters work as their author expects. A
call that blocks that loop, instead of awaiting, is noticed when others cannot begin: they move to a new loop. Those
that had begun beside it are stuck with it.
"""

import asyncio
import contextlib
import sys
import time
from functools import partial
from typing import Final

import structlog

from dexaflow.admission.decisions import Request
from dexaflow.admission.hook_shape import Hook, is_async
from dexaflow.admission.ports import Answered, NotPut
from dexaflow.base.errors import HookBroken
from dexaflow.hooks.calls import Call, Failure, Outcome, Returns, ToAwait, let_go, run_async, run_plain, sealed
from dexaflow.hooks.hook_loop import HookLoop
from dexaflow.hooks.naming import hook_function, hook_name
from dexaflow.hooks.tenant_queue import TenantQueue
from dexaflow.hooks.threads import DaemonThreads

__all__ = ["MAX_ABANDONED", "InProcessCaller"]

MAX_ABANDONED: Final = 8  # R8.3
MAX_AT_ONCE: Final = 16  # calls of one hook; more wait their turn, as for the webhook's connections
CANCEL_SECONDS: Final = 0.1  # an async call that was cancelled may take so long before a line is logged about it
STALL_SECONDS: Final = 0.05  # a hook's event loop that has begun nothing for so long, at least, is blocked
# Python's own 5 ms, times the number of threads that want to run, is what a hook that computes without a pause makes
# the control plane's event loop wait, again and again. This is a tenth of it, and costs nothing while nobody computes.
SWITCH_SECONDS: Final = 0.0005

_log = structlog.get_logger("dexaflow.hooks")


class InProcessCaller:
    """Asks one hook in process (a `HookCaller`).

    Args:
        hook: A plain or an async function, or an object whose `__call__` or `review` is one.
        timeout: Seconds a call may take. The request that the hook gets carries the deadline.

    Raises:
        ConfigError: it is not a hook, or has no name.
    """

    def __init__(self, hook: Hook, *, timeout: float) -> None:
        self._function = hook_function(hook)
        self._name = hook_name(hook)
        self._timeout = timeout
        self._patience = max(STALL_SECONDS, timeout / 4)
        self._is_async = is_async(self._function)
        self._threads = DaemonThreads("dexaflow-hook")
        self._loop: HookLoop | None = None  # where async calls begin
        self._retired: list[HookLoop] = []
        self._returns: Returns | None = None
        self._running = 0  # begun, neither returned nor abandoned
        self._abandoned = 0
        self._waiting = TenantQueue[Call]()
        self._stall_check: asyncio.TimerHandle | None = None
        if sys.getswitchinterval() > SWITCH_SECONDS:
            sys.setswitchinterval(SWITCH_SECONDS)

    @property
    def name(self) -> str:
        """The hook's name in metrics, records and messages (R8.1)."""
        return self._name

    @property
    def abandoned(self) -> int:
        """Calls that have passed their deadline and not returned (R8.3)."""
        return self._abandoned

    async def ask(self, request: Request) -> Answered:
        """Put one question. See `HookCaller.ask`."""
        loop = asyncio.get_running_loop()
        if self._returns is None or self._returns.loop is not loop:
            self._returns = Returns(loop, self._returned)
        call = Call(request, loop)
        if self._running < MAX_AT_ONCE or self._abandoned >= MAX_ABANDONED:
            self._begin(call)
        else:
            self._waiting.append(request.tenant_id, call)
        try:
            outcome = await call.answer
        finally:
            if not call.ended:  # cancelled
                self._give_up(call)
        if isinstance(outcome, HookBroken | NotPut):
            raise outcome
        return outcome

    def withdraw(self) -> None:
        """Give up the questions that wait for a thread. See `Paced`."""
        while self._waiting:
            self._settle(self._waiting.popleft(), NotPut())

    async def close(self) -> None:
        """Let threads and event loops end. Nobody waits for calls that run: async ones are cancelled, others left."""
        self._threads.close()
        for hook_loop in (*self._retired, *([self._loop] if self._loop else [])):
            hook_loop.stop()
        self._retired.clear()
        self._loop = None
        if self._stall_check is not None:
            self._stall_check.cancel()

    # On the control plane's event loop

    def _begin(self, call: Call) -> None:
        if self._abandoned >= MAX_ABANDONED:
            self._settle(call, HookBroken(f"not called: {self._abandoned} calls have not returned", seconds=0.0))
            return
        call.started = time.monotonic()
        call.request = sealed(call.request, call.started + self._timeout)
        call.timer = call.answer.get_loop().call_later(self._timeout, self._out_of_time, call)
        self._running += 1
        returns = self._returns
        assert returns is not None
        try:
            if self._is_async:
                self._begin_async(call, None)
            else:
                self._threads.run(partial(run_plain, self._name, self._function, call, returns))
        except RuntimeError as error:  # no thread to be had
            self._returned(call, Failure(f"it could not be called: {error}"))

    def _begin_async(self, call: Call, given: ToAwait | None) -> None:
        if self._loop is None:
            self._loop = HookLoop(self._name, self._threads)
        returns = self._returns
        assert returns is not None
        call.where = self._loop
        call.handed_in = time.monotonic()
        self._loop.submit(call, partial(run_async, self._name, self._function, call, given, returns))
        if self._stall_check is None:
            self._look_again_in(self._patience)

    def _look_again_in(self, seconds: float) -> None:
        self._stall_check = asyncio.get_running_loop().call_later(seconds, self._look_for_a_stall)

    def _look_for_a_stall(self) -> None:
        """See whether the call that was handed in first has waited long; if so, its loop is blocked."""
        self._stall_check = None
        stalled = self._loop
        oldest = stalled.oldest() if stalled is not None else None
        if stalled is None or oldest is None:
            return
        assert isinstance(oldest, Call)
        left = oldest.handed_in + self._patience - time.monotonic()
        if left > 0:
            self._look_again_in(left)
        else:
            self._move_on(stalled)

    def _move_on(self, stalled: HookLoop) -> None:
        """Begin what could not begin on a blocked loop, and all later calls, on a new one."""
        moved = stalled.take_back()
        stalled.retire()
        self._retired = [*(retired for retired in self._retired if not retired.ended), stalled]
        self._loop = None
        _log.warning("hook_blocks_its_event_loop", hook=self._name, moved=len(moved))
        try:
            self._loop = HookLoop(self._name, self._threads)
        except RuntimeError as error:
            for key, _ in moved:
                assert isinstance(key, Call)
                self._returned(key, Failure(f"it could not be called: {error}"))
            return
        for key, work in moved:
            assert isinstance(key, Call)
            key.where, key.handed_in = self._loop, time.monotonic()
            self._loop.submit(key, work)
        if moved and self._stall_check is None:
            self._look_again_in(self._patience)

    def _returned(self, call: Call, outcome: Outcome) -> None:
        """The hook is out of a call, or has returned something to await."""
        if isinstance(outcome, ToAwait):
            given, outcome = outcome, Failure("nobody waits")
            if not call.ended:
                try:
                    self._begin_async(call, given)
                    return
                except RuntimeError as error:
                    outcome = Failure(f"it could not be called: {error}")
            with contextlib.suppress(RuntimeError):  # no thread to be had
                self._threads.run(partial(let_go, given))
        call.returned = True
        if call.abandoned:
            self._abandoned -= 1
            if call.complained:
                seconds = round(time.monotonic() - call.started, 3)
                _log.info("hook_call_returned_late", hook=self._name, seconds=seconds)
            return
        self._running -= 1
        if call.timer is not None:
            call.timer.cancel()
        if not call.ended:
            seconds = time.monotonic() - call.started
            if isinstance(outcome, Failure):
                self._settle(call, HookBroken(outcome.cause, seconds=seconds))
            else:
                self._settle(call, Answered(outcome, seconds))
        self._next()

    def _out_of_time(self, call: Call) -> None:
        if self._returns is not None:
            self._returns.take()  # it may have returned while this event loop was busy
        if call.returned:
            return
        left = call.started + self._timeout - time.monotonic()
        if left > 0.0005:  # uvloop counts from the beginning of its turn
            call.timer = call.answer.get_loop().call_later(left, self._out_of_time, call)
            return
        if not call.ended:
            cause = f"it did not return within {self._timeout:g}s"
            self._settle(call, HookBroken(cause, timed_out=True, seconds=self._timeout - left))
        self._running -= 1
        if call.where is not None and call.where.withdraw(call):
            call.returned = True  # it never began, in all that time
            if call.where is self._loop:
                self._move_on(call.where)
        else:
            self._abandon(call)
        self._next()

    def _abandon(self, call: Call) -> None:
        call.abandoned = True
        self._abandoned += 1
        if call.where is None:
            self._log_abandoned(call)
        else:
            call.where.cancel(call)
            call.answer.get_loop().call_later(CANCEL_SECONDS, self._log_abandoned, call)

    def _log_abandoned(self, call: Call) -> None:
        if not call.returned:
            call.complained = True
            _log.warning(
                "hook_call_does_not_return", hook=self._name, not_returned=self._abandoned, at_most=MAX_ABANDONED
            )

    def _give_up(self, call: Call) -> None:
        """The asker was cancelled. The call goes on, and keeps its turn until it returns or its time is over."""
        call.ended = True
        if not call.started:
            self._waiting.remove(call.request.tenant_id, call)
        elif call.where is not None:
            if call.where.withdraw(call):
                self._returned(call, Failure("cancelled"))
            else:
                call.where.cancel(call)

    def _settle(self, call: Call, outcome: Answered | HookBroken | NotPut) -> None:
        call.ended = True
        if not call.answer.done():
            call.answer.set_result(outcome)

    def _next(self) -> None:
        while self._waiting and (self._running < MAX_AT_ONCE or self._abandoned >= MAX_ABANDONED):
            self._begin(self._waiting.popleft())
