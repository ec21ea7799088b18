"""What changes in the DAG folders, by looking once in a while.

Looking, not being told: it is the one way that works on every file system that a folder may be mounted from, and it
cannot miss a swap of the symbolic links under which Kubernetes mounts files. A folder that cannot be read keeps what
was known of it: a mount that is gone for a moment must not take every DAG with it.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dexaflow.base.errors import DagError
from dexaflow.base.text import shown

__all__ = ["Change", "Changes", "Kind", "Watcher"]

MAX_FILES = 10_000  # looked at below one folder
MAX_DEPTH = 20  # of folders in folders
_DATABASE_NAME = "dexaflow.db"  # by which a data folder is known

Signature = tuple[int, int, int, int]  # mtime_ns, ctime_ns, size, inode: what differs when the content may differ


class Kind(StrEnum):
    """What happened to a file."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """One Python file that is new, other or gone; `file` is relative to its tenant's folder."""

    tenant_id: str
    file: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Changes:
    """What one look at all folders found.

    `problems` are, for every tenant whose list differs from the last look's, all that could not be looked at now.
    """

    changes: tuple[Change, ...]
    problems: Mapping[str, tuple[DagError, ...]]


@dataclass(slots=True)
class _Look:
    files: dict[str, Signature] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)  # folders ("" is the root) and files
    problems: list[DagError] = field(default_factory=list)
    full: bool = False


class Watcher:
    """Looks at each tenant's folder every `interval` seconds.

    Seen are regular ``.py`` files, and symbolic links to such files that stay inside the folder. Hidden files and
    folders, ``__pycache__``, symbolic links to folders and data folders are passed over: what is kept of a DAG there
    would be loaded as another, each time one level deeper, and bring back what was deleted.
    """

    def __init__(self, folders: Mapping[str, Path], *, interval: float = 1.0) -> None:
        self._folders = dict(folders)
        self._interval = interval
        self._known: dict[str, dict[str, Signature]] = {tenant_id: {} for tenant_id in folders}
        self._extra: dict[str, set[str]] = {tenant_id: set() for tenant_id in folders}
        self._problems: dict[str, tuple[DagError, ...]] = dict.fromkeys(folders, ())

    def expect(self, tenant_id: str, files: Iterable[str]) -> None:
        """Before the first look: take these files as known, so that those which are gone are found to be removed."""
        self._known[tenant_id] = dict.fromkeys(files, (0, 0, 0, 0))

    def also_watch(self, tenant_id: str, files: Iterable[str]) -> None:
        """Look at these files too, whatever they are called; replaces what was said before for the tenant."""
        self._extra[tenant_id] = set(files)

    async def looks(self) -> AsyncIterator[Changes]:
        """Yield what each look found, the first one too, and also when it found nothing. Never ends by itself."""
        while True:
            yield await self.look()
            await asyncio.sleep(self._interval)

    async def look(self) -> Changes:
        """Look once, in a thread: a file system may take its time."""
        extra = {tenant_id: frozenset(files) for tenant_id, files in self._extra.items()}
        found = await asyncio.to_thread(
            lambda: {tenant_id: _look(root, extra[tenant_id]) for tenant_id, root in self._folders.items()}
        )
        changes: list[Change] = []
        problems: dict[str, tuple[DagError, ...]] = {}
        for tenant_id, look in found.items():
            before, now = self._known[tenant_id], look.files
            for file, signature in before.items():
                if file not in now and any(f in ("", file) or file.startswith(f + "/") for f in look.unreadable):
                    now[file] = signature
            changes += [Change(tenant_id, file, Kind.REMOVED) for file in before.keys() - now.keys()]
            changes += [Change(tenant_id, file, Kind.ADDED) for file in now.keys() - before.keys()]
            changes += [Change(tenant_id, f, Kind.CHANGED) for f in now.keys() & before.keys() if now[f] != before[f]]
            self._known[tenant_id] = now
            said = tuple(look.problems)
            if [str(p) for p in said] != [str(p) for p in self._problems[tenant_id]]:
                self._problems[tenant_id] = problems[tenant_id] = said
        return Changes(tuple(sorted(changes)), problems)


def _look(root: Path, extra: Iterable[str]) -> _Look:
    look = _Look()
    real_root = os.path.realpath(root)
    _look_into(look, os.fspath(root), real_root, "", 0)
    for file in extra:
        if file not in look.files:
            try:
                status = os.stat(os.path.join(root, file))
            except OSError:
                continue
            look.files[file] = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    return look


def _folder_problem(folder: str, error: OSError) -> str:
    """Return what is wrong with a tenant's whole folder, and what to do: it is read once it is there."""
    where = f"the DAG folder {shown(os.path.abspath(folder))}"
    fix = "or name another with --dags or `tenants`"
    match error:
        case FileNotFoundError():
            return f"{where} does not exist; create it, {fix}"
        case NotADirectoryError():
            return f"{where} is a file; name the folder that holds it with --dags or `tenants`"
        case _:
            return f"{where} cannot be read: {error.strerror or type(error).__name__}; make it readable, {fix}"


def _look_into(look: _Look, folder: str, real_root: str, prefix: str, depth: int) -> None:
    name = prefix.rstrip("/")
    if depth > MAX_DEPTH:
        look.problems.append(DagError(name, 0, f"is more than {MAX_DEPTH} folders deep; DAG files below are not read"))
        return
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        look.unreadable.append(name)
        problem = f"cannot be read: {error.strerror or type(error).__name__}"
        look.problems.append(DagError(name or ".", 0, problem if name else _folder_problem(folder, error)))
        return
    if any(entry.name == _DATABASE_NAME for entry in found):
        if not name:
            look.unreadable.append(name)
            problem = (
                f"the DAG folder {shown(os.path.abspath(folder))} is a data folder; give DAG files one of their own"
            )
            look.problems.append(DagError(".", 0, problem))
        return
    for entry in found:
        if look.full:
            return
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        file = prefix + entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                _look_into(look, entry.path, real_root, file + "/", depth + 1)
                continue
            if not entry.name.endswith(".py"):
                continue
            if not entry.name.isprintable():  # surrogates of a name that is not UTF-8, line ends, escapes
                look.problems.append(DagError(shown(file), 0, "has a name that cannot be shown; rename it"))
                continue
            if entry.is_symlink() and not os.path.realpath(entry.path).startswith(real_root.rstrip("/") + "/"):
                problem = "is a symbolic link that leaves the DAG folder; copy the file there"
                look.problems.append(DagError(file, 0, problem))
                continue
            status = entry.stat()
        except FileNotFoundError:
            if entry.is_symlink():  # else it has just gone
                problem = "is a symbolic link to a file that is not there; bring the file back, or remove the link"
                look.problems.append(DagError(file, 0, problem))
            continue
        except OSError as error:
            look.problems.append(DagError(file, 0, f"cannot be read: {error.strerror or type(error).__name__}"))
            look.unreadable.append(file)
            continue
        if stat.S_ISREG(status.st_mode):
            if len(look.files) >= MAX_FILES:
                problem = f"there are more than {MAX_FILES} Python files in the folder; it and later ones are not read"
                look.problems.append(DagError(file, 0, problem))
                look.unreadable.append("")  # what was known is kept
                look.full = True
                return
            look.files[file] = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
