"""Running code of a hook's author while a server starts: whatever it raises is one line, and Ctrl-C still ends us."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from dexaflow.admission.hook_errors import place_of
from dexaflow.base.text import shown, without_user_info

__all__ = ["ForeignError", "run_foreign"]

T = TypeVar("T")


class ForeignError(Exception):
    """Foreign code raised; ``str()`` says what and where, in one line, and ``cause`` is what it raised.

    The user info of a URL is left out: clients of databases say with which one they failed (R2.4).
    """

    def __init__(self, cause: BaseException) -> None:
        try:
            text = shown(" ".join(without_user_info(str(cause)[:3_000]).split())[:300])
        except BaseException:  # noqa: BLE001 - foreign code once more
            text = "its text cannot be shown"
        said = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
        place = "" if isinstance(cause, SyntaxError) else place_of(cause)  # that one says itself where it is
        super().__init__(f"{said} ({shown(place)})" if place else said)
        self.cause = cause


def run_foreign(work: Callable[[], T]) -> T:
    """Return what `work` does.

    Raises:
        ForeignError: whatever it raised, `SystemExit` and a `KeyboardInterrupt` of its own included.
        KeyboardInterrupt: somebody pressed Ctrl-C meanwhile.
    """
    ctrl_c = _CtrlC()
    try:
        with ctrl_c:
            return work()
    except BaseException as error:
        if ctrl_c.pressed:
            raise
        raise ForeignError(error) from error


class _CtrlC:
    """Tells somebody's Ctrl-C from a `KeyboardInterrupt` that foreign code raises by itself, within its context."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None  # Any: as the signal module has it

    def __enter__(self) -> None:
        # Signals come to the main thread alone; None is a handler that Python could not put back.
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) not in (None, signal.SIG_IGN):
            self._before = signal.signal(signal.SIGINT, self._press)

    def __exit__(self, *_: object) -> None:
        if self._before is not None and signal.getsignal(signal.SIGINT) == self._press:  # else they have set their own
            signal.signal(signal.SIGINT, self._before)
        self._before = None

    def _press(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        raise KeyboardInterrupt
