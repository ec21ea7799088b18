"""The executor's end of the line to its spawner: orders out, agents and exits back, a new spawner when one dies."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import dexaflow.agent
from dexaflow.agent.order import Order
from dexaflow.base.errors import ExecutorError
from dexaflow.base.steps import Step, reached

__all__ = ["Forked", "Spawning", "task_environment"]

_ENTRY = str(Path(dexaflow.agent.__file__).with_name("__main__.py"))
_READ_BYTES = 65_536
_END_SECONDS = 5.0
# What tasks get of the server's environment (R10.4): how to find programs and how to write, nothing of ours.
_PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE",
    "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
)  # fmt: skip
_DEFAULTS = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def task_environment(server: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that tasks begin with, made from the server's."""
    return {**_DEFAULTS, **{name: server[name] for name in _PASSED_ON if name in server}}


@dataclass(frozen=True, slots=True)
class Forked:
    """An agent was forked; `born` as in `agent.processes.birth`."""

    pid: int
    born: str


class _SpawnerGone(Exception):  # noqa: N818 - it is not known what became of an order
    pass


class _Spawner:
    """One spawner process and the socket to it."""

    def __init__(self, errors_file: str) -> None:
        ours, its = socket.socketpair()
        try:
            errors = os.open(errors_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-X", "utf8", _ENTRY, "spawner", str(its.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    env=task_environment(os.environ),
                    cwd="/",
                    pass_fds=(its.fileno(),),
                    start_new_session=True,  # a Ctrl-C at the server's terminal is not meant for tasks
                )
            finally:
                os.close(errors)
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        ours.setblocking(False)
        self.socket = ours
        self.out: deque[tuple[bytes, int]] = deque()  # what is still to be sent, with the descriptor to go along or -1
        self.frames = b""
        self.waiting: dict[str, asyncio.Future[Forked]] = {}

    def close(self) -> None:
        self.socket.close()
        for _, fd in self.out:
            if fd >= 0:
                os.close(fd)
        self.out.clear()

    def wait(self) -> None:
        """Return when it has ended; blocks."""
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Spawning:
    """Has agents forked. Everything happens on the event loop, between awaits."""

    def __init__(
        self,
        errors_file: str,
        *,
        forked: Callable[[str, Forked], None],
        exited: Callable[[str, int], None],
        lost: Callable[[], None],
    ) -> None:
        """Make one that has no spawner yet.

        Args:
            forked: Told of each agent before anything else happens to it, also when nobody awaits it.
            exited: Told of each agent's exit status.
            lost: Told that the agents forked so far are watched by nobody now.
        """
        self._errors_file = errors_file
        self._forked = forked
        self._exited = exited
        self._lost = lost
        self._spawner: _Spawner | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the spawner, None while there is none."""
        return None if self._spawner is None else self._spawner.process.pid

    async def fork(self, order: Order, token: str) -> Forked:
        """Have an agent forked for the order and its token handed to it.

        When the spawner dies meanwhile the order is given to a new one: should the first have forked an agent already,
        the second agent finds the launch claimed and ends.

        Raises:
            ExecutorError: it could not be.
        """
        for _ in range(2):
            try:
                return await self._fork(order, token)
            except _SpawnerGone:
                continue
        raise ExecutorError(f"the spawner of agents died; {self._errors_file} says why")

    async def _fork(self, order: Order, token: str) -> Forked:
        if self._closed:
            raise ExecutorError("the server is stopping")
        try:
            spawner = self._spawner or self._begin()
            from_fd, to_fd = os.pipe()
            os.write(to_fd, token.encode())  # far less than what a pipe holds: does not wait
            os.close(to_fd)
        except OSError as problem:
            raise ExecutorError(f"the spawner of agents could not be started: {problem.strerror}") from problem
        frame = order.to_json().encode()
        future: asyncio.Future[Forked] = asyncio.get_running_loop().create_future()
        spawner.waiting[order.launch_id] = future
        spawner.out.append((len(frame).to_bytes(4, "big") + frame, from_fd))
        self._send(spawner)
        reached(Step.SPAWNER_ORDERED)
        return await future

    def _begin(self) -> _Spawner:
        spawner = self._spawner = _Spawner(self._errors_file)
        reached(Step.SPAWNER_BEGUN)
        asyncio.get_running_loop().add_reader(spawner.socket.fileno(), self._receive, spawner)
        return spawner

    def _send(self, spawner: _Spawner) -> None:
        loop = asyncio.get_running_loop()
        try:
            while spawner.out:
                data, fd = spawner.out[0]
                sent = socket.send_fds(spawner.socket, [data], [fd] if fd >= 0 else [])
                if fd >= 0:
                    os.close(fd)  # it went along with the first byte
                if sent < len(data):
                    spawner.out[0] = (data[sent:], -1)
                else:
                    spawner.out.popleft()
            loop.remove_writer(spawner.socket.fileno())
        except BlockingIOError:
            loop.add_writer(spawner.socket.fileno(), self._send, spawner)
        except OSError:
            self._gone(spawner)

    def _receive(self, spawner: _Spawner) -> None:
        try:
            data = spawner.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        spawner.frames += data
        while len(spawner.frames) >= 4:
            end = 4 + int.from_bytes(spawner.frames[:4], "big")
            if len(spawner.frames) < end:
                break
            frame, spawner.frames = spawner.frames[4:end], spawner.frames[end:]
            self._take(spawner, json.loads(frame))
        if not data:
            self._gone(spawner)

    def _take(self, spawner: _Spawner, said: Mapping[str, object]) -> None:
        if "exited" in said:
            status = said["status"]
            assert isinstance(status, int)
            self._exited(str(said["exited"]), status)
            return
        if "forked" in said:
            pid = said["pid"]
            assert isinstance(pid, int)
            forked = Forked(pid, str(said["born"]))
            self._forked(str(said["forked"]), forked)
            reached(Step.FORK_HEARD)
            future = spawner.waiting.pop(str(said["forked"]), None)
            if future is not None and not future.done():
                future.set_result(forked)
        elif "failed" in said:
            future = spawner.waiting.pop(str(said["failed"]), None)
            if future is not None and not future.done():
                future.set_exception(ExecutorError(f"no agent could be forked: {said['reason']}"))

    def _gone(self, spawner: _Spawner) -> None:
        """The spawner is dead: whoever waits tries another, whoever lives is watched in another way."""
        if self._spawner is not spawner:
            return
        self._spawner = None
        self._detach(spawner)
        for future in spawner.waiting.values():
            if not future.done():
                future.set_exception(_SpawnerGone())
        self._lost()

    def _detach(self, spawner: _Spawner) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(spawner.socket.fileno())
        loop.remove_writer(spawner.socket.fileno())
        spawner.close()
        ending = loop.create_task(asyncio.to_thread(spawner.wait))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """Let the spawner end, which it does when its socket closes; agents go on."""
        self._closed = True
        if (spawner := self._spawner) is not None:
            self._spawner = None
            self._detach(spawner)
            for future in spawner.waiting.values():
                if not future.done():
                    future.set_exception(ExecutorError("the server is stopping"))
        await asyncio.gather(*self._ending)
