"""What an exception out of a hook is called in a log: what it says, and the line of the hook that it came from."""

from typing import Final

from dexaflow.base.text import without_user_info

__all__ = ["described", "place_of"]

MAX_CAUSE_CHARACTERS: Final = 500
_MOST_READ: Final = 4 * MAX_CAUSE_CHARACTERS
_NOT_ITS_AUTHORS: Final = frozenset({__name__.partition(".")[0], "importlib"})


def described(error: BaseException) -> str:
    """Return an exception in one text: type, message, and the hook's line that it came from. Never raises.

    The user info of a URL is left out: clients of databases say with which one they failed.
    """
    text = "an exception that cannot be described"
    try:
        text = type.__dict__["__name__"].__get__(type(error))  # a class of its own kind may have other ideas
        text = without_user_info(f"{text}: {error}"[:_MOST_READ])[:MAX_CAUSE_CHARACTERS]
    except BaseException:  # noqa: BLE001 - foreign code: one that cannot be printed
        pass
    place = place_of(error)
    return f"{text} ({place})" if place else text


def place_of(error: BaseException) -> str:
    """Return file and line of the innermost frame that is not ours, "" if there is none. Never raises.

    Its author can do nothing about a line of `admit()`, nor of the machinery that imports a module; nor about one that
    is in no file (`<string>`, a dataclass's own methods), unless there is no other.
    """
    try:
        return _place_of(error)
    except BaseException:  # noqa: BLE001 - foreign code: one that has no such place
        return ""


def _place_of(error: BaseException) -> str:
    place = made_up = ""
    trace = error.__traceback__
    while trace is not None:
        frame, line = trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _NOT_ITS_AUTHORS:
            continue
        if frame.f_code.co_filename.startswith("<"):
            made_up = f"{frame.f_code.co_filename}:{line}"
        else:
            place = f"{frame.f_code.co_filename}:{line}"
    return place or made_up
