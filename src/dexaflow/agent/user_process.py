"""The user's process: started so that it cannot outlive its agent, watched, and ended with all its descendants."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from dexaflow.agent.processes import birth, children, die_with_parent
from dexaflow.agent.spool import Spool
from dexaflow.agent.work import Command
from dexaflow.base.steps import Step, reached

__all__ = ["GRACE_SECONDS", "Ended", "Stop", "UserProcess", "start"]

GRACE_SECONDS = 5.0  # between SIGTERM and SIGKILL
_READ_BYTES = 65_536
_MAX_RESULT_READ = 131_072  # the result's own limit is checked by who understands it
_DIE_SECONDS = 30.0  # for what SIGKILL has been sent to; longer hangs in the kernel, and nobody can help that


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the user's process is to end: SIGTERM, `GRACE_SECONDS`, SIGKILL.

    `silent`: the launch does not count any more. Nobody waits to hear of it, and the next may run: SIGKILL at once.
    """

    reason: str
    timed_out: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended. `exit_code` is negative for a signal; `stop` is why it was told to, if it was."""

    exit_code: int
    stop: Stop | None
    result: bytes


class UserProcess:
    """One running user process, its group, and whatever descends from it. Used by the agent's main thread alone.

    Where the agent `adopts` orphans (`processes.adopt_orphans`) also descendants that left the group are ended.
    """

    def __init__(self, pid: int, output: int, result: int, spool: Spool, *, adopts: bool) -> None:
        self.pid = pid
        self._adopts = adopts
        self.born = birth(pid)  # of an unreaped child: cannot be another's
        self._output = output
        self._result = result
        self._spool = spool
        self._answer = bytearray()
        self._exit_code: int | None = None
        self._stop: Stop | None = None
        self._kill_at: float | None = None

    def watch(
        self,
        wakeups: int,
        timeout: float | None,
        asked_to_stop: Callable[[], Stop | None],
        first_pause: Callable[[], None],
        pause_seconds: float,
    ) -> Ended:
        """Return once the process, its group and its descendants are dead and all they wrote is in the spool.

        Args:
            wakeups: A descriptor that becomes readable on SIGCHLD and when `asked_to_stop` may have changed.
            timeout: `execution_timeout`, counted from now, for the whole process group.
            asked_to_stop: Says why it should end, or None.
            first_pause: Called once, if it still runs after `pause_seconds`.
        """
        poll = select.poll()
        for fd in (wakeups, self._output, self._result):
            if fd >= 0:
                os.set_blocking(fd, False)
                poll.register(fd, select.POLLIN)
        began = time.monotonic()
        pause_at: float | None = began + pause_seconds
        ends_at = None if timeout is None else began + timeout
        while self._exit_code is None:
            due = [moment for moment in (pause_at, ends_at, self._kill_at) if moment is not None]
            wait = None if not due else max(0.0, (min(due) - time.monotonic()) * 1000 + 1)
            for fd, _ in poll.poll(wait):
                if not self._take(fd, wakeups):
                    poll.unregister(fd)
            self._reap()
            now = time.monotonic()
            if pause_at is not None and now >= pause_at:
                pause_at = None
                first_pause()
            if ends_at is not None and now >= ends_at and timeout is not None:
                ends_at = None
                self.end(Stop(f"timed out after {seconds_as_text(timeout)}", timed_out=True))
            if (stop := asked_to_stop()) is not None:
                self.end(stop)
            if self._kill_at is not None and now >= self._kill_at:
                self._kill_at = None
                self._signal_group(signal.SIGKILL)
        self._end_descendants()
        self._drain()
        return Ended(self._exit_code, self._stop, bytes(self._answer))

    def end(self, stop: Stop) -> None:
        """Begin to end the process. The first reason stays, but for one that leaves nobody to hear of it."""
        if self._exit_code is not None or (self._stop is not None and (self._stop.silent or not stop.silent)):
            return
        self._stop = stop
        if stop.silent:
            self._kill_at = 0.0
        else:
            self._kill_at = time.monotonic() + GRACE_SECONDS
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)  # what is stopped would not notice

    def _take(self, fd: int, wakeups: int) -> bool:
        """Read what is there. False: nothing more will come."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return True
        self._keep(fd, data)
        return bool(data) or fd == wakeups

    def _keep(self, fd: int, data: bytes) -> None:
        if fd == self._output:
            self._spool.append(data)
        elif fd == self._result and len(self._answer) <= _MAX_RESULT_READ:
            self._answer += data

    def _drain(self) -> None:
        for fd in (self._output, self._result):
            if fd >= 0:
                with contextlib.suppress(BlockingIOError):
                    while data := os.read(fd, _READ_BYTES):
                        self._keep(fd, data)
                os.close(fd)

    def _reap(self) -> bool:
        """Take note of dead children, adopted ones too. False: there are no children left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self._exit_code = os.waitstatus_to_exitcode(status)

    def _signal_group(self, number: int) -> None:
        # The number of the group is ours: its leader is not reaped before this loop knows that it is dead.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _end_descendants(self) -> None:
        """Kill what the process left behind, in its group or out of it: nothing runs on after its attempt."""
        deadline = time.monotonic() + _DIE_SECONDS
        pause = 0.001
        if not self._adopts:
            self._signal_group(signal.SIGKILL)
        while self._reap() and time.monotonic() < deadline:
            for pid in children(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)  # a child that is not reaped: the number is its own
            time.sleep(pause)  # dying takes a moment, and gives us its children
            pause = min(pause * 2, 0.05)


def seconds_as_text(seconds: float) -> str:
    """Return ``30s`` or ``0.5s``."""
    return f"{seconds:g}s" if seconds < 1e6 else f"{seconds:.0f}s"


def start(command: Command, folder: str, spool: Spool, *, adopts: bool) -> UserProcess:
    """Execute a command in a session and process group of its own, its output on the way to the spool.

    It has no terminal, ``/dev/null`` as input, and no descriptors but those that are its own. It dies with this agent.

    Raises:
        OSError: it could not be executed, with the cause.
    """
    agent = os.getpid()
    output, its_output = os.pipe()
    failure, its_failure = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            reached(Step.USER_FORKED)
            if not die_with_parent(agent):
                os._exit(1)
            nothing = os.open("/dev/null", os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(its_output, 1)
            os.dup2(its_output, 2)
            for fd in (command.job_fd, command.result_fd):
                if fd >= 0:
                    os.set_inheritable(fd, True)
            # Ignored signals stay ignored over an exec, handled ones do not: the interpreter's, the spawner's, and what
            # the server was started with (`nohup`, a script's background).
            for number in signal.valid_signals():
                if signal.getsignal(number) is signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.chdir(folder)
            os.execve(command.arguments[0], command.arguments, command.environment)
        except BaseException as problem:  # noqa: BLE001 - whatever it is, this process must not go on as an agent
            cause = problem.errno if isinstance(problem, OSError) else 0
            os.write(its_failure, str(cause or 0).encode())
        finally:
            os._exit(127)
    for fd in (its_output, its_failure, command.job_fd, command.result_fd):
        if fd >= 0:
            os.close(fd)
    told = os.read(failure, 16)
    os.close(failure)
    if told:
        os.waitpid(pid, 0)
        os.close(output)
        if command.result_from >= 0:
            os.close(command.result_from)
        cause = int(told)
        raise OSError(cause, os.strerror(cause) if cause else "the process could not be prepared")
    return UserProcess(pid, output, command.result_from, spool, adopts=adopts)
