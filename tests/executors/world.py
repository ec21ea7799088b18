"""A process executor, its agents, and a server that they talk to: all real, on loopback, in a folder of its own."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dexaflow.agent.folder import AgentState, Folder
from dexaflow.agent.processes import all_processes
from dexaflow.agent.spool import MAX_LOG_BYTES
from dexaflow.api.agent_routes import Finish
from dexaflow.executors.ports import Exit, Launch
from dexaflow.executors.process import ProcessExecutor
from dexaflow.tokens.keys import public_keys
from dexaflow.tokens.verify import Verifier
from tests.executors.proofs import Proofs
from tests.executors.reports import Ledger, Served, serve

__all__ = ["World", "a_world", "alive", "until"]


async def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Return once `true()` holds; for what no event tells of: other processes and their files."""
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    return any(seen.pid == pid and not seen.dead for seen in all_processes())


@dataclass
class World:
    """What a test of agents needs."""

    path: Path
    proofs: Proofs
    ledger: Ledger
    executor: ProcessExecutor
    exits: list[Exit] = field(default_factory=list)
    served: Served | None = None

    @property
    def folder(self) -> Folder:
        return Folder(self.path / "agents")

    @property
    def server_file(self) -> Path:
        return self.path / "server.json"

    @property
    def verifier(self) -> Verifier:
        return Verifier(public_keys(self.proofs.key), time.monotonic)

    def new_executor(self, max_log_bytes: int = MAX_LOG_BYTES) -> ProcessExecutor:
        """Return an executor on the same folder, as a restart of the server makes one."""
        self.executor = ProcessExecutor(self.path / "agents", self.server_file, max_log_bytes=max_log_bytes)
        self.executor.on_exit(self.exits.append)
        return self.executor

    async def launch(self, work: dict[str, Any]) -> Launch:
        """Start a launch that is given this work."""
        launch = self.proofs.launch()
        self.ledger.work[launch.launch_id] = work
        await self.executor.start(launch)
        return launch

    async def run(self, work: dict[str, Any], seconds: float = 30.0) -> tuple[Finish, str]:
        """Run work to its end; returns how it ended and its log."""
        launch = await self.launch(work)
        finish = await self.ledger.finish(launch.launch_id, seconds)
        return finish, bytes(self.ledger.logs.get(launch.launch_id, b"")).decode("utf-8", "replace")

    async def agent(self, launch: Launch) -> AgentState:
        """Return the agent of a launch, once its user's process runs."""
        await until(lambda: (state := self.folder.read(launch.launch_id)) and state.user_pid)
        state = self.folder.read(launch.launch_id)
        assert state is not None
        return state

    async def exit(self, launch: Launch) -> Exit:
        """Return the exit of a launch's agent, once it is told."""
        await until(lambda: any(e.launch_id == launch.launch_id for e in self.exits))
        return next(e for e in self.exits if e.launch_id == launch.launch_id)

    def files(self) -> list[str]:
        """Return what is in the agents' folder, besides a log of errors that is empty."""
        errors = self.path / "agents" / "errors.log"
        if errors.exists():
            assert errors.read_text() == ""
        return sorted(name for name in os.listdir(self.path / "agents") if name != "errors.log")


@asynccontextmanager
async def a_world(path: Path) -> AsyncIterator[World]:
    """Make a world, and end all of it."""
    proofs = Proofs.fresh()
    ledger = Ledger(proofs.minter)
    (path / "agents").mkdir()
    world = World(path, proofs, ledger, ProcessExecutor(path / "agents", path / "server.json"))
    world.executor.on_exit(world.exits.append)
    async with serve(ledger, world.verifier, world.server_file) as served:
        world.served = served
        try:
            yield world
        finally:
            await world.executor.aclose()
            last = ProcessExecutor(path / "agents", path / "server.json")
            for launch_id in await last.recover():
                await last.kill(launch_id, grace=0.0)
            await last.aclose()
