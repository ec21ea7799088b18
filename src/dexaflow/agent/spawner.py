"""Forks agents: everything is loaded once here, so that an attempt does not pay for it.

Speaks with its executor over one socket: frames of four bytes length (big endian) and JSON. Each order comes with one
descriptor, the pipe with the token, which is handed on unread. Answers::

    {"forked": launch_id, "pid": int, "born": str}
    {"failed": launch_id, "reason": str}            could not fork
    {"exited": launch_id, "status": int}            exit status, negative for a signal; its orphans are dead

When the socket closes, the spawner ends; its agents go on.
"""

import contextlib
import errno
import gc
import http.client
import json
import os
import select
import signal
import socket
import sys
import time
import traceback

from dexaflow.agent import main as agent
from dexaflow.agent.order import Order
from dexaflow.agent.processes import adopt_orphans, birth, children, name_process
from dexaflow.base.steps import Step, reached

__all__ = ["Spawner", "main"]

_MAX_FRAME_BYTES = 1_048_576
_READ_BYTES = 65_536
_DIE_SECONDS = 5.0  # for orphans that were sent SIGKILL; meanwhile nothing is forked


def main(arguments: list[str]) -> int:
    """Serve the socket whose descriptor is the first argument, until it closes."""
    # What the first agent would otherwise load by itself, after each fork.
    "localhost".encode("idna")
    http.client.HTTPConnection("localhost").close()
    name_process("dexaflow-spawn")
    with socket.socket(fileno=int(arguments[0])) as executor:
        executor.set_inheritable(False)
        Spawner(executor).serve()
    return 0


class Spawner:
    """The loop: orders in, agents out, their exits back. One thread, since it forks."""

    def __init__(self, executor: socket.socket) -> None:
        self._executor = executor
        self._agents: dict[int, str] = {}  # pid -> launch id
        self._frames = b""
        self._tokens: list[int] = []  # in the order of their frames

    def serve(self) -> None:
        """Return when the executor is gone."""
        adopt_orphans()
        wakeups, wake = os.pipe()
        for fd in (wakeups, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        gc.collect()
        gc.freeze()  # keeps the collector from touching, and so copying, every page in each agent
        poll = select.poll()
        poll.register(wakeups, select.POLLIN)
        poll.register(self._executor, select.POLLIN)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while True:
                ready = {fd for fd, _ in poll.poll()}
                if wakeups in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wakeups, _READ_BYTES)
                    self._reap()
                if self._executor.fileno() in ready and not self._receive():
                    return

    def _receive(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._executor, _READ_BYTES, 64)
        self._tokens += fds
        if not data:
            return False
        self._frames += data
        while len(self._frames) >= 4:
            end = 4 + int.from_bytes(self._frames[:4], "big")
            if end > _MAX_FRAME_BYTES:
                raise BrokenPipeError(errno.EPIPE, "not an executor")
            if len(self._frames) < end:
                break
            frame, self._frames = self._frames[4:end], self._frames[end:]
            self._fork(frame, self._tokens.pop(0))
        return True

    def _fork(self, frame: bytes, token_fd: int) -> None:
        order = Order.from_json(frame)
        reached(Step.ORDER_READ)
        try:
            pid = os.fork()
        except OSError as problem:
            os.close(token_fd)
            self._say({"failed": order.launch_id, "reason": problem.strerror})
            return
        if pid == 0:
            self._become_agent(order, token_fd)
        os.close(token_fd)
        self._agents[pid] = order.launch_id
        reached(Step.FORKED)
        self._say({"forked": order.launch_id, "pid": pid, "born": birth(pid) or ""})

    def _become_agent(self, order: Order, token_fd: int) -> None:
        """In the child: run the agent, and never return."""
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            keep = token_fd
            if keep != 3:
                os.dup2(keep, 3, inheritable=False)
            os.closerange(4, 1024)  # the executor's socket, our pipes, the tokens of others
            status = agent.run(order, 3)
        except BaseException:  # noqa: BLE001 - nothing may return into the spawner's loop
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
        """Tell of agents that ended, once what they left behind is dead (R10.4)."""
        ended = self._ended()
        # An agent that ends in order has ended its descendants; where one did not, or an orphan was, more may follow.
        if any(launch_id is None or code not in (agent.HEARD, agent.TURNED_AWAY) for launch_id, code in ended):
            deadline = time.monotonic() + _DIE_SECONDS
            while (orphans := set(children(os.getpid())) - set(self._agents)) and time.monotonic() < deadline:
                for pid in orphans:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)  # a child that is not reaped: the number is its own
                time.sleep(0.001)
                ended += self._ended()
        for launch_id, code in ended:
            if launch_id is not None:
                self._say({"exited": launch_id, "status": code})

    def _ended(self) -> list[tuple[str | None, int]]:
        """Reap who is dead: launch and exit status for an agent, None for an orphan."""
        ended: list[tuple[str | None, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            ended.append((self._agents.pop(pid, None), os.waitstatus_to_exitcode(status)))

    def _say(self, message: dict[str, object]) -> None:
        frame = json.dumps(message).encode()
        self._executor.sendall(len(frame).to_bytes(4, "big") + frame)
