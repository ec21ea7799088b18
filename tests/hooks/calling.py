"""What the tests of hooks in process have in common. Any: their hooks are of every kind, the wrong ones too."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from dexaflow.admission.decisions import Request
from dexaflow.hooks.inprocess import InProcessCaller
from tests.hooks.asking import LONG

__all__ = ["Kind", "Named", "both", "caller_of", "in_async"]


class Named:
    """A hook with a name, whatever it does."""

    name = "policy:under_test"

    def __init__(self, function: Any) -> None:
        self.review = function


@contextlib.asynccontextmanager
async def caller_of(hook: Any, timeout: float = LONG) -> AsyncIterator[InProcessCaller]:
    """Give what calls the hook."""
    caller = InProcessCaller(Named(hook), timeout=timeout)
    try:
        yield caller
    finally:
        await caller.close()


def in_async(function: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Any]]:
    """The same as an async hook."""

    async def hook(request: Request) -> Any:
        answer = function(request)
        return await answer if asyncio.iscoroutine(answer) else answer

    return hook


both = pytest.mark.parametrize("kind", [lambda function: function, in_async], ids=["plain", "async"])
Kind = Callable[[Any], Any]
