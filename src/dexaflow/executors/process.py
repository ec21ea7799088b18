"""Lite's executor: each launch is a local agent process (R10.1)."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dexaflow.agent.folder import AgentState, Folder
from dexaflow.agent.main import HEARD, NO_FILES, TURNED_AWAY
from dexaflow.agent.order import Order
from dexaflow.agent.processes import birth, send_signal, signal_name
from dexaflow.agent.spool import MAX_LOG_BYTES
from dexaflow.base.errors import ExecutorError
from dexaflow.base.steps import Step, reached
from dexaflow.executors.leftovers import clear_away
from dexaflow.executors.ports import Exit, Found, Launch
from dexaflow.executors.spawning import Forked, Spawning
from dexaflow.executors.watching import Watching

__all__ = ["ProcessExecutor"]


@dataclass(slots=True)
class _Agent:
    """One agent that runs, as far as is known. `gone` is set when nothing of it is left."""

    pid: int
    born: str
    watched: bool  # by us; otherwise its spawner tells
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    ending: bool = False


class ProcessExecutor:
    """Has agents forked, learns of their ends, and finds them again by their state files. See `ports.Executor`.

    All methods belong to one event loop.
    """

    def __init__(self, folder: Path, server_file: Path, *, max_log_bytes: int = MAX_LOG_BYTES) -> None:
        """Make an executor that has started nothing yet.

        Args:
            folder: Where agents keep their files; ours alone, survives restarts. Made if it is not there.
            server_file: JSON with the server's present ``url``; agents read it for each connection.
            max_log_bytes: What one attempt may log; beyond it the log is cut.
        """
        self._folder = Folder(folder.absolute())
        self._folder.make()
        self._server_file = str(server_file.absolute())
        self._max_log_bytes = max_log_bytes
        self._agents: dict[str, _Agent] = {}
        self._starting: dict[str, asyncio.Task[Forked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._callback: Callable[[Exit], None] = lambda exit_: None
        self._watching = Watching()
        self._closed = threading.Event()
        self._spawning = Spawning(
            f"{self._folder.path}/errors.log", forked=self._forked, exited=self._exited, lost=self._spawner_lost
        )

    @property
    def spawner_pid(self) -> int | None:
        """The process id of the present spawner, None before the first start."""
        return self._spawning.pid

    def on_exit(self, callback: Callable[[Exit], None]) -> None:
        """See `ports.Executor`."""
        self._callback = callback

    async def start(self, launch: Launch) -> None:
        """See `ports.Executor`."""
        if not isinstance(launch, Launch):
            raise TypeError("an executor starts a Launch, nothing else")
        launch_id = launch.launch_id
        order = Order(
            launch_id,
            launch.launched.attempt_id,
            self._folder.path,
            server_file=self._server_file,
            max_log_bytes=self._max_log_bytes,
        )
        # A task of its own: a start that is cancelled half-way must still end as known.
        starting = asyncio.get_running_loop().create_task(self._spawning.fork(order, launch.token.reveal()))
        self._starting[launch_id] = starting
        starting.add_done_callback(lambda task: self._starting.pop(launch_id, None))
        starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(starting)

    async def find(self, launch_id: str) -> Found:
        """See `ports.Executor`."""
        await self._settled(launch_id)
        agent = self._agents.get(launch_id)
        if agent is not None:
            pid, born = agent.pid, agent.born
        else:
            state = self._folder.read(launch_id)
            if state is None:
                return Found(launch_id, alive=False)
            pid, born = state.pid, state.born
        alive = birth(pid) == born
        return Found(launch_id, alive=alive, pid=pid if alive else None)

    async def kill(self, launch_id: str, grace: float = 10.0) -> None:
        """See `ports.Executor`."""
        await self._settled(launch_id)
        found = False
        while not self._closed.is_set() and (agent := self._known(launch_id)) is not None:
            found = True
            send_signal(agent.pid, agent.born, signal.SIGTERM)
            reached(Step.KILL_SENT)
            try:
                async with asyncio.timeout(grace):
                    await agent.gone.wait()
            except TimeoutError:
                send_signal(agent.pid, agent.born, signal.SIGKILL)
                await agent.gone.wait()
        if self._closed.is_set():
            raise ExecutorError(f"launch {launch_id} may not be dead yet, and the server is stopping")
        if not found:
            await self._clear_away(launch_id)

    async def recover(self) -> list[str]:
        """See `ports.Executor`."""
        for launch_id in self._folder.leavings():
            self._folder.remove(launch_id)
        alive: list[str] = []
        for launch_id in sorted(self._folder.launches()):
            if self._known(launch_id) is not None:
                alive.append(launch_id)
            else:
                await self._clear_away(launch_id)
        return alive

    async def aclose(self) -> None:
        """See `ports.Executor`."""
        self._closed.set()
        self._watching.close()
        await self._spawning.aclose()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for agent in self._agents.values():
            agent.gone.set()  # nobody watches any more: whoever waits for its death is told that it is not known
        self._agents.clear()

    async def _clear_away(self, launch_id: str) -> None:
        if not await asyncio.to_thread(clear_away, self._folder, launch_id, self._closed):
            raise ExecutorError(f"launch {launch_id} is not dead yet, and the server is stopping")

    def _known(self, launch_id: str) -> _Agent | None:
        return self._agents.get(launch_id) or self._adopted(launch_id)

    async def _settled(self, launch_id: str) -> None:
        """Wait until it is known whether a launch that is being started has an agent."""
        if (starting := self._starting.get(launch_id)) is not None:
            await asyncio.wait([starting])

    def _forked(self, launch_id: str, forked: Forked) -> None:
        self._agents[launch_id] = _Agent(forked.pid, forked.born, watched=False)

    def _adopted(self, launch_id: str) -> _Agent | None:
        """Take in an agent that is not known yet but alive, by its state file."""
        state = self._folder.read(launch_id)
        if state is None or birth(state.pid) != state.born:
            return None
        return self._adopt(state)

    def _adopt(self, state: AgentState) -> _Agent:
        agent = self._agents[state.launch_id] = _Agent(state.pid, state.born, watched=True)
        self._watching.watch(agent.pid, agent.born, partial(self._ended, state.launch_id, agent, None))
        return agent

    def _exited(self, launch_id: str, status: int) -> None:
        """The spawner tells of an agent's end."""
        agent = self._agents.get(launch_id)
        if agent is None:
            return
        if status == TURNED_AWAY:
            # It may have found the launch claimed by an agent of the spawner before, which is the one that counts.
            state = self._folder.read(launch_id)
            if state is not None and state.pid != agent.pid and birth(state.pid) == state.born:
                self._adopt(state)
                agent.gone.set()
                return
        self._ended(launch_id, agent, status)

    def _spawner_lost(self) -> None:
        for launch_id, agent in list(self._agents.items()):
            if not agent.watched:
                agent.watched = True
                self._watching.watch(agent.pid, agent.born, partial(self._ended, launch_id, agent, None))

    def _ended(self, launch_id: str, agent: _Agent, status: int | None) -> None:
        """An agent is dead, with `status`, or nobody knows how."""
        if agent.ending:
            return
        agent.ending = True
        if status is None:
            in_order = self._folder.read(launch_id) is None  # it removes its state file last
        else:
            in_order = status in (HEARD, TURNED_AWAY)
        if in_order:
            self._gone(launch_id, agent, Exit(launch_id, True, "its agent ended"))
            return
        task = asyncio.get_running_loop().create_task(self._clear(launch_id, agent, status))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _clear(self, launch_id: str, agent: _Agent, status: int | None) -> None:
        with contextlib.suppress(ExecutorError):  # stopping: nobody listens, the next control plane finds it
            await self._clear_away(launch_id)
        self._gone(launch_id, agent, Exit(launch_id, False, _how(status)))

    def _gone(self, launch_id: str, agent: _Agent, exit_: Exit) -> None:
        if self._agents.get(launch_id) is agent:
            del self._agents[launch_id]
        agent.gone.set()
        if not self._closed.is_set():
            self._callback(exit_)


def _how(status: int | None) -> str:
    if status is None:
        return "its agent died"
    if status == NO_FILES:
        return "its agent could not write its files; check that the data folder is writable and not full"
    if status >= 0:
        return f"its agent failed with exit status {status}"
    return f"its agent was killed by {signal_name(-status)}"
