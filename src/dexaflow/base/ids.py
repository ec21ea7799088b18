"""Identifiers. Time and chance are passed in, so that a seed gives the same ids."""

from collections.abc import Callable
from typing import Final

__all__ = ["RandomIds", "TimeOrderedIds"]

_DRAW_IDS: Final = 64  # at once: the system is asked once for so many


class RandomIds:
    """Draws UUIDs of version 4 (RFC 9562), as text; from any thread.

    Args:
        random_bytes: Returns so many bytes that nobody can foresee, as `os.urandom` does.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._drawn: list[str] = []

    def __call__(self) -> str:
        while True:
            try:
                return self._drawn.pop()
            except IndexError:  # asked for forgiveness: two threads may find the last one, and one of them none
                drawn = self._random_bytes(16 * _DRAW_IDS).hex()
                self._drawn.extend(_version_4(drawn[at : at + 32]) for at in range(0, len(drawn), 32))


class TimeOrderedIds:
    """Draws UUIDs of version 7 (RFC 9562), as text: each sorts behind the one before it, whatever the clock does.

    For what is written under its id: rows that are made together lie together in the database, so that a transaction
    about a hundred of them writes few pages.

    Args:
        unix_ms: Milliseconds since 1970.
        random_bytes: As for `RandomIds`.
    """

    def __init__(self, unix_ms: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._unix_ms = unix_ms
        self._random = RandomIds(random_bytes)
        self._last = 0  # 48 bits of time, then 12 that count within a millisecond

    def __call__(self) -> str:
        # Two threads at once may draw the same 60 bits: chance tells their ids apart, as it does between processes.
        self._last = last = max(self._unix_ms() << 12, self._last + 1)
        digits = f"{last:015x}"
        return f"{digits[:8]}-{digits[8:12]}-7{digits[12:]}-{self._random()[19:]}"


def _version_4(digits: str) -> str:
    """Return 32 hexadecimal digits as a UUID, the six bits of version and variant set."""
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
