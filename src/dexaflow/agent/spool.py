"""The log of one attempt on its way to the server: kept in a file until the end is heard."""

import contextlib
import os

__all__ = ["MAX_LOG_BYTES", "Spool"]

MAX_LOG_BYTES = 64 * 1024 * 1024  # what one attempt may log; a task that runs wild must not fill the disk


class Spool:
    """Takes what the user's process writes; gives any part of it. One thread appends, another may read.

    It never fails its task: beyond the cap, and when the disk is full, it takes no more and says so in a last line.
    """

    def __init__(self, path: str, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._path = path
        self._max = max_bytes
        self._fd = -1  # a task that prints nothing has no file
        self._in_file = 0
        self._last_line = b""

    @property
    def size(self) -> int:
        """Bytes of the log so far."""
        return self._in_file + len(self._last_line)

    def append(self, data: bytes) -> None:
        """Keep more of the log."""
        if self._last_line:
            return
        taken = data[: self._max - self._in_file]
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            while taken:
                written = os.write(self._fd, taken)
                self._in_file += written
                taken, data = taken[written:], data[written:]
        except OSError as problem:
            self._last_line = f"\n[the log ends here: {problem.strerror}]\n".encode()
            return
        if data:
            self._last_line = f"\n[the log ends here: it is longer than {self._max} bytes]\n".encode()

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return at most `max_bytes` of the log from `offset`; empty at its end."""
        if offset < self._in_file:
            return os.pread(self._fd, min(max_bytes, self._in_file - offset), offset)
        return self._last_line[offset - self._in_file :][:max_bytes]

    def close(self) -> None:
        """Close and remove the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
