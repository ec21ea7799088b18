"""What is wrong in an author's file, and the line where the author wrote it."""

import sys
from collections.abc import Iterator
from types import FrameType

from dexaflow.base.errors import DagError

__all__ = ["AuthoringError", "NoAttributeError", "Place", "call_place", "owner_place", "refused"]

Place = tuple[str, int]  # file as Python knows it, line


class AuthoringError(DagError):
    """A DAG, a task or a dependency cannot be as written. ``file`` is the path as Python loaded it."""


class NoAttributeError(AuthoringError, AttributeError):
    """An attribute of what is not there yet; to `hasattr` and its like it says no, as any other."""


def refused(cause: str, place: Place | None = None) -> AuthoringError:
    """Return the error to raise, blamed on `place`, by default on the line of the author's that called us."""
    file, line = place or call_place()
    return AuthoringError(file, line, cause)


def call_place() -> Place:
    """Return the file and line of the innermost frame that is not this package's."""
    for frame in _author_frames():
        return frame.f_code.co_filename, frame.f_lineno
    return "", 0


def owner_place() -> Place:
    """Return the file that is being imported, and the line in it that led here.

    A DAG belongs to the file whose top level made it, also when a function of another file did so on its behalf; a
    file that is imported by another keeps its own DAGs.
    """
    frames = list(_author_frames())
    for frame in frames:
        file = frame.f_code.co_filename
        if frame.f_code.co_name == "<module>" and not file.startswith("<"):
            return file, next(f.f_lineno for f in frames if f.f_code.co_filename == file)
    return call_place()


def _author_frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("dexaflow.authoring"):
            yield frame
        frame = frame.f_back
