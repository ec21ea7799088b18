"""Loading one DAG file in a process of its own, and believing nothing that it says without checking."""

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import dexaflow
from dexaflow.base.errors import DagError
from dexaflow.loading.calendars import schedule_problem
from dexaflow.loading.causes import one_line
from dexaflow.loading.child import CHANNEL_CLOSED
from dexaflow.model import dag_rules as rules
from dexaflow.model.dags import DagSpec

__all__ = ["LOAD_SECONDS", "LoadTimeoutError", "Loaded", "NotLoadedError", "load_file"]

LOAD_SECONDS = 30.0  # for a file to load, unless told otherwise
MEMORY_BYTES = 2 * 1024**3  # of address space, for one file
MAX_DOCUMENT_BYTES = 8 * 1024 * 1024
MAX_DAGS = 1_000
MAX_FILES = 2_000
_MAX_OUTPUT_BYTES = 65_536  # of what it printed, kept for its author
_ROOM_BYTES = 65_536  # in the temporary folder, below which a load that failed is not blamed on the file
_GRACE_SECONDS = 8.0  # for the supervisor to clean up after its own limit; then it is killed too

# The child takes this very package, wherever it lies, and nothing else from that folder.
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); import dexaflow.loading.child as c; del sys.path[0]; c.main()"


class LoadTimeoutError(DagError):
    """A file was not loaded within its limit."""


class NotLoadedError(DagError):
    """A file could not be tried: the machine had no process, disk or descriptors for it. The file may be fine."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file holds. `dags` may be empty: a file without a DAG is no error."""

    file: str  # relative to its folder, "/" between the parts
    dags: tuple[DagSpec, ...]
    files: tuple[str, ...]  # it and the files below the folder that it executes or reads, sorted
    digests: Mapping[str, str]  # the SHA-256 of each of `files`, as executed
    errors: tuple[DagError, ...] = ()  # of single DAGs, which are not in `dags`
    output: str = ""  # the end of what it printed, as it is: clean it before it is shown


async def load_file(
    root: Path, file: str, *, timeout: float = LOAD_SECONDS, memory_bytes: int = MEMORY_BYTES
) -> Loaded | DagError:
    """Execute `root`/`file` in a process of its own and return what it holds, or what is wrong with it.

    The process gets an environment made for it (R10.4) and no more than `timeout` seconds and `memory_bytes` of
    address space; it and all that it started are dead on return, also when this call is cancelled. The loop is never
    blocked.

    Args:
        file: Relative to `root`, parts separated by "/".
        timeout: Seconds, above 0.
    """
    try:
        return await _load(_absolute(root), file, timeout, memory_bytes)
    except OSError as error:
        return NotLoadedError(file, 0, f"cannot be loaded: {error.strerror or type(error).__name__}")


async def _load(root: Path, file: str, timeout: float, memory_bytes: int) -> Loaded | DagError:
    with contextlib.ExitStack() as stack, _folder() as folder:
        # Files, not pipes: nothing that the child leaves behind can keep us waiting for their end.
        result, trace, status, output = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(4))
        fds = (result.fileno(), trace.fileno(), status.fileno())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-X", "utf8", "-c", _BOOT, str(Path(dexaflow.__path__[0]).parent)),
            *(str(root), file, folder, *map(str, fds), repr(float(timeout)), str(memory_bytes)),
            stdin=asyncio.subprocess.PIPE,  # the lifeline; its end tells the child that nobody waits any more
            stdout=output,
            stderr=output,
            env=_environment(folder),
            cwd="/",
            pass_fds=fds,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout + _GRACE_SECONDS):
                await process.wait()
        except TimeoutError:
            pass  # `_end` kills it
        finally:
            await _end(process, status)
        return await asyncio.to_thread(_judge, root, file, timeout, result, trace, status, output)


def _absolute(root: Path) -> Path:
    return Path(os.path.abspath(root))  # not resolved: a folder may be a symbolic link that is swapped


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    """Make the working directory of one load. The child removes it; what is done here is for when it could not."""
    folder = tempfile.mkdtemp(prefix="dexaflow-load-")
    try:
        yield folder
    finally:
        if os.path.exists(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: str) -> dict[str, str]:
    """Return the whole environment of the child: made for it, not the server's (R10.4)."""
    return {
        "PATH": os.pathsep.join((os.path.dirname(sys.executable) or "/usr/bin", "/usr/local/bin", "/usr/bin", "/bin")),
        "HOME": folder,
        "LANG": "C.UTF-8",
        "TMPDIR": folder,
    }


