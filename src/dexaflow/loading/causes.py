"""What went wrong in a DAG file, as one line for its author. Runs in the loading process, next to foreign code."""

import errno
import os
from collections.abc import Iterator
from types import TracebackType

from dexaflow.base.errors import DagError
from dexaflow.base.text import shown

__all__ = ["MAX_CAUSE_CHARS", "cause_of", "one_line"]

MAX_CAUSE_CHARS = 500


def cause_of(error: BaseException, root: str, path: str, source: bytes, limits: str) -> tuple[int, str]:
    """Return the line of the DAG file (0: unknown) and the cause.

    The line is that of the DAG file itself; where a local module raised, the cause names its place.

    Args:
        root, path: Of the folder and of the DAG file, absolute.
        source: The bytes of the DAG file, as far as they were read.
        limits: What to say about the limits when one of them was hit.
    """
    frames = list(_places(error.__traceback__))
    line = next((number for file, number in reversed(frames) if file == path), 0)
    local = [(file, number) for file, number in frames if file.startswith(root + os.sep)]
    place = local[-1] if local else (path, line)
    text = _text(error, limits)
    if isinstance(error, DagError):
        text, place = error.cause, (error.file, error.line)
    elif isinstance(error, SyntaxError) and isinstance(error.filename, str):
        text, place = f"{type(error).__name__}: {error.msg}", (error.filename, error.lineno or 0)
    if place[0] == path:
        line = place[1]
    elif place[0].startswith(root + os.sep):
        text += f" ({place[0][len(root) + 1 :]}, line {place[1]})"
    if not line and isinstance(error, SyntaxError | ValueError) and b"\0" in source:
        line = source[: source.index(b"\0")].count(b"\n") + 1
    return line, one_line(text)


def _places(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _text(error: BaseException, limits: str) -> str:
    name = type(error).__name__
    if isinstance(error, SystemExit):
        return "calls sys.exit() while it is loaded; a DAG file must run to its end"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in (errno.EFBIG, errno.ENOMEM)):
        return f"{name}: hits a limit of loading: {limits}; move the work into a task"
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - the exception's class is foreign code
        message = "(its message cannot be shown)"
    return f"{name}: {message}" if message else name


def one_line(text: str) -> str:
    """Return `text` as one line of printable characters, cut to `MAX_CAUSE_CHARS`."""
    words = " ".join(text[: MAX_CAUSE_CHARS * 8].split())
    clean = shown(words)
    return clean if len(clean) <= MAX_CAUSE_CHARS else clean[: MAX_CAUSE_CHARS - 3] + "..."
