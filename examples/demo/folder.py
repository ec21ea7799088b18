"""The demo's folder, which one demo at a time has."""

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

__all__ = ["Folder", "InUse"]


class InUse(Exception):  # noqa: N818 - what the folder is
    """Another demo has it, or processes that it left running."""


class Folder:
    """A folder that is emptied and then held, by this process and by those that are given `lock`, until all have ended.

    Raises:
        InUse: somebody holds it; nothing in it was touched.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700, exist_ok=True)
        self._held = path / "lock"
        self.lock = os.open(self._held, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Of the open file, not of this process: a child that was given it holds it too.
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holders = " ".join(str(pid) for pid in self._holders())
            os.close(self.lock)
            ended = f"wait for its end, or end it: kill {holders}" if holders else "wait for its end"
            raise InUse(f"a demo has {path} already; {ended}") from None
        for thing in path.iterdir():
            if thing.is_dir() and not thing.is_symlink():
                shutil.rmtree(thing)
            elif thing != self._held:
                thing.unlink()
        self.held_by(os.getpid())

    def held_by(self, *processes: int) -> None:
        """Write down who has it, for whoever asks."""
        os.ftruncate(self.lock, 0)
        os.pwrite(self.lock, "\n".join(map(str, processes)).encode(), 0)

    def _holders(self) -> list[int]:
        """Return those who have it and live; a number that is somebody else's by now is left out."""
        found = []
        for word in os.pread(self.lock, 1000, 0).split():
            with contextlib.suppress(OSError, ValueError):
                if self._has_open(int(word)):
                    found.append(int(word))
        return found

    def _has_open(self, pid: int) -> bool:
        return any(link.samefile(self._held) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists())
