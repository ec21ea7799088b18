"""The process that executes one DAG file: a supervisor, and below it the process in which the foreign code runs.

Started by `loader` as a session of its own. Standard library only. The supervisor outlives whatever the file does: it
enforces the time limit, adopts and kills every process that the file left behind (also those that made a session of
their own), and does the same when the server goes away. Its last act is to kill its own process group.

Arguments: ROOT FILE FOLDER RESULT_FD TRACE_FD STATUS_FD SECONDS MEMORY_BYTES. FOLDER is the working directory, removed
in the end: as when a task runs, it is not the DAG's folder. To RESULT_FD goes one JSON document:
``{"dags": [...], "files": {path: sha256}}`` or ``{"error": {"line": ..., "cause": ...}}``; to TRACE_FD what
`faulthandler` sees on a crash or a hang; to STATUS_FD how the process ended. Standard input is the lifeline: its end
means that nobody waits any more.
"""

import contextlib
import faulthandler
import json
import os
import resource
import select
import shutil
import signal
import stat
import sys
import time
from types import FrameType
from typing import Any, NoReturn

from dexaflow.agent.processes import adopt_orphans, children, die_with_parent
from dexaflow.authoring.files import load_dags
from dexaflow.loading.causes import cause_of
from dexaflow.loading.executed import Executed

__all__ = ["CHANNEL_CLOSED", "MAX_WRITE_BYTES", "main"]

MAX_WRITE_BYTES = 16 * 1024 * 1024  # of output, and of any file, that a DAG file may write while it is loaded
CHANNEL_CLOSED = 97  # exit status: the file closed the descriptor of the result
_SPARE_BYTES = 256 * 1024 * 1024  # of memory, for telling that there was none left
_TRACE_SECONDS = 0.5  # to write down where it hangs
_CLEANUP_SECONDS = 3.0  # to kill what it left behind


def main(argv: list[str] | None = None) -> NoReturn:
    """Load one file and end this process."""
    root, file, folder, *numbers = sys.argv[1:] if argv is None else argv
    result_fd, trace_fd, status_fd = (int(number) for number in numbers[:3])
    seconds, memory_bytes = float(numbers[3]), int(numbers[4])
    deadline = time.monotonic() + seconds
    root = os.path.abspath(root)
    os.chdir(folder)
    adopt_orphans()  # of all that is started below: none can slip away
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        if not die_with_parent(supervisor):
            os._exit(1)
        os.close(status_fd)
        _load(root, file, result_fd, trace_fd, memory_bytes)
    status = _supervise(pid, deadline)
    os.write(status_fd, json.dumps(status).encode())
    _kill_children()
    os.chdir("/")
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _load(root: str, file: str, result_fd: int, trace_fd: int, memory_bytes: int) -> NoReturn:
    """Execute the file in this process, write down what it makes and end."""
    end = os._exit  # not sys.exit(): the file's threads and exit handlers have no say in this
    try:
        own_pid = os.getpid()
        sys.dont_write_bytecode = True  # the folder is not ours
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        faulthandler.enable(trace_fd, all_threads=False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_WRITE_BYTES, MAX_WRITE_BYTES))
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes + _SPARE_BYTES))

        def tell(document: dict[str, Any]) -> NoReturn:
            if os.getpid() != own_pid:  # the file forked, and this is the copy
                end(0)
            end(_write(result_fd, json.dumps(document).encode()))

        def leave(status: int) -> NoReturn:
            """Stand in for `os._exit`, which would leave no trace of the line that called it."""
            if os.getpid() != own_pid:
                end(status)
            cause = f"calls os._exit({status}) while it is loaded; a DAG file must run to its end"
            tell({"error": {"line": _line_in(os.path.join(root, file)), "cause": cause}})

        os._exit = leave
        tell(_document(root, file, memory_bytes))
    finally:
        end(1)


def _write(result_fd: int, body: bytes) -> int:
    """Write the result in the place of whatever is there, and return the exit status that says how that went."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    try:
        os.ftruncate(result_fd, 0)
        while body:
            os.lseek(result_fd, 0, os.SEEK_END)
            body = body[os.write(result_fd, body) :]
    except OSError:
        return CHANNEL_CLOSED
    return 0


def _line_in(path: str) -> int:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename != path:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def _document(root: str, file: str, memory_bytes: int) -> dict[str, Any]:
    path = os.path.join(root, *file.split("/"))
    executed = Executed(root)
    executed.install()
    try:
        dags = [dag.spec().to_json() for dag in load_dags(root, file, read=executed.read)]
        return {"dags": dags, "files": executed.files()}
    except BaseException as error:  # noqa: BLE001 - SystemExit and the like are the file's errors too
        resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
        sys.setrecursionlimit(1000)
        limits = f"{memory_bytes >> 20} MiB of memory, {MAX_WRITE_BYTES >> 20} MiB of output"
        line, cause = cause_of(error, root, path, executed.source(path), limits)
        return {"error": {"line": line, "cause": cause}}


def _supervise(pid: int, deadline: float) -> dict[str, Any]:
    """Return how the loading process ended: its exit status or signal, and whether its time was over."""
    poll = select.poll()
    if stat.S_ISFIFO(os.fstat(0).st_mode) or stat.S_ISSOCK(os.fstat(0).st_mode):
        poll.register(0, select.POLLIN)
    step = 0.02
    with contextlib.suppress(AttributeError, OSError):  # where there is no pidfd, looking every 20 ms does
        poll.register(os.pidfd_open(pid), select.POLLIN)
        step = float("inf")
    while True:
        ended, wait_status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(wait_status)
            return {"exit": code if code >= 0 else None, "signal": -code if code < 0 else None, "timed_out": False}
        left = deadline - time.monotonic()
        if left <= 0:
            os.kill(pid, signal.SIGABRT)  # faulthandler writes down where it hangs
            _wait_for_end(pid, _TRACE_SECONDS)
            return {"exit": None, "signal": None, "timed_out": True}
        events = poll.poll(min(left, step) * 1000 + 1)
        if any(fd == 0 for fd, _ in events):
            return {"exit": None, "signal": None, "timed_out": True}  # nobody waits any more


def _wait_for_end(pid: int, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
                continue
        return


def _kill_children() -> None:
    """Kill all that is below us, generation by generation: the children of the dead become ours."""
    end = time.monotonic() + _CLEANUP_SECONDS
    while time.monotonic() < end:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in children(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)


if __name__ == "__main__":
    main()
