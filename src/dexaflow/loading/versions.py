"""Keeping what was loaded, so that a run goes on with the version that it began with.

A version is a folder named by the digest of what is in it: the DAG file and the local files that it executes or reads,
at the paths they had. The loader says with which digest it saw each file, and `snapshot` keeps those bytes or nothing:
a file that has changed in between is `Changed`, and is loaded again. A folder appears whole or not at all, and is
never written to again.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from dexaflow.base.errors import DexaflowError
from dexaflow.base.steps import Step, reached
from dexaflow.loading.executed import MAX_FILE_BYTES

__all__ = ["KEEP_SECONDS", "Changed", "read_file", "remove_unfinished", "remove_unused", "snapshot"]

KEEP_SECONDS = 3600.0  # a version is kept at least that long after it was last loaded: its run may be about to be made
_VERSION = re.compile("[0-9a-f]{64}")
_UNFINISHED = ".unfinished-"
_REMOVED = ".removed-"


class Changed(DexaflowError):  # noqa: N818 - a fact, not a fault
    """A file is not what it was when it was loaded; load it again."""


def read_file(root: Path, file: str, *, most: int = MAX_FILE_BYTES) -> bytes:
    """Return the bytes of a regular file that lies below `root`, also after following symbolic links.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no regular file, lies elsewhere, or has more than `most` bytes.
    """
    real = Path(os.path.realpath(root / file))
    if not real.is_relative_to(os.path.realpath(root)):
        raise ValueError("is a symbolic link that leaves the DAG folder; copy the file there")
    with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError("is not a regular file")
        content = stream.read(most + 1)
    if len(content) > most:
        raise ValueError(f"has more than {most} bytes")
    return content


def snapshot(root: Path, files: Mapping[str, str], versions_dir: Path) -> str:
    """Keep `files` as one version and return its id, the digest of their paths and bytes.

    The same files give the same id and are kept once. Folders are 0700, files 0600 (R10.4).

    Args:
        files: The SHA-256 of each file as it was loaded, by its path below `root`, "/" between the parts.

    Raises:
        Changed: A file has other bytes by now, or is gone.
        ValueError: A file cannot be kept, whatever its bytes are; the message says which and why.
        OSError: The version cannot be written.
    """
    contents: dict[str, bytes] = {}
    for file in sorted(files):
        try:
            contents[file] = read_file(root, file)
        except OSError as error:
            raise Changed(f"{file} cannot be read any more") from error
        except ValueError as error:
            raise ValueError(f"{file} {error}") from None
        if hashlib.sha256(contents[file]).hexdigest() != files[file]:
            raise Changed(f"{file} changes while it is loaded")
    whole = hashlib.sha256()
    for file, content in contents.items():
        for part in (file.encode(), content):
            whole.update(len(part).to_bytes(8, "big") + part)  # with its length, so that no two sets look alike
    version = whole.hexdigest()
    target = versions_dir / version
    versions_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.utime(target)  # young again: `remove_unused` leaves it
        return version
    unfinished = versions_dir / f"{_UNFINISHED}{secrets.token_hex(8)}"
    unfinished.mkdir(mode=0o700)
    try:
        for file, content in contents.items():
            _write(unfinished, file, content)
        for folder in _folders(unfinished):
            _sync(folder)
        reached(Step.VERSION_DRAFTED)
        with contextlib.suppress(FileExistsError):
            _rename_new(unfinished, target)
        _sync(versions_dir)
        reached(Step.VERSION_KEPT)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return version


def _write(base: Path, file: str, content: bytes) -> None:
    parts = file.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{file!r} is not a path below a folder")
    for end in range(1, len(parts)):
        (base.joinpath(*parts[:end])).mkdir(mode=0o700, exist_ok=True)
    fd = os.open(base.joinpath(*parts), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(fd)


def _rename_new(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:
        if target.is_dir():  # somebody else has kept the same bytes meanwhile
            raise FileExistsError(target) from None
        raise


def _folders(base: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(base):
        yield Path(folder)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_unfinished(versions_dir: Path) -> None:
    """Remove what a server was killed in keeping or removing. To be called while nobody keeps any version."""
    for start in (_UNFINISHED, _REMOVED):
        for path in versions_dir.glob(f"{start}*"):
            shutil.rmtree(path, ignore_errors=True)


def remove_unused(
    versions_dir: Path, in_use: Collection[str], *, now: float, keep_seconds: float = KEEP_SECONDS
) -> tuple[str, ...]:
    """Remove the versions that are not in `in_use` and were last loaded more than `keep_seconds` ago; return their ids.

    What a crash left half written goes too. A version disappears at once, whatever happens while it is deleted.

    Args:
        in_use: Ids that a DAG or a run still refers to.
        now: Seconds since 1970, the clock of file times.
    """
    removed = []
    try:
        names = sorted(os.listdir(versions_dir))
    except FileNotFoundError:
        return ()
    for name in names:
        path = versions_dir / name
        leftover = name.startswith((_UNFINISHED, _REMOVED))
        if not leftover and (name in in_use or not _VERSION.fullmatch(name)):
            continue
        try:
            if now - path.stat().st_mtime <= keep_seconds and not name.startswith(_REMOVED):
                continue
            gone = versions_dir / f"{_REMOVED}{secrets.token_hex(8)}"
            path.rename(gone)
            if not leftover and now - gone.stat().st_mtime <= keep_seconds:
                gone.rename(path)  # it was loaded again between the two looks
                continue
        except FileNotFoundError:
            continue  # somebody else removes it
        shutil.rmtree(gone, ignore_errors=True)
        if not leftover:
            removed.append(name)
    return tuple(removed)
