"""Task logs as files of the data folder: one a try, 0600 in 0700 folders (R10.4)."""

import hashlib
import os
import shutil
from pathlib import Path
from urllib.parse import quote

__all__ = ["LogFiles"]


def _name(part: str) -> str:
    """Return a file name that no id can use to leave its folder, and that every file system takes."""
    name = quote(part, safe="").replace(".", "%2E")
    return name if len(name) <= 200 else f"{name[:120]}-{hashlib.sha256(part.encode()).hexdigest()}"


class LogFiles:
    """Appends and reads. An offset says where a piece belongs, so that one sent twice is kept once."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _path(self, run_id: str, task_id: str, try_number: int) -> Path:
        return self._root / _name(run_id) / _name(task_id) / f"{try_number}.log"

    def append(self, run_id: str, task_id: str, try_number: int, offset: int, data: bytes) -> int:
        """Keep `data` at `offset` and return the size now; the sender goes on from there.

        What is there already is not written again; a piece beyond the end is not taken. Raises `OSError`.
        """
        path = self._path(run_id, task_id, try_number)
        for folder in (self._root, path.parent.parent, path.parent):  # `parents=True` would give those another mode
            folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if offset > size or offset + len(data) <= size:
                return size
            rest = memoryview(data)[size - offset :]
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def read(self, run_id: str, task_id: str, try_number: int, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes from `offset`; empty where there is nothing (yet)."""
        try:
            with self._path(run_id, task_id, try_number).open("rb") as file:
                if offset >= os.fstat(file.fileno()).st_size:  # no file system seeks as far as a caller may count
                    return b""
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:
            return b""

    def size(self, run_id: str, task_id: str, try_number: int) -> int:
        """Return how many bytes are kept."""
        try:
            return self._path(run_id, task_id, try_number).stat().st_size
        except FileNotFoundError:
            return 0

    def remove_run(self, run_id: str) -> None:
        """Remove all logs of a run (`history.retention`)."""
        shutil.rmtree(self._root / _name(run_id), ignore_errors=True)
