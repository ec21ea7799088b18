"""One night: a drawn world is run, everything drawn befalls it, all becomes calm, and the checks say what they saw."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import structlog

from dexaflow.scheduling.loop import planner
from dexaflow.server.commands import ServerCommands
from dexaflow.store import registering
from dexaflow.store.bridge import run_alone
from dexaflow.store.engine import open_writer
from dexaflow.store.migrating import migrate
from dexaflow.store.transaction import Tx
from dexaflow.tokens.keys import SigningKey, generate
from simulation.check import Violation
from simulation.checks import Checks
from simulation.drawing import Drawn, Event, draw
from simulation.hooks import SimulatedHook
from simulation.loop import SimulatedClock, SteppedLoop
from simulation.machine import Machine
from simulation.plane import ControlPlane, Surroundings
from simulation.queueing import FULL
from simulation.reading import ENDED, Outside
from simulation.record import Record

__all__ = ["Outcome", "live_through"]

CALM_SECONDS = 600.0  # and one recheck: for all that waits to reach its end, once nothing befalls it any more
RESTED = 3.0  # seconds in which nothing may happen any more, at the end


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a night."""

    seed: int
    violations: tuple[Violation, ...]
    trace: tuple[str, ...]
    counts: dict[str, int]
    seconds: float  # of virtual time
    steps: int


class _Over(Exception):  # noqa: N818 - not an error
    """A promise is broken: the night ends here."""


@cache
def _key() -> SigningKey:
    return generate()