async def _end(process: asyncio.subprocess.Process, status: IO[bytes]) -> None:
    """See to it that the child and all below it are dead: by its supervisor, and if that fails, by the group."""
    try:
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None:
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
    except TimeoutError:
        pass
    finally:
        if process.returncode is None or not _size(status):  # it did not come to killing its own group
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _judge(
    root: Path, file: str, timeout: float, result: IO[bytes], trace: IO[bytes], status: IO[bytes], output: IO[bytes]
) -> Loaded | DagError:
    ended = _ended(status)
    if ended.get("exit") != 0 or not _size(result):
        line = _traced_line(_start(trace, 65_536), os.path.join(root, *file.split("/")))
        if ended.get("timed_out"):
            return LoadTimeoutError(file, line, f"is not loaded after {timeout:g} s; move slow work into a task")
        _check_room(trace)
        return DagError(file, line, _why_it_ended(ended))
    if _size(result) > MAX_DOCUMENT_BYTES:
        return DagError(file, 0, f"its DAGs are more than {MAX_DOCUMENT_BYTES} bytes of JSON; split the file")
    try:
        document = json.loads(_start(result, MAX_DOCUMENT_BYTES))
        return _loaded(file, document, _tail(output))
    except (ValueError, RecursionError) as error:
        return DagError(file, 0, one_line(f"what it reported cannot be used: {error}"))


def _loaded(file: str, document: Any, output: str) -> Loaded | DagError:
    if not isinstance(document, dict) or set(document) not in ({"dags", "files"}, {"error"}):
        raise ValueError("not the document of the loading process")
    if "error" in document:
        error = document["error"]
        if not isinstance(error, dict) or set(error) != {"line", "cause"} or not isinstance(error["cause"], str):
            raise ValueError("not an error of the loading process")
        return DagError(file, rules.whole(error["line"], 0), one_line(error["cause"]))
    files = _files(file, document["files"])
    specs = document["dags"]
    if not isinstance(specs, list) or len(specs) > MAX_DAGS:
        raise ValueError(f"dags: must be a list of at most {MAX_DAGS}")
    dags: dict[str, DagSpec] = {}
    errors = []
    for spec in (DagSpec.from_json(item) for item in specs):
        problem = schedule_problem(spec.schedule, spec.timezone)
        problem = f"DAG '{spec.dag_id}': {problem}" if problem else ""
        if spec.dag_id in dags:
            problem = f"DAG '{spec.dag_id}' is in this file already, in line {dags[spec.dag_id].line}; rename one"
        if problem:
            errors.append(DagError(file, spec.line, problem))
        else:
            dags[spec.dag_id] = spec
    return Loaded(file, tuple(dags.values()), tuple(sorted(files)), MappingProxyType(files), tuple(errors), output)


def _files(file: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MAX_FILES or file not in value:
        raise ValueError(f"files: must be at most {MAX_FILES}, the DAG file among them")
    for path, digest in value.items():
        parts = path.split("/")
        if any(part in ("", ".", "..") for part in parts) or not rules.text(path, most=4096, one_line=True):
            raise ValueError(f"files: {rules.shown(path)} is not a path below the folder")
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError(f"files[{rules.shown(path)}]: not a SHA-256")
    return value


def _ended(status: IO[bytes]) -> Mapping[str, Any]:
    try:
        value = json.loads(_start(status, 1024))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _why_it_ended(ended: Mapping[str, Any]) -> str:
    if isinstance(ended.get("signal"), int):
        with contextlib.suppress(ValueError):
            return f"its process was killed by {signal.Signals(ended['signal']).name} while it was loaded"
    if ended.get("exit") == CHANNEL_CLOSED:
        return "closes file descriptors that are not its own while it is loaded"
    if isinstance(ended.get("exit"), int):
        return f"ends its process with exit status {ended['exit']} while it is loaded; a DAG file must run to its end"
    return "its process was killed while it was loaded"


def _traced_line(trace: bytes, path: str) -> int:
    """Return the line of `path` at which `faulthandler` saw the process; 0 when it did not."""
    name = path.encode("ascii", "backslashreplace")  # its way of writing a path
    found = re.search(rb'File "' + re.escape(name) + rb'", line (\d{1,7}) in ', trace)
    return int(found[1]) if found else 0


def _check_room(stream: IO[bytes]) -> None:
    """Raise `OSError` when nothing more can be written: then what the load had to say may be missing."""
    if os.pwrite(stream.fileno(), bytes(_ROOM_BYTES), _size(stream)) < _ROOM_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


def _start(stream: IO[bytes], most: int) -> bytes:
    return os.pread(stream.fileno(), most, 0)


def _tail(output: IO[bytes]) -> str:
    start = max(0, _size(output) - _MAX_OUTPUT_BYTES)
    return os.pread(output.fileno(), _MAX_OUTPUT_BYTES, start).decode("utf-8", "replace")
