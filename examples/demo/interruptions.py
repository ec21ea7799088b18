"""Somebody ends the demo before its end: Ctrl-C, a CI's time-out, a terminal that is closed."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

__all__ = ["Interrupted", "Interruptions"]


class Interrupted(BaseException):
    """A signal says to stop. No `Exception`: nothing on the way takes it for a failure of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interruptions:
    """Makes of the first SIGTERM, SIGINT or SIGHUP an `Interrupted` in the main thread; later ones say nothing new.

    Signals that the demo was started to ignore (`nohup`) are ignored.
    """

    def __init__(self) -> None:
        self._held_back = False
        self._arrived: int | None = None
        self._over = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._arrive)

    @contextlib.contextmanager
    def held_back(self) -> Iterator[None]:
        """Within this none is raised, but at its end: what is begun here is known to whoever has to end it."""
        self._held_back = True
        try:
            yield
        finally:
            self._held_back = False
            if self._arrived is not None:
                self._raise(self._arrived)

    def ignore(self) -> None:
        """From here on none is raised."""
        self._over = True

    def _arrive(self, number: int, _: FrameType | None) -> None:
        if self._held_back:
            self._arrived = number
        else:
            self._raise(number)

    def _raise(self, number: int) -> None:
        if not self._over:
            self._over = True
            raise Interrupted(number)
