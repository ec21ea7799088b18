"""What a function must look like to be a hook, as far as that can be told without calling it (R8.1)."""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol

from dexaflow.admission.decisions import Decision, Request

__all__ = ["Hook", "HookFunction", "Reviewer", "is_async", "shape_problem"]

MAX_SHOWN_CHARACTERS: Final = 80  # of the names of a function's parameters

HookFunction = Callable[[Request], Decision | Awaitable[Decision]]


class Reviewer(Protocol):
    """An object that is a hook by a method of this name, async or plain."""

    @property
    def review(self) -> HookFunction:
        """Decide about one request."""
        ...


Hook = HookFunction | Reviewer


def shape_problem(function: Callable[..., Any]) -> tuple[str, str] | None:
    """Return what is wrong with a hook's function, and what to do; None when nothing is, or nobody can tell.

    What hides its parameters (`*args`, a decorator, C code) is given the benefit of the doubt.

    Args:
        function: Whatever somebody gave as a hook, hence Any; it is not called.
    """
    parts = _parts(function)
    if any(inspect.isasyncgenfunction(part) for part in parts):
        return "is an async generator function: it has a `yield`", "have it return its decision"
    # `types.coroutine` makes something that can be awaited of a generator function.
    if any(inspect.isgeneratorfunction(part) and not _can_be_awaited(part) for part in parts):
        return "is a generator function: it has a `yield`", "have it return its decision"
    try:
        # Its own, and not that of what a decorator wraps: that one may be given more than this one gets.
        signature = inspect.signature(function, follow_wrapped=False)
    except (Exception, SystemExit):  # noqa: BLE001 - Python knows none, or code of theirs was asked for it
        return None
    try:
        signature.bind(None)
    except TypeError:
        return f"takes {_named(signature)}", "have it take one argument, the request"
    return None


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether a call of it gives a coroutine."""
    return any(inspect.iscoroutinefunction(part) for part in _parts(function))


def _parts(function: Any) -> tuple[Any, Any]:
    """Return a function and its `__call__`, which of an object is looked up on its class, as the call itself does."""
    while isinstance(function, partial):
        function = function.func
    return function, getattr(type(function), "__call__", None)  # noqa: B004 - its kind is asked, not whether it is there


def _can_be_awaited(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def _named(signature: inspect.Signature) -> str:
    """Return the parameters by name alone: their defaults are foreign, and would be run to be shown."""
    by_keyword = inspect.Parameter.KEYWORD_ONLY
    names = ", ".join(f"{p.name}=" if p.kind is by_keyword else p.name for p in signature.parameters.values())
    if len(names) > MAX_SHOWN_CHARACTERS:
        names = f"{names[:MAX_SHOWN_CHARACTERS]}..."
    return f"({names})" if names else "no argument"
