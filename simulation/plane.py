"""One control plane, wired as `server.lite` wires it, with its edges on the simulated world.

It is killed without warning: from that moment nothing it does reaches the database, the machine or the hooks' answers,
whatever its code still runs on its way out.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar

from sqlalchemy import Engine
from starlette.requests import Request as HttpRequest
from starlette.routing import Route

from dexaflow.admission.decisions import Request
from dexaflow.admission.gate import Gate
from dexaflow.admission.results import Admitted, Outcome
from dexaflow.api.agent_routes import agent_routes
from dexaflow.base.clock import Clock
from dexaflow.base.errors import DexaflowError
from dexaflow.dispatch.dispatcher import MAX_RECHECKS, Dispatcher
from dexaflow.dispatch.line import Line
from dexaflow.model.attempt import Attempt
from dexaflow.policy.policy import Policy
from dexaflow.reports.handling import AgentReports
from dexaflow.reports.logs import LogFiles
from dexaflow.reports.watch import Watch
from dexaflow.scheduling.loop import Scheduler
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.server.agents import AgentDesk
from dexaflow.server.commands import ServerCommands
from dexaflow.server.upkeep import keep_time, take_up
from dexaflow.store import leading, people
from dexaflow.store.bridge import Store, UpClock, run_alone
from dexaflow.store.engine import open_writer
from dexaflow.tokens.keys import SigningKey, public_keys
from dexaflow.tokens.launch import Launched
from dexaflow.tokens.lifetime import Up
from dexaflow.tokens.mint import Minter
from dexaflow.tokens.token import AgentToken, Claims
from dexaflow.tokens.verify import Verifier
from simulation.checks import Checks
from simulation.hooks import Alive, AskedHook
from simulation.machine import HEARTBEAT, Machine, SimulatedExecutor
from simulation.queueing import QueueingStore
from simulation.record import Record

__all__ = ["ControlPlane", "KillableStore", "Surroundings"]

T = TypeVar("T")
SILENCE = 12.0  # seconds after which the watch looks for an agent


class Surroundings:
    """What every control plane of one world is put into."""

    def __init__(
        self,
        *,
        database: Path,
        clock: Clock,
        key: SigningKey,
        machine: Machine,
        hooks: Sequence[AskedHook],
        record: Record,
        checks: Checks,
        chance: Random,
        new_id: Callable[[], str],
        policy: Policy,
        fail_open: bool,
        recheck: float,
        parallelism: int,
        places: int = MAX_RECHECKS,
    ) -> None:
        self.database = database
        self.clock = clock
        self.key = key
        self.machine = machine
        self.hooks = hooks
        self.record = record
        self.checks = checks
        self.chance = chance
        self.new_id = new_id
        self.policy = policy
        self.fail_open = fail_open
        self.recheck = recheck
        self.parallelism = parallelism
        self.places = places
        self.disk_is_full = False
        self.stalled_until = 0.0
        self.slow_store = 0.0

    def pace(self) -> tuple[float, float]:
        """Seconds before the store does a batch, and before its end is heard."""
        if (stalled := self.stalled_until - self.clock.monotonic()) > 0:
            return stalled, 0.0
        if not self.slow_store:
            return 0.0, 0.0
        return self.chance.random() * self.slow_store, self.chance.random() * self.slow_store


class ControlPlane(Alive):
    """Begin with `begin()`; `kill()` at any time."""

    def __init__(self, number: int, around: Surroundings) -> None:
        self.number = number
        self.dead = False
        self.ready = False
        self._around = around
        self._served: set[asyncio.Task[Any]] = set()
        self._root: asyncio.Task[None] | None = None
        self._store: KillableStore | None = None
        self.executor = SimulatedExecutor(around.machine, number)
        self._doors: Mapping[str, Route]
        self.commands: ServerCommands
        self.dispatcher: Dispatcher
        self.gate: Gate

    def begin(self) -> None:
        around = self._around
        around.record.say("plane {} begins", self.number)
        self._root = asyncio.get_running_loop().create_task(self._run())
        self._root.add_done_callback(self._ended)

    def _ended(self, root: asyncio.Task[None]) -> None:
        if self.dead:
            return
        failure = None if root.cancelled() else root.exception()
        self._around.record.say("plane {} ends: {!r}", self.number, failure)
        self._around.checks.plane_ended(self.number, failure)
        self._die()

    def kill(self) -> None:
        """End it where it stands, as SIGKILL does."""
        if not self.dead:
            self._around.record.say("plane {} is killed", self.number)
            self._around.record.count("crashes")
            self._die()

    def _die(self) -> None:
        self.dead = True
        self.ready = False
        self._around.checks.plane_died(self.number)
        self.executor.die()
        if self._store is not None:
            self._store.dead = True
        for task in (self._root, *self._served):
            if task is not None and not task.done():
                task.cancel()

    def _is_dead(self) -> bool:
        return self.dead

    async def serve(self, request: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T] | None:
        """Answer one request of an agent or a person; None: the connection was lost, or it failed."""
        if self.dead or not self.ready:
            return None
        task = asyncio.get_running_loop().create_task(request())
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        # Whoever asked may be killed meanwhile: then nobody hears how the request ended.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([task])
        if task.cancelled():
            return None
        failure = task.exception()
        if self._is_dead():
            return None  # it was done, and nobody heard of it
        if failure is None:
            return (task.result(),)
        if not isinstance(failure, DexaflowError):  # a person may ask for what cannot be; that is told to them
            self._around.checks.failed_by_itself(f"a request failed: {failure!r}")
        return None

    async def post(self, door: str, token: str, body: bytes) -> tuple[int, Any]:
        """Do what the server does with an agent's POST; returns the status, and what the body says."""
        scope = {
            "type": "http", "method": "POST", "path": f"/agent/v1/{door}", "query_string": b"offset=0",
            "headers": [(b"authorization", f"Bearer {token}".encode("latin-1"))],
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        answer = await self._doors[door].endpoint(HttpRequest(scope, receive))
        return answer.status_code, json.loads(answer.body)

    async def _run(self) -> None:
        around = self._around
        clock, new_id, record, checks = around.clock, around.new_id, around.record, around.checks
        engine = open_writer(around.database)
        try:
            base = run_alone(engine, leading.read_up, clock=clock, up=lambda: 0.0, new_id=new_id, term=None)
            up = UpClock(clock, base).up
            await asyncio.sleep(0)  # it can be killed between any two of these
            term = run_alone(engine, leading.take_lead, clock=clock, up=up, new_id=new_id, term=None)
            record.say("plane {} leads, term {}", self.number, term)
            checks.leads(self.number)
            await asyncio.sleep(0)
            found = run_alone(engine, leading.recover, clock=clock, up=up, new_id=new_id, term=term)
            checks.committed()
            await asyncio.sleep(0)
            run_alone(engine, people.ensure_default_pool, clock=clock, up=up, new_id=new_id, term=term)
            store = self._store = self._open_store(engine, up, term)
            gate = self.gate = Gate(
                [hook.caller_of(self) for hook in around.hooks], policy=around.policy,
                fail_open=around.fail_open, clock=clock, new_uid=new_id, new_incident=new_id,
                observer=_Observer(self),
            )  # fmt: skip
            scheduler = Scheduler(
                store, clock=clock, up=up, parallelism=around.parallelism,
                on_queued=lambda attempt: self.dispatcher.dispatch(attempt),
                on_kill=lambda kill: self.commands.ended(kill),
            )  # fmt: skip
            watch = Watch(
                store, self.executor, clock=clock, retry=seconds_to_retry, silence=SILENCE,
                wake_scheduler=scheduler.wake,
            )  # fmt: skip
            self.executor.on_exit(watch.exited)
            minter = _Minter(self, around, up)
            line = Line(
                policy=lambda: around.policy, gate=gate, minter=minter, executor=self.executor,
                store=store, clock=clock, new_id=new_id, parallelism=around.parallelism, term=term,
                retry=seconds_to_retry,
            )  # fmt: skip
            self.dispatcher = Dispatcher(
                line, gate, store, clock=clock, up=up, recheck=around.recheck, jitter=around.chance.random,
                retry=seconds_to_retry, wake_scheduler=scheduler.wake, max_rechecks=around.places,
            )  # fmt: skip
            nowhere = around.database.parent
            reports = AgentReports(
                store, LogFiles(nowhere), watch, versions=nowhere, retry=seconds_to_retry,
                wake_scheduler=scheduler.wake,
            )  # fmt: skip
            verifier = Verifier(public_keys(around.key), up)
            desk = AgentDesk(reports, minter, heartbeat_seconds=HEARTBEAT)
            self._doors = {route.path.rpartition("/")[2]: route for route in agent_routes(desk, verifier)}
            self.commands = ServerCommands(
                store, gate, self.dispatcher, scheduler, watch, clock=clock,
            )  # fmt: skip
            await take_up(self.executor, watch, found)
            self.ready = True
            checks.serves(self.number)
            async with asyncio.TaskGroup() as group:
                group.create_task(scheduler.run())
                group.create_task(self.dispatcher.run())
                group.create_task(watch.run())
                group.create_task(keep_time(store, lambda: None))
        finally:
            await self._let_go(engine)

    def _open_store(self, engine: Engine, up: Callable[[], float], term: int) -> "KillableStore":
        around, checks = self._around, self._around.checks
        return QueueingStore(
            engine, clock=around.clock, up=up, new_id=around.new_id, term=term, pace=around.pace,
            failing=lambda: around.disk_is_full, committed=checks.committed,
            failed=lambda: checks.write_failed(self.number),
        )  # fmt: skip

    async def _let_go(self, engine: Engine) -> None:
        if self._store is not None:
            self._store.dead = True  # what it still had to do finds no database
        engine.dispose()


class KillableStore(Store, Protocol):
    """A store that does nothing more once its control plane is dead."""

    dead: bool


class _Minter(Minter):
    """The real one; each token it gives is noted."""

    def __init__(self, plane: ControlPlane, around: Surroundings, up: Up) -> None:
        super().__init__(around.key, up)
        self._plane = plane
        self._around = around

    def mint(self, admitted: Admitted, launched: Launched) -> AgentToken:
        """See `Minter.mint`."""
        token = super().mint(admitted, launched)
        if not self._plane.dead:
            self._around.checks.minted(self._plane.number, admitted, token.attempt_id, token.launch_id)
            self._note(token)
        return token

    def renew(self, claims: Claims) -> AgentToken:
        """See `Minter.renew`."""
        token = super().renew(claims)
        if not self._plane.dead:
            self._note(token)
        return token

    def _note(self, token: AgentToken) -> None:
        self._around.checks.issued(token.reveal(), token.attempt_id, token.launch_id)


class _Observer:
    """The gate's observer: as the server's, it has the dispatcher look when a breaker moves."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def reviewed(self, attempt: Attempt, hook: str, outcome: Outcome, seconds: float | None) -> None:
        """See `Observer.reviewed`."""
        if not self._plane.dead:
            self._plane._around.checks.reviewed(self._plane.number, attempt, hook, outcome, put=seconds is not None)

    def hook_failed(self, request: Request, hook: str, incident: str, cause: str, *, bypassed: bool) -> None:
        """See `Observer.hook_failed`."""

    def breaker_changed(self, hook: str, *, is_open: bool) -> None:
        """See `Observer.breaker_changed`."""
        self._plane._around.record.say("  the breaker of {} is {}", hook, "open" if is_open else "closed")
        self._plane._around.record.count("breakers opened" if is_open else "breakers closed")
        self._plane.dispatcher.wake()