@cache
def _template(folder: str) -> Path:
    """Return an empty database with all tables, made once a process."""
    path = Path(tempfile.mkdtemp(prefix="template", dir=folder)) / "empty.db"
    engine = open_writer(path)
    migrate(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return path


def live_through(seed: int, folder: Path) -> Outcome:
    """Run the world of a seed to its end, or until a promise is broken. `folder` is for its database."""
    database = folder / f"{seed}.db"
    shutil.copyfile(_template(str(folder)), database)
    try:
        return _Night(draw(seed), database).run()
    finally:
        for path in folder.glob(f"{seed}.db*"):
            path.unlink()


class _Night:
    def __init__(self, drawn: Drawn, database: Path) -> None:
        self._drawn = drawn
        self._loop = SteppedLoop()
        self._chance = Random(f"night {drawn.seed}")
        self._ids = Random(f"ids {drawn.seed}")
        self._record = Record(self._loop.time, self._loop.time())
        self._outside = Outside(database)
        self._checks = Checks(drawn, self._record, self._outside)
        self._planes: list[ControlPlane] = []
        self._crash_in: tuple[int, ControlPlane, float] | None = None
        self._calm = False  # nothing befalls it any more, and a server that has ended is started again
        self._tasks: set[asyncio.Task[None]] = set()
        clock = SimulatedClock(self._loop)
        self._clock = clock
        began = self._loop.time()
        hooks = self._hooks = [
            SimulatedHook(h, Random(f"hook {h.name} {drawn.seed}"), self._record, self._checks, began)
            for h in drawn.hooks
        ]
        self._machine = Machine(
            chance=Random(f"machine {drawn.seed}"), record=self._record, checks=self._checks,
            server=lambda: next((p for p in reversed(self._planes) if p.ready), None),
            unlucky_starts=drawn.unlucky_starts, unlucky_tasks=drawn.unlucky_tasks,
            sleepers=drawn.sleepers, until=began + drawn.busy,
        )  # fmt: skip
        self._around = Surroundings(
            database=database, clock=clock, key=_key(), machine=self._machine, hooks=hooks, record=self._record,
            checks=self._checks, chance=Random(f"plane {drawn.seed}"), new_id=self._new_id, policy=drawn.policy,
            fail_open=drawn.fail_open, recheck=drawn.recheck, parallelism=drawn.parallelism, places=drawn.places,
        )  # fmt: skip
        self._around.slow_store = drawn.slow_store

    def _new_id(self) -> str:
        return f"{self._ids.getrandbits(64):016x}-{self._ids.getrandbits(16):04x}"

    def run(self) -> Outcome:
        loop = self._loop
        loop.after_step = self._after_step
        loop.set_exception_handler(self._on_trouble)
        asyncio.set_event_loop(None)
        try:
            with _heard_log(self._checks):
                try:
                    loop.run_until_complete(self._live())
                except _Over:
                    pass
                except Exception as error:  # noqa: BLE001 - a simulation that cannot go on says so as a finding
                    self._checks.failed_by_itself(f"the night ended with {error!r}")
                finally:
                    loop.after_step = lambda: None
                    self._tidy()
        finally:
            self._outside.close()
        return Outcome(
            self._drawn.seed, tuple(self._checks.violations), tuple(self._record.trace()), self._record.counts,
            loop.time() - 1000.0, loop.steps,
        )  # fmt: skip

    def _tidy(self) -> None:
        """Leave nothing behind; nothing of what happens here counts."""
        for plane in self._planes:
            if not plane.dead:
                plane._die()
        violations = list(self._checks.violations)
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            with suppress(RuntimeError):  # a night that ended in its very last step stops the loop once more
                self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()
        self._checks.violations[:] = violations

    def _on_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        self._checks.failed_by_itself(f"{context.get('message')}: {context.get('exception')!r}")

    def _after_step(self) -> None:
        if self._checks.violations:
            raise _Over
        if self._crash_in is not None:
            left, plane, down = self._crash_in
            if left > 0:
                self._crash_in = left - 1, plane, down
            else:
                self._crash_in = None
                plane.kill()
                self._spawn(self._begin_later(down))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # The story

    async def _live(self) -> None:
        self._set_up()
        self._begin()
        began = self._loop.time()
        for event in self._drawn.events:
            await asyncio.sleep(max(0.0, began + event.at - self._loop.time()))
            await self._befall(event)
        await asyncio.sleep(max(0.0, began + self._drawn.busy - self._loop.time()))
        await self._calm_down()
        self._checks.end()

    def _set_up(self) -> None:
        engine = open_writer(self._around.database)

        def do(verb: Callable[[Tx], object]) -> None:
            run_alone(engine, verb, clock=self._clock, up=lambda: 0.0, new_id=self._new_id, term=None)

        for tenant, dag in self._drawn.dags:
            file = registering.DagFile(tenant, f"{dag.dag_id}.py", "snapshot", (dag,))
            do(partial(_register, file))
        for pool, slots in self._drawn.pools.items():
            do(partial(_make_pool, pool, slots))
        engine.dispose()
        self._checks.committed()

    def _begin(self) -> ControlPlane:
        plane = ControlPlane(len(self._planes) + 1, self._around)
        self._planes.append(plane)
        plane.begin()
        return plane

    async def _begin_later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not any(not plane.dead for plane in self._planes):
            self._begin()

    @property
    def _serving(self) -> ControlPlane | None:
        return next((p for p in reversed(self._planes) if p.ready), None)

    async def _server(self) -> ControlPlane:
        while (serving := self._serving) is None:
            if self._calm:  # the last one may have lost its lead to one that was killed, and find out only now
                await self._begin_later(0.0)
            await asyncio.sleep(0.1)
        return serving

    async def _insist(self, what: Callable[[ServerCommands], Coroutine[Any, Any, None]]) -> None:
        """Ask for something until it is done, of whichever control plane serves by then."""
        while True:
            plane = await self._server()
            if await plane.serve(lambda: what(plane.commands)) is not None:  # noqa: B023 - awaited here
                return
            await asyncio.sleep(0.1)

    async def _befall(self, event: Event) -> None:
        record, around = self._record, self._around
        record.count(event.what)
        record.say("-- {} {}", event.what, event.seconds or "")
        serving = self._serving
        match event.what:
            case "trigger" | "cancel" | "clear" | "pause" | "unpause" | "ask now" | "resize pool":
                if serving is not None:
                    await self._person(serving, event)
            case "crash" | "crash soon":
                alive = [p for p in self._planes if not p.dead]
                if alive:
                    steps = 0 if event.what == "crash" else int(event.number * 60)
                    self._crash_in = steps, alive[-1], event.seconds
            case "second plane":
                self._begin()
            case "clock step":
                self._clock.step(event.seconds)
            case "full disk":
                self._spawn(self._full_disk(event.seconds))
            case "stall":
                around.stalled_until = max(around.stalled_until, self._loop.time() + event.seconds)
                self._spawn(self._stalled(event.seconds))
            case "kill agent":
                self._machine.kill_some(event.number)
            case "stolen tokens":
                self._machine.steal(event.number)

    async def _person(self, plane: ControlPlane, event: Event) -> None:
        number, drawn, commands = event.number, self._drawn, plane.commands
        dag_id = drawn.dags[int(number * len(drawn.dags))][1].dag_id
        runs = self._outside.runs()
        active = sorted(run for run, (state, _) in runs.items() if state == "running")
        chosen_from = active if active and number * 7 % 1 < 0.8 else sorted(runs)
        run_id = chosen_from[int(number * len(chosen_from))] if chosen_from else ""
        match event.what:
            case "trigger":
                run = f"{dag_id}-{self._record.next()}"
                await plane.serve(
                    lambda: commands.trigger(dag_id, run_id=run, conf={}, logical_date=None, by="alice", note="")
                )
            case "cancel" if run_id:
                await plane.serve(lambda: commands.cancel(run_id, by="alice"))
            case "clear" if run_id:
                tasks = sorted(r.task_id for r in self._checks.now.rows.values() if r.run_id == run_id)
                chosen = None if number < 0.3 or not tasks else [tasks[int(number * 97) % len(tasks)]]
                await plane.serve(
                    lambda: commands.clear(
                        run_id, task_ids=chosen, downstream=number > 0.6, only_failed=number > 0.8, by="alice"
                    )
                )
            case "pause" | "unpause":
                await plane.serve(lambda: commands.set_paused(dag_id, paused=event.what == "pause", by="alice"))
            case "ask now" if drawn.hooks:
                self._checks.asked_now_at = self._loop.time() + 1.0
                hook = drawn.hooks[int(number * len(drawn.hooks))].name
                await plane.serve(lambda: commands.ask_now(attempt_id=None, hook=hook))
            case "resize pool":
                pool = sorted(drawn.pools)[int(number * len(drawn.pools))]
                await plane.serve(lambda: commands.set_pool(pool, slots=int(number * 40) % 4, description=None))

    async def _full_disk(self, seconds: float) -> None:
        self._around.disk_is_full = True
        self._hinder()
        await asyncio.sleep(seconds)
        self._around.disk_is_full = False
        self._unhinder()

    async def _stalled(self, seconds: float) -> None:
        self._hinder()
        await asyncio.sleep(seconds)
        self._unhinder()

    def _hinder(self) -> None:
        self._checks.pass_time()
        self._checks.store_works = False

    def _unhinder(self) -> None:
        self._checks.pass_time()
        self._checks.store_works = not self._around.disk_is_full and self._loop.time() >= self._around.stalled_until

    async def _calm_down(self) -> None:
        """Nothing befalls it any more, hooks admit, pools have room: all that waits reaches its end."""
        record, around = self._record, self._around
        record.say("-- calm")
        around.disk_is_full = False
        await asyncio.sleep(max(0.0, around.stalled_until - self._loop.time()))
        self._unhinder()
        self._crash_in = None
        self._calm = True
        for hook in self._hooks:
            hook.calm = True
        self._machine.calm = True
        await self._begin_later(0.0)
        for pool in sorted(self._drawn.pools):
            await self._insist(partial(_give_room, pool))
        for _, dag in self._drawn.dags:
            _unschedule(around, dag.dag_id)
            await self._insist(partial(_unpause, dag.dag_id))
        until = self._loop.time() + CALM_SECONDS + self._drawn.recheck * 1.1
        while self._loop.time() < until:
            await asyncio.sleep(RESTED)
            if (
                all(state in ("success", "failed") for state, _ in self._outside.runs().values())
                and all(row.state in ENDED for row in self._checks.now.rows.values())
                and not (await self._server()).dispatcher.asking
            ):
                await asyncio.sleep(RESTED)
                return


def _register(file: registering.DagFile, tx: Tx) -> None:
    registering.register_file(tx, file, (), planner(tx))


def _make_pool(pool: str, slots: int, tx: Tx) -> None:
    tx.run("INSERT INTO pools (pool, slots) VALUES (:p, :s)", p=pool, s=slots)


async def _give_room(pool: str, commands: ServerCommands) -> None:
    await commands.set_pool(pool, slots=4, description=None)


async def _unpause(dag_id: str, commands: ServerCommands) -> None:
    await commands.set_paused(dag_id, paused=False, by="alice")


def _unschedule(around: Surroundings, dag_id: str) -> None:
    """Take a DAG's schedule away, so that the night has an end."""
    engine = open_writer(around.database)
    run_alone(
        engine, lambda tx: tx.run("UPDATE dags SET is_active = false, next_run_at = NULL WHERE dag_id = :d", d=dag_id),
        clock=around.clock, up=lambda: 0.0, new_id=around.new_id, term=None,
    )  # fmt: skip
    engine.dispose()


@contextmanager
def _heard_log(checks: Checks) -> Iterator[None]:
    """Listen to the product's log: what it calls an error must be one that was drawn."""

    def listen(logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if method in ("error", "critical") and FULL not in str(event.get("cause", "")):
            checks.failed_by_itself(f"the log says {event}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[listen], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)
