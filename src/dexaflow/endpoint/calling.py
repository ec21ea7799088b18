"""Calling the hook: async ones on the loop, plain ones in threads, none past its deadline."""

import asyncio
import contextvars
import inspect
import threading
import time
from dataclasses import replace

from dexaflow.admission.decisions import Admit, Decision, Hold, Refuse, Request, not_a_decision
from dexaflow.admission.hook_errors import described
from dexaflow.admission.hook_shape import Hook, HookFunction, is_async, shape_problem

__all__ = ["HookCalls", "HookFailed"]


MAX_THREADS = 64  # the control plane has 16 connections; a few of it may share one endpoint


class HookFailed(Exception):  # noqa: N818 - the spec's word
    """The hook gave no decision; the message is for the log, `busy` when it may well next time."""

    def __init__(self, message: str, *, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy


class HookCalls:
    """Calls one hook, many times at once.

    Args:
        hook: An async or a plain function, or an object whose `__call__` or `review` is one.
        timeout: Seconds that a call may take; the request's `deadline` says when they end.

    Raises:
        TypeError: it is none of them, does not take a request, or gives no decision (a generator).
    """

    def __init__(self, hook: Hook, *, timeout: float) -> None:
        function = hook if callable(hook) else getattr(hook, "review", None)
        if isinstance(hook, type) or not callable(function):
            raise TypeError(f"{hook!r} is not a hook; give a function, or an object with a method `review`")
        wrong = shape_problem(function)
        if wrong:
            problem, fix = wrong
            raise TypeError(f"{hook!r} {problem}; {fix}")
        self._hook: HookFunction = function
        self._timeout = timeout
        self._is_async = is_async(function)
        self._threads = 0

    async def decide(self, request: Request) -> Decision:
        """Return the hook's decision.

        Raises:
            HookFailed: it raised (`SystemExit` included), returned something else, or passed the deadline. The
                exception it raised is the `__cause__`.
        """
        request = replace(request, deadline=time.monotonic() + self._timeout)
        scope = asyncio.timeout(self._timeout)
        try:
            async with scope:
                answer = await self._answer(request)
        except HookFailed:
            raise
        except TimeoutError as error:
            if scope.expired():
                raise HookFailed(f"it did not return within {self._timeout:g}s", busy=True) from None
            raise _raised(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _raised(error) from error  # the hook's own: nobody cancelled us
        except BaseException as error:  # foreign code: SystemExit must not stop the endpoint
            raise _raised(error) from error
        if not isinstance(answer, Admit | Hold | Refuse):
            raise HookFailed(not_a_decision(answer))
        return answer

    async def _answer(self, request: Request) -> object:
        answer: object
        if self._is_async:
            answer = self._hook(request)
        else:
            answer = await self._in_thread(request)
        if inspect.isawaitable(answer):  # also of a plain function that hands out a coroutine
            answer = await answer
        return answer

    async def _in_thread(self, request: Request) -> object:
        """Call the hook in a daemon thread of its own, so that one which never returns cannot keep the process."""
        if self._threads >= MAX_THREADS:
            raise HookFailed(f"{MAX_THREADS} calls have not returned yet", busy=True)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()

        def ended(answer: object, error: BaseException | None) -> None:
            self._threads -= 1
            if done.done():
                return  # given up meanwhile
            if error is None:
                done.set_result(answer)
            elif isinstance(error, StopIteration):
                done.set_exception(RuntimeError("the hook raised StopIteration"))  # a future cannot carry it
            else:
                done.set_exception(error)

        def work() -> None:
            answer: object = None
            failure: BaseException | None = None
            try:
                answer = context.run(self._hook, request)
            except BaseException as error:  # noqa: BLE001 - foreign code: all of it goes back to the one who asked
                failure = error
            try:
                loop.call_soon_threadsafe(ended, answer, failure)
            except RuntimeError:
                pass  # the loop has been closed: nobody asks any more

        self._threads += 1
        threading.Thread(target=work, name="dexaflow-endpoint-hook", daemon=True).start()
        return await done


def _raised(error: BaseException) -> HookFailed:
    return HookFailed(f"it raised {described(error)}")
