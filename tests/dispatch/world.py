"""The real scheduler, dispatcher, gate, breaker and store on a virtual clock; hooks and executor are simulated.

The store is called directly, without its thread. A `World` can be crashed and started again on the same database.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dexaflow.admission import Admit, Hold, Refuse, Request
from dexaflow.admission.gate import Gate
from dexaflow.admission.ports import Answered
from dexaflow.admission.results import Outcome
from dexaflow.base.errors import ExecutorError, HookBroken, StoreError
from dexaflow.dispatch.dispatcher import Dispatcher
from dexaflow.dispatch.line import Line
from dexaflow.executors.ports import Exit, Found, Launch
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.states import State
from dexaflow.policy.policy import Policy
from dexaflow.reports.watch import Watch
from dexaflow.scheduling.loop import Scheduler
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.store import leading, people, registering, reporting, running
from dexaflow.store.bridge import Store, UpClock, run_alone
from dexaflow.store.engine import open_writer
from dexaflow.store.migrating import migrate
from dexaflow.store.transaction import Tx
from dexaflow.tokens.keys import load_or_create
from dexaflow.tokens.mint import Minter
from tests.virtual_time import VirtualClock, VirtualLoop

T = TypeVar("T")
Answer = Admit | Hold | Refuse | HookBroken
FULL = StoreError("the database refused a write: database or disk is full")
BROKEN = HookBroken("connection refused at https://secret.example:8443")


@dataclass
class SimulatedHook:
    """Answers as `answers` says, after `takes` seconds; remembers every question with its time."""

    name: str = "webhook"
    answer: Callable[[Request], Answer] = lambda request: Admit()
    takes: float = 0.01
    asked: list[tuple[float, Request]] = field(default_factory=list)

    async def ask(self, request: Request) -> Answered:
        self.asked.append((asyncio.get_running_loop().time(), request))
        await asyncio.sleep(self.takes)
        answer = self.answer(request)
        if isinstance(answer, HookBroken):
            raise answer
        return Answered(answer, self.takes)

    def always(self, answer: Answer) -> None:
        self.answer = lambda request: answer

    def times(self, task_id: str) -> list[float]:
        return [at for at, request in self.asked if request.task_id == task_id]


class SimulatedExecutor:
    """Runs nothing: each launch says started after `starts_after` seconds and succeeds after `takes` more."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.takes = 0.1
        self.starts_after = 0.001
        self.hangs: Callable[[Launch], bool] = lambda launch: False  # `start` does not come back
        self.kill_hangs: set[str] = set()
        self.kill_fails: dict[str, int] = {}  # how often it still does
        self.find_fails: set[str] = set()
        self.launches: list[Launch] = []
        self.begun: list[str] = []  # launches whose agents were let begin
        self.turned_away: list[str] = []
        self.killed: list[str] = []
        self._exited: Callable[[Exit], None] = lambda exit_: None

    async def start(self, launch: Launch) -> None:
        self.launches.append(launch)
        if self.hangs(launch):
            await asyncio.Event().wait()
        self._world.spawn(self._agent(launch))

    async def _agent(self, launch: Launch) -> None:
        attempt_id, launch_id = launch.launched.attempt_id, launch.launch_id
        await asyncio.sleep(self.starts_after)
        if launch_id in self.killed:
            return
        if self._world.do(lambda tx: reporting.started(tx, attempt_id, launch_id, "sim", 1)) is None:
            self.turned_away.append(launch_id)
            return
        self.begun.append(launch_id)
        self._world.watch.heard(launch_id)
        await asyncio.sleep(self.takes)
        if launch_id in self.killed:
            return
        self._world.do(
            lambda tx: reporting.attempt_ended(
                tx, attempt_id, launch_id, succeeded=True, reason="", exit_code=0, result=None, retry=seconds_to_retry
            )
        )
        self._world.watch.ended(launch_id)
        self._world.scheduler.wake()

    def dies(self, launch_id: str, *, in_order: bool = False) -> None:
        """Let an agent end without a report."""
        self.killed.append(launch_id)
        self._exited(Exit(launch_id, in_order, "its agent was killed by SIGKILL"))

    async def find(self, launch_id: str) -> Found:
        if launch_id in self.find_fails:
            raise OSError("no /proc")
        return Found(launch_id, alive=launch_id not in self.killed)

    async def kill(self, launch_id: str, grace: float = 10.0) -> None:
        if launch_id in self.kill_hangs:
            await asyncio.Event().wait()
        if self.kill_fails.get(launch_id, 0) > 0:
            self.kill_fails[launch_id] -= 1
            raise ExecutorError("not dead yet")
        self.killed.append(launch_id)

    async def recover(self) -> list[str]:
        return []

    def on_exit(self, callback: Callable[[Exit], None]) -> None:
        self._exited = callback

    async def aclose(self) -> None: ...


