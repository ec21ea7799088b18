"""The machine on which agents run: they outlive every control plane, and only a launch that counts begins.

An executor is one control plane's hand on the machine. Agents speak to whichever control plane serves now, and say it
again until they are heard, as the real ones do.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

from dexaflow.base.errors import ExecutorError
from dexaflow.executors.ports import Exit, Found, Launch
from simulation.checks import Checks
from simulation.record import Process, Record, Start, shown_try

__all__ = ["Machine", "Server", "SimulatedExecutor"]

T = TypeVar("T")
HEARTBEAT = 5.0
_TURNED_AWAY = (401, 403, 409, 410)  # an agent that hears one of these ends
_DOORS = ("started", "heartbeat", "log", "finished")
_TRIES = 4
_AGAIN = 0.5  # seconds after which an agent that was not heard says it again


class Server(Protocol):
    """The control plane that answers agents."""

    number: int

    async def post(self, door: str, token: str, body: bytes) -> tuple[int, Any]:
        """Take what an agent POSTs; returns the status, and what the body says."""
        ...

    async def serve(self, request: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T] | None:
        """Answer one request; None: the connection was lost, or it failed."""
        ...


@dataclass(eq=False)
class _Agent:
    process: Process
    token: str
    pid: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    told_to_end: asyncio.Event = field(default_factory=asyncio.Event)
    owners: list["SimulatedExecutor"] = field(default_factory=list)
    life: asyncio.Task[None] | None = None


class Machine:
    """All agents there are."""

    def __init__(
        self,
        *,
        chance: Random,
        record: Record,
        checks: Checks,
        server: Callable[[], Server | None],
        unlucky_starts: float,
        unlucky_tasks: float,
        sleepers: float = 0.0,
        until: float = 0.0,
        quick: float = 1.0,
    ) -> None:
        """Build a machine on which nothing runs.

        Args:
            sleepers: Share of agents that take long, and may stand still for as long.
            until: When they will have ended.
            quick: Shortens what tasks take, for a world in which time is real.
        """
        self.chance = chance
        self.record = record
        self.checks = checks
        self.calm = False
        self.unlucky_starts = unlucky_starts
        self.agents: dict[str, _Agent] = {}
        self._server = server
        self._unlucky_tasks = unlucky_tasks
        self._sleepers = sleepers
        self._until = until
        self._quick = quick
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def fork(self, start: Start, token: str, owner: "SimulatedExecutor") -> None:
        process = Process(start.launch_id, start.attempt_id, start.tried, self.record.now())
        self.record.processes.append(process)
        self.record.say("  agent of {} forked ({})", shown_try(start.tried), start.launch_id[-6:])
        self.checks.forked(process)
        agent = self.agents[start.launch_id] = _Agent(process, token, len(self.record.processes), owners=[owner])
        agent.life = self.spawn(self._live(agent))

    def kill_some(self, number: float) -> None:
        """One of the running agents dies, as by the out-of-memory killer."""
        alive = [a for a in self.agents.values() if not a.gone.is_set()]
        if alive:
            agent = alive[int(number * len(alive))]
            assert agent.life is not None
            self.record.say("the agent of {} is killed", shown_try(agent.process.tried))
            agent.life.cancel()

    async def _live(self, agent: _Agent) -> None:
        process, chance = agent.process, self.chance
        in_order = False
        try:
            await asyncio.sleep(chance.choice([0.0, 0.001, 0.02, 0.3]))
            in_order = await self._attempt(agent)
        except asyncio.CancelledError:
            pass
        finally:
            self._ended(process)
            agent.gone.set()
        for owner in agent.owners:
            owner.tell(Exit(process.launch_id, in_order, "its agent ended" if in_order else "its agent was killed"))

    def _ended(self, process: Process) -> None:
        if process.ended_at is None:
            process.ended_at = self.record.now()
            self.record.say("  process of {} ends ({})", shown_try(process.tried), process.launch_id[-6:])

    async def _attempt(self, agent: _Agent) -> bool:
        """Live an agent's life. Returns whether it ended in order."""
        process, chance = agent.process, self.chance
        launch_id = process.launch_id
        if not self.calm and chance.random() < self._unlucky_tasks / 4:
            await asyncio.sleep(chance.choice([40.0, 70.0]))  # it hangs before it has said anything
        self.checks.says("started", launch_id)
        answer = await self._say(agent, "started", launch_id=launch_id, pid=agent.pid, host="sim")
        if answer is None:
            process.turned_away = True
            self.record.count("agents turned away")
            return True
        process.begun_at = self.record.now()
        self.record.count("tasks begun")
        self.record.say("  {} begins ({})", shown_try(process.tried), launch_id[-6:])
        self.checks.begun(process)
        luck = 1.0 if self.calm else chance.random()
        takes = chance.choice([0.0, 0.1, 1.0, 4.0, 12.0]) * self._quick
        limit = answer["work"]["execution_timeout"]
        still = 0.0
        if not self.calm and chance.random() < self._sleepers:
            takes = chance.choice([30.0, 640.0])
            still = chance.choice([0.0, 400.0, 640.0])  # as after SIGSTOP: its token may run out
            if self.record.now() + max(takes, still) > self._until:
                takes = still = 0.0
        timed_out = limit is not None and takes > limit
        ends = self.record.now() + (limit if timed_out else takes)
        succeeded, reason = (False, "timed out") if timed_out else (luck >= self._unlucky_tasks, "exit status 1")
        if luck < self._unlucky_tasks / 4:
            await self._pause(agent, takes / 2)
            return False  # it dies without a word
        await self._pause(agent, still)
        while (left := ends - self.record.now()) > 0:
            await self._pause(agent, min(left, HEARTBEAT))
            if agent.told_to_end.is_set():
                await asyncio.sleep(chance.choice([0.0, 0.1, 2.0]))
                succeeded, reason = False, "stopped: its agent was told to end"
                break
            if self.record.now() >= ends:
                break
            beat = await self._say_once(agent, "heartbeat")
            if beat is not None and beat[0] in _TURNED_AWAY:
                return True  # its launch does not count any more
            if beat is not None and beat[0] == 200:
                agent.token = beat[1]["token"]
                if beat[1]["stop"] is not None:
                    succeeded, reason = False, beat[1]["stop"]
                    break
        self._ended(process)
        if succeeded:
            self.checks.says("success", launch_id)
        await self._say(
            agent, "finished", state="success" if succeeded else "failed", exit_code=0 if succeeded else 1,
            reason="" if succeeded else reason, timed_out=False, result=None, log_offset=0, log_tail="",
        )  # fmt: skip
        return True

    async def _pause(self, agent: _Agent, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await agent.told_to_end.wait()
        except TimeoutError:
            return

    async def _say(self, agent: _Agent, door: str, **said: Any) -> Any:
        """Say it until it is heard. Returns the answer; None: it was turned away."""
        while True:
            heard = await self._say_once(agent, door, **said)
            if heard is not None and heard[0] == 200:
                return heard[1]
            if heard is not None and heard[0] in _TURNED_AWAY:
                return None
            await asyncio.sleep(_AGAIN)

    async def _say_once(self, agent: _Agent, door: str, **said: Any) -> tuple[int, Any] | None:
        return await self._post(door, agent.token, agent.process.launch_id, said)

    async def _post(self, door: str, token: str, launch_id: str, said: Mapping[str, Any]) -> tuple[int, Any] | None:
        """Ask whoever serves now; None: the connection was lost."""
        server = self._server()
        if server is None:
            return None
        spoken = self.checks.speaks(server.number, door, token, launch_id)
        heard: tuple[tuple[int, Any]] | None = None
        try:
            heard = await server.serve(lambda: server.post(door, token, json.dumps(said).encode()))
        finally:
            self.checks.spoke(spoken, None if heard is None else heard[0][0])
        return None if heard is None else heard[0]

    # Tokens that fell into the wrong hands

    def steal(self, number: float) -> None:
        """Somebody has got hold of tokens, and shows them where they do not belong."""
        chance, issued = Random(number), list(self.record.issued.values())
        for _ in range(_TRIES if issued else 0):
            one, other = chance.choice(issued), chance.choice(issued)
            siblings = [i for i in issued if i.attempt_id == one.attempt_id and i.launch_id != one.launch_id]
            if siblings and chance.random() < 0.7:
                other = chance.choice(siblings)
            if not self.checks.counts(one.launch_id):
                self.spawn(self._show(chance.choice(_DOORS), one.secret, one.launch_id))
            if other.launch_id != one.launch_id:
                self.spawn(self._show("started", one.secret, other.launch_id))
            head, payload, signature = one.secret.split(".")
            _, payload_of_other, signature_of_other = other.secret.split(".")
            forged = chance.choice(
                [
                    f"{head}.{payload_of_other}.{signature}",
                    f"{head}.{payload}.{signature_of_other}",
                    f"{head}.{payload}.",
                ]
            )
            if forged not in self.record.issued:
                self.spawn(self._show(chance.choice(_DOORS), forged, one.launch_id))

    async def _show(self, door: str, token: str, launch_id: str) -> None:
        await self._post(
            door, token, launch_id,
            {"launch_id": launch_id, "pid": 666, "host": "elsewhere", "state": "success", "exit_code": 0, "reason": "",
             "timed_out": False, "result": '"stolen"', "log_offset": 0, "log_tail": "c3RvbGVu"},
        )  # fmt: skip


class SimulatedExecutor:
    """See `executors.ports.Executor`; one for each control plane, all on one machine."""

    def __init__(self, machine: Machine, plane: int) -> None:
        self._machine = machine
        self._plane = plane
        self._callback: Callable[[Exit], None] = lambda exit_: None
        self._starting: dict[str, asyncio.Task[None]] = {}
        self.dead = False

    def on_exit(self, callback: Callable[[Exit], None]) -> None:
        """See `Executor.on_exit`."""
        self._callback = callback

    def tell(self, exit_: Exit) -> None:
        if not self.dead:
            self._callback(exit_)

    def die(self) -> None:
        """The control plane was killed: what its spawner has in hand may still be forked, or not."""
        self.dead = True
        for task in self._starting.values():
            if self._machine.chance.random() < 0.5:
                task.cancel()

    async def start(self, launch: Launch) -> None:
        """See `Executor.start`."""
        if self.dead:
            raise asyncio.CancelledError  # what is left of its code reaches nothing any more
        machine = self._machine
        attempt = launch.admitted.attempt
        tried = attempt.run_id, attempt.task_id, attempt.try_number
        start = Start(
            machine.record.next(), machine.record.now(), self._plane, attempt.id, launch.launch_id, tried,
            attempt.tenant_id,
        )  # fmt: skip
        machine.record.starts.append(start)
        machine.checks.started(start, launch)
        unlucky = not machine.calm and machine.chance.random() < machine.unlucky_starts
        how = machine.chance.choice(["fails", "slow", "slower", "never"]) if unlucky else "well"
        task = machine.spawn(self._fork(start, launch.token.reveal(), how))
        self._starting[launch.launch_id] = task
        task.add_done_callback(lambda _: self._starting.pop(launch.launch_id, None))
        await asyncio.wait([task])  # not cancelled with us: an order that was given is carried out
        if how == "fails":
            raise ExecutorError("no more processes")

    async def _fork(self, start: Start, token: str, how: str) -> None:
        chance = self._machine.chance
        match how:
            case "fails":
                await asyncio.sleep(0.01)
                return
            case "slow":
                await asyncio.sleep(chance.choice([1.0, 5.0]))
            case "slower":
                await asyncio.sleep(chance.choice([31.0, 45.0]))
            case "never":
                await asyncio.sleep(100.0)
                return
            case _:
                await asyncio.sleep(chance.choice([0.0, 0.001, 0.05]))
        self._machine.fork(start, token, self)

    async def find(self, launch_id: str) -> Found:
        """See `Executor.find`."""
        await self._settled(launch_id)
        agent = self._machine.agents.get(launch_id)
        return Found(launch_id, alive=agent is not None and not agent.gone.is_set())

    async def kill(self, launch_id: str, grace: float = 10.0) -> None:
        """See `Executor.kill`."""
        await self._settled(launch_id)
        agent = self._machine.agents.get(launch_id)
        if agent is None or agent.gone.is_set() or self.dead:
            return
        if self not in agent.owners:
            agent.owners.append(self)
        agent.told_to_end.set()
        await asyncio.sleep(self._machine.chance.choice([0.0, 0.02, 0.3]))  # meanwhile it may say that it starts
        if agent.process.begun_at is None and agent.life is not None:
            agent.life.cancel()  # it has no handler for SIGTERM yet
        try:
            async with asyncio.timeout(grace):
                await agent.gone.wait()
        except TimeoutError:
            if agent.life is not None and not self.dead:
                agent.life.cancel()
            await agent.gone.wait()

    async def recover(self) -> list[str]:
        """See `Executor.recover`."""
        alive = [launch_id for launch_id, agent in sorted(self._machine.agents.items()) if not agent.gone.is_set()]
        for launch_id in alive:
            self._machine.agents[launch_id].owners.append(self)
        return alive

    async def aclose(self) -> None:
        """See `Executor.aclose`."""

    async def _settled(self, launch_id: str) -> None:
        if (starting := self._starting.get(launch_id)) is not None:
            await asyncio.wait([starting])
