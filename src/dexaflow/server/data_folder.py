"""Lite's data folder: 0700, its files 0600, used by one server at a time (R10.1, R10.4)."""

import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dexaflow.base.errors import DexaflowError
from dexaflow.base.steps import Step, reached

__all__ = ["DataFolder", "DataFolderError", "is_closed_to_us", "read_token", "read_url"]


class DataFolderError(DexaflowError):
    """The data folder cannot be used; one line says why and what to do."""


class DataFolder:
    """Where everything of one Lite server is kept. `opened()` makes it, and keeps others out meanwhile."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def database(self) -> Path:
        return self.root / "dexaflow.db"  # by which loading/watcher.py knows a data folder

    @property
    def signing_key(self) -> Path:
        return self.root / "signing.key"

    @property
    def token_file(self) -> Path:
        return self.root / "token"

    @property
    def server_file(self) -> Path:
        return self.root / "server.json"

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def versions(self) -> Path:
        return self.root / "versions"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what goes wrong with its files into one line. Raises `DataFolderError`."""
        try:
            yield
        except OSError as error:
            where = error.filename or self.root
            raise DataFolderError(f"{where}: {error.strerror}; {what_to_do(error)}") from error

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder if need be and hold it.

        Raises:
            DataFolderError: it is in use by another server, belongs to somebody else, or cannot be written.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.root.stat().st_uid != os.getuid():
                raise DataFolderError(f"data folder {self.root} belongs to another user; choose another with --data")
            self.root.chmod(0o700)
            lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileExistsError, NotADirectoryError) as error:
            where = "is a file" if self.root.exists() else "is below a file"
            raise DataFolderError(f"data folder {self.root} {where}; name a folder with --data") from error
        except OSError as error:
            raise DataFolderError(
                f"data folder {self.root}: {error.strerror}; choose another with --data or make it writable"
            ) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
                who = f" by process {holder}" if holder.isdigit() else ""
                raise DataFolderError(
                    f"data folder {self.root} is in use{who}; stop that server or choose another with --data"
                ) from error
            reached(Step.LOCK_TAKEN)
            with self.errors():
                self._remove_drafts()
                os.ftruncate(lock, 0)
                os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(lock)

    def _remove_drafts(self) -> None:
        """Remove the files that an earlier server was killed in writing; whoever holds the lock writes alone."""
        for file in (self.signing_key, self.token_file, self.server_file):
            for draft in self.root.glob(f".{file.name}.*"):
                draft.unlink(missing_ok=True)

    def _announced(self) -> str:
        try:
            return self.server_file.read_text() if self.server_file.is_file() else ""  # a pipe would be waited for
        except (OSError, ValueError):
            return ""

    def api_token(self) -> str:
        """Return the token of the API, made at the first start; it survives restarts. Raises `DataFolderError`."""
        try:
            if self.token_file.exists() and not self.token_file.is_file():  # a pipe would be waited for
                raise DataFolderError(f"{self.token_file}: is not a file; move it away")
            found = self.token_file.read_bytes().decode("latin-1").strip()
        except FileNotFoundError:
            found = ""
        except OSError as error:
            raise DataFolderError(f"{self.token_file}: {error.strerror}; make it readable or delete it") from error
        if not all("\x21" <= character <= "\x7e" for character in found):
            problem = "holds blanks, line ends or other characters that no header can carry"
            raise DataFolderError(f"{self.token_file}: {problem}; write visible ASCII, or delete it to have one made")
        if 0 < len(found) < 20:
            raise DataFolderError(
                f"{self.token_file}: holds fewer than 20 characters; write more, or delete it to have one made"
            )
        if not found:
            found = secrets.token_urlsafe(32)
            write_private(self.token_file, found + "\n")
        self.token_file.chmod(0o600)
        return found

    def announce(self, url: str) -> None:
        """Say where the server listens, for agents and the command line. Raises `DataFolderError`."""
        if self._announced() != _ours(url):
            write_private(self.server_file, _ours(url))

    def withdraw(self) -> None:
        """The server listens no longer. What another one has announced since stays: agents must find that one."""
        try:
            ours = json.loads(self._announced())["pid"] == os.getpid()
        except (ValueError, LookupError, TypeError):
            ours = False
        if ours:
            self.server_file.unlink(missing_ok=True)
        reached(Step.WITHDRAWN)


def what_to_do(error: OSError) -> str:
    """Return what helps against an error of a file in the data folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "make room on that disk"
    if error.errno == errno.EROFS:
        return "mount it writable, or choose another folder with --data"
    return "check that the data folder is writable"


def _ours(url: str) -> str:
    return json.dumps({"url": url, "pid": os.getpid()}) + "\n"


def write_private(path: Path, content: str) -> None:
    """Replace a file in one step, mode 0600: a reader sees the old content or the new. Raises `DataFolderError`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        reached(Step.FILE_DRAFTED)
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise DataFolderError(f"{path}: {error.strerror}; {what_to_do(error)}") from error


def read_url(root: Path) -> str | None:
    """Return where the server of a data folder listens, or None when none runs."""
    try:
        url = json.loads(DataFolder(root).server_file.read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) else None


def is_closed_to_us(root: Path) -> bool:
    """Whether the data folder is there, perhaps, but not for this user to look into."""
    try:
        os.scandir(root).close()
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def read_token(root: Path) -> str | None:
    """Return the API token of a data folder, or None."""
    try:
        return DataFolder(root).token_file.read_bytes().decode("latin-1").strip() or None
    except OSError:
        return None
