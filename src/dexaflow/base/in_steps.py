"""Work in steps: what may take many milliseconds in one thread, done so that others get their turn meanwhile.

Such work is a generator that yields, with nothing to say, wherever somebody else may go on, and returns its result.
"""

import asyncio
from collections.abc import Generator
from typing import TypeVar

__all__ = ["Steps", "Turns", "at_once"]

T = TypeVar("T")

Steps = Generator[None, None, T]


def at_once(work: Steps[T]) -> T:
    """Do all of it, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


class Turns:
    """Does works on the event loop, which serves others after each step.

    One work at a time: however many there are, the loop does one step of them between two of its callbacks.
    """

    __slots__ = ("_one",)

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def do(self, work: Steps[T]) -> T:
        """Do it when its turn comes, and return its result."""
        async with self._one:
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                await asyncio.sleep(0)
