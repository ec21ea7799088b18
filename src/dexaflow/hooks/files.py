"""The CA bundle and the token: read at boot, and again when they change (R2.3).

A mounted file of Kubernetes changes by the swap of a symlink above it, others by a rename or in place; all of them show
in what `stat` says of the path. A thread of its own looks, about once a second, so that a file system which hangs holds
up nobody. A file that cannot be used any more leaves the last good content in use, and says so.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import structlog

from dexaflow.base.errors import ConfigError

__all__ = ["CHECK_SECONDS", "FileWatch", "WatchedFile", "token_in"]

T = TypeVar("T")

CHECK_SECONDS: Final = 0.9
SETTLED_SECONDS: Final = 2.0  # a file written more recently may be written again without a new time stamp
MAX_BUNDLE_BYTES: Final = 4_194_304  # a bundle of every public CA has a quarter of a megabyte
MAX_TOKEN_BYTES: Final = 16_384  # more than a server takes in one header

_log = structlog.get_logger("dexaflow.hooks")


def token_in(content: bytes) -> str:
    """Return the bearer token in a file's content, one trailing line end dropped (R2.3).

    Raises:
        ValueError: it is empty, or would break a header; the message never holds any of it.
    """
    if content.endswith(b"\r\n"):
        content = content[:-2]
    elif content.endswith(b"\n"):
        content = content[:-1]
    if not content:
        raise ValueError("it is empty")
    if len(content) > MAX_TOKEN_BYTES:
        raise ValueError(f"it has more than {MAX_TOKEN_BYTES} bytes")
    if not all(0x21 <= byte <= 0x7E for byte in content):
        raise ValueError("it holds blanks, line ends or other bytes that would break a header")
    return content.decode("ascii")


_Mark = tuple[int, int, int, int, int]


def _mark(found: os.stat_result) -> _Mark:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class WatchedFile(Generic[T]):
    """One file of the configuration, and what was last read from it.

    `value` is the last good content, `stale` whether the file has changed into something that cannot be used; both may
    be read from any thread.

    Args:
        key: The configuration key that names it, for messages.
        path: Never quoted when `secret`: people put the secret itself in its place.
        parse: Makes the value of the content; raises `ValueError` with a message that holds none of it.
        fix: What to do about a file that cannot be used.

    Raises:
        ConfigError: it cannot be used now.
    """

    def __init__(
        self, key: str, path: Path, parse: Callable[[bytes], T], *, fix: str, max_bytes: int, secret: bool = False
    ) -> None:
        self.key = key
        self.stale = False
        self._path = path
        self._parse = parse
        self._max_bytes = max_bytes
        self._named = "" if secret else f" '{path}'"
        self._seen: _Mark | None = None
        self._complaint: tuple[_Mark | None, str] | None = None
        try:
            self._content, self._seen = self._read()
            self.value = parse(self._content)
        except (OSError, ValueError) as error:
            raise ConfigError(key, f"the file{self._named} cannot be used: {_said(error)}", fix) from None

    def refresh(self) -> bool:
        """Read the file again if it may have changed; return whether `value` is another one. Never raises."""
        mark: _Mark | None = None
        try:
            mark = _mark(os.stat(self._path))
            if mark == self._seen:
                return False
            content, seen = self._read()
            if content == self._content:
                changed = False  # also when it came back after having been unusable
            else:
                value = self._parse(content)
                self._content, self.value, changed = content, value, True
        except (OSError, ValueError) as error:
            self._complain(mark, _said(error))
            return False
        self._seen = seen
        if self.stale or changed:
            _log.info("file_reloaded", key=self.key)
        self.stale, self._complaint = False, None
        return changed

    def _complain(self, mark: _Mark | None, cause: str) -> None:
        self.stale = True
        self._seen = None  # look again next time: it may have been half written
        if self._complaint != (mark, cause):
            self._complaint = (mark, cause)
            _log.error("file_not_reloaded", key=self.key, cause=cause, effect="the last good content stays in use")

    def _read(self) -> tuple[bytes, _Mark | None]:
        """Return the content and what to know it by; None while a change might not show."""
        # Not blocking: a pipe in the file's place must not wait for a writer.
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode):
                raise ValueError("it is not a file")
            content = file.read(self._max_bytes + 1)
            after = os.fstat(descriptor)
        if len(content) > self._max_bytes:
            raise ValueError(f"it has more than {self._max_bytes} bytes")
        age = time.time() - after.st_ctime
        settled = _mark(before) == _mark(after) and not 0 <= age < SETTLED_SECONDS
        return content, _mark(after) if settled else None


class FileWatch:
    """Looks at files about once a second, in a thread that nobody waits for.

    Args:
        changed: Called in that thread, with the file, after its `value` has become another one.
    """

    def __init__(self, files: Sequence["Watched"], changed: Callable[["Watched"], None]) -> None:
        self._files = tuple(files)
        self._changed = changed
        self._stop = threading.Event()
        self._started = False

    def start(self) -> None:
        """Begin to look; once is enough, and without files there is nothing to begin."""
        if self._started or not self._files:
            return
        self._started = True
        threading.Thread(target=self._look, name="dexaflow-files", daemon=True).start()

    def stop(self) -> None:
        """Look no further. Does not wait for a look that is under way."""
        self._stop.set()

    def _look(self) -> None:
        failing: set[str] = set()
        while not self._stop.wait(CHECK_SECONDS):
            for file in self._files:
                try:
                    if file.refresh() and not self._stop.is_set():
                        self._changed(file)
                    failing.discard(file.key)
                except Exception:  # noqa: BLE001 - a look that fails must not be the last
                    if file.key not in failing:  # said once, until a look succeeds
                        _log.exception("file_watch_failed", key=file.key)
                    failing.add(file.key)


class Watched(Protocol):
    """What `FileWatch` needs of a `WatchedFile`, whatever its value."""

    @property
    def key(self) -> str:
        """The configuration key that names it."""
        ...

    def refresh(self) -> bool:
        """See `WatchedFile.refresh`."""
        ...


def _said(error: Exception) -> str:
    return (error.strerror or "it cannot be read") if isinstance(error, OSError) else str(error)