class Watching:
    """The gate's observer, remembering what was counted."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.outcomes: list[Outcome] = []
        self.causes: list[str] = []

    def reviewed(self, attempt: Attempt, hook: str, outcome: Outcome, seconds: float | None) -> None:
        self.outcomes.append(outcome)

    def hook_failed(self, request: Request, hook: str, incident: str, cause: str, *, bypassed: bool) -> None:
        self.causes.append(cause)

    def breaker_changed(self, hook: str, *, is_open: bool) -> None:
        self._world.dispatcher.wake()


class World:
    """One control plane after the other on one database."""

    def __init__(
        self,
        root: Path,
        *,
        hooks: Sequence[SimulatedHook] = (),
        recheck: float = 15.0,
        fail_open: bool = False,
        parallelism: int = 16,
    ) -> None:
        self.root = root
        self.recheck = recheck
        self.fail_open = fail_open
        self.parallelism = parallelism
        self.hooks = list(hooks) or [SimulatedHook()]
        self.ids = itertools.count(1)
        self.jitter = itertools.cycle([0.0, 0.5, 0.99])
        self.engine = open_writer(root / "dexaflow.db")
        migrate(self.engine)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.clock = VirtualClock(loop)
        self._spawned: set[asyncio.Task[None]] = set()
        self._control: asyncio.Task[None] | None = None
        self.store_fails: Callable[[], Exception | None] = lambda: None  # what a write of the loops raises
        self.store_takes = 0.0  # seconds that each of them waits first
        self.term: int | None = None
        self.up: Callable[[], float] = lambda: 0.0
        self.executor = SimulatedExecutor(self)
        self.key = load_or_create(root / "signing.key")
        self.observer = Watching(self)
        self.store: Store
        self.scheduler: Scheduler
        self.dispatcher: Dispatcher
        self.gate: Gate
        self.watch: Watch

    @property
    def hook(self) -> SimulatedHook:
        return self.hooks[0]

    def new_id(self) -> str:
        return f"00000000-0000-4000-8000-{next(self.ids):012d}"

    def do(self, verb: Callable[[Tx], T]) -> T:
        """Do one verb as the present control plane."""
        return run_alone(self.engine, verb, clock=self.clock, up=self.up, new_id=self.new_id, term=self.term)

    def spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = asyncio.get_running_loop().create_task(run())
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)

    def start(self) -> None:
        """Begin a control plane, as `server.lite` does."""
        self.term, self.up = None, lambda: 0.0
        self.up = UpClock(self.clock, self.do(leading.read_up)).up
        self.term = self.do(leading.take_lead)
        found = self.do(leading.recover)
        self.do(people.ensure_default_pool)
        for attempt_id, launch_id in found.launching:
            self.do(lambda tx, a=attempt_id, i=launch_id: reporting.lost(tx, a, i))  # type: ignore[misc]
        world = self

        class Direct:
            async def do(self, verb: Callable[[Tx], T]) -> T:
                await asyncio.sleep(world.store_takes)
                failure = world.store_fails()
                if failure is not None:
                    raise failure
                return world.do(verb)

        store = self.store = Direct()
        gate = Gate(
            self.hooks, policy=Policy(), fail_open=self.fail_open, clock=self.clock, new_uid=self.new_id,
            new_incident=lambda: f"incident{next(self.ids)}", observer=self.observer,
        )  # fmt: skip
        scheduler = Scheduler(
            store, clock=self.clock, up=self.up, parallelism=self.parallelism,
            on_queued=lambda attempt: self.dispatcher.dispatch(attempt), on_kill=self.kill,
        )  # fmt: skip
        self.watch = Watch(
            store, self.executor, clock=self.clock, retry=seconds_to_retry, silence=30.0,
            wake_scheduler=scheduler.wake,
        )  # fmt: skip
        self.executor.on_exit(self.watch.exited)
        line = Line(
            policy=Policy, gate=gate, minter=Minter(self.key, self.up), executor=self.executor, store=store,
            clock=self.clock, new_id=self.new_id, parallelism=self.parallelism, term=self.term,
            retry=seconds_to_retry,
        )  # fmt: skip
        self.dispatcher = Dispatcher(
            line, gate, store, clock=self.clock, up=self.up, recheck=self.recheck,
            jitter=lambda: next(self.jitter), retry=seconds_to_retry, wake_scheduler=scheduler.wake,
        )  # fmt: skip
        self.scheduler, self.gate = scheduler, gate
        self._control = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.scheduler.run())
            group.create_task(self.dispatcher.run())
            group.create_task(self.watch.run())
            group.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.do(leading.tick)

    def kill(self, kill: people.ToKill) -> None:
        """As `server.commands` does: tell whoever must know."""
        for attempt_id in kill.unheld:
            self.dispatcher.unheld(attempt_id)
        self.watch.kill(kill)
        self.scheduler.wake()

    def cancel(self, run_id: str = "r") -> None:
        self.kill(self.do(lambda tx: people.cancel_run(tx, run_id, "cancelled by alice")))

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Have every write of the loops fail for the length of a block."""
        self.store_fails = lambda: FULL
        yield
        self.store_fails = lambda: None

    async def crash(self) -> None:
        """End the control plane wherever it stands; what it was about to write is not written."""
        assert self._control is not None
        self._control.cancel()
        with suppress(asyncio.CancelledError, BaseExceptionGroup):
            await self._control
        self._control = None

    def register(self, *tasks: TaskSpec, dag_id: str = "d", tenant_id: str = "acme", **dag: Any) -> None:
        loaded = registering.DagFile(tenant_id, f"{dag_id}.py", "snapshot", (DagSpec(dag_id, tasks, **dag),))
        assert self.do(lambda tx: registering.register_file(tx, loaded, (), lambda *_: None))[0] == ()

    def trigger(self, run_id: str = "r", dag_id: str = "d") -> str:
        new = running.NewRun(run_id, "manual", None, None, None, {}, "test")
        self.do(lambda tx: running.create_run(tx, dag_id, new))
        self.scheduler.wake()
        return run_id

    def pool(self, slots: int, name: str = "default_pool") -> None:
        self.do(lambda tx: people.set_pool(tx, name, slots, None))

    def row(self, task_id: str = "t", run_id: str = "r") -> Any:
        row = self.do(
            lambda tx: tx.one("SELECT * FROM task_instances WHERE run_id = :r AND task_id = :t", r=run_id, t=task_id)
        )
        assert row is not None
        return row

    def state(self, task_id: str = "t", run_id: str = "r") -> State:
        return State(self.row(task_id, run_id).state)

    def reviews(self, task_id: str = "t") -> list[Any]:
        return self.do(lambda tx: tx.all("SELECT * FROM reviews WHERE task_id = :t ORDER BY id", t=task_id))

    async def seconds(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)
        assert self._control is None or not self._control.done(), self._control.exception()


@asynccontextmanager
async def world(root: Path, **options: Any) -> Any:
    """Give a world whose control plane is up."""
    made = World(root, **options)
    made.start()
    try:
        yield made
    finally:
        if made._control is not None:
            await made.crash()
        for task in list(made._spawned):
            task.cancel()
        made.engine.dispose()
