"""The same promises on production's own loops and threads: the store's thread, hooks in threads, and time itself.

What happens when is not drawn here but real; so nothing is replayed, and a few seconds have to do.
"""

import asyncio
import itertools
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
import uvloop
from simulation.checks import Checks
from simulation.drawing import MANY_PLACES, draw
from simulation.hooks import Alive
from simulation.machine import Machine
from simulation.plane import ControlPlane, KillableStore, Surroundings
from simulation.reading import ENDED, Outside
from simulation.record import Broken, Record
from simulation.running import place
from sqlalchemy import Engine

from dexaflow.admission import Request, admit, hold, refuse
from dexaflow.admission.ports import Answered, HookCaller
from dexaflow.base.clock import SystemClock
from dexaflow.base.errors import HookBroken
from dexaflow.hooks.inprocess import InProcessCaller
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.policy.policy import Policy
from dexaflow.store import registering
from dexaflow.store.bridge import StoreThread, run_alone
from dexaflow.store.engine import open_writer
from dexaflow.store.migrating import migrate
from dexaflow.store.transaction import Tx
from dexaflow.tokens.keys import generate

T = TypeVar("T")
TIMEOUT = 0.2


asked: Counter[tuple[str, str]] = Counter()  # by run and task, over all of a night


def budget(request: Request) -> object:
    """A plain function, in a thread of its own."""
    asked[request.run_id, request.task_id] += 1
    if request.task_id == "refused":
        return refuse("over budget")
    if request.task_id == "broken" and asked[request.run_id, request.task_id] == 1:
        raise ZeroDivisionError("a fault of the hook's own")
    return admit(labels={"cost-center": "4711"})


async def placement(request: Request) -> object:
    """A coroutine function, on the hooks' own loop."""
    times = asked[request.run_id, request.task_id]
    if request.task_id == "held" and times <= 2:
        return hold("frozen for a while")
    if request.task_id == "slow" and times == 1:
        await asyncio.sleep(TIMEOUT * 2)
    assert request.execution.labels["cost-center"] == "4711"
    return admit(node_selector={"tenant": request.tenant_id})


class _RealHook:
    """A hook in process as the server calls it; what it says is noted."""

    def __init__(self, hook: Callable[[Request], object], record: Record, checks: Checks) -> None:
        self.caller = InProcessCaller(hook, timeout=TIMEOUT)  # type: ignore[arg-type]  # answers are of several types
        self._record = record
        self._checks = checks

    def caller_of(self, plane: Alive) -> HookCaller:
        real = self

        class Noting:
            name = real.caller.name

            async def ask(self, request: Request) -> Answered:
                if plane.dead:
                    raise asyncio.CancelledError
                question = real._record.asked(plane.number, self.name, request)
                real._checks.asked(question)
                try:
                    answered = await real.caller.ask(request)
                    question.answer = answered.decision
                except HookBroken as broken:
                    question.answer = Broken(broken.cause)
                    raise
                finally:
                    if plane.dead:
                        question.answer = None
                    if question.answer is not None:
                        question.answered = real._record.next()
                        question.answered_at = real._record.now()
                        real._checks.answered(question)
                return answered

        return Noting()


class _ThreadedStore:
    """The real store's thread; once its control plane is dead, what is still handed in is not done."""

    def __init__(self, thread: StoreThread, checks: Checks) -> None:
        self.thread = thread
        self.dead = False
        self._checks = checks

    async def do(self, verb: Callable[[Tx], T]) -> T:
        def unless_dead(tx: Tx) -> T:
            if self.dead:
                raise asyncio.CancelledError
            return verb(tx)

        done = await self.thread.do(unless_dead)
        if not self.dead:
            self._checks.committed()
        return done


class _RealPlane(ControlPlane):
    def _open_store(self, engine: Engine, up: Callable[[], float], term: int) -> KillableStore:
        around = self._around
        thread = StoreThread(engine, clock=around.clock, up=up, new_id=around.new_id, term=term)
        thread.start()
        self.thread = thread
        return _ThreadedStore(thread, around.checks)

    async def _let_go(self, engine: Engine) -> None:
        await self.thread.aclose()


def _dag(tenant: str) -> DagSpec:
    names = ("held", "refused", "slow", "broken", "changed")
    tasks = [
        TaskSpec(name, "bash", bash_command="true", retries=1, retry_delay=0.2, pool="small", pool_slots=1)
        for name in names
    ]
    return DagSpec(f"{tenant}_dag", (*tasks, TaskSpec("last", "bash", bash_command="true", upstream=("changed",))))


async def _night(folder: Path) -> Checks:
    asked.clear()
    dags = (("acme", _dag("acme")), ("globex", _dag("globex")))
    names = ("tests.simulation.test_real_loop:budget", "tests.simulation.test_real_loop:placement")
    pattern = draw(1).hooks[0]
    drawn = replace(
        draw(1), dags=dags, hooks=tuple(replace(pattern, name=name) for name in names), recheck=1.0, fail_open=False,
        policy=Policy(), parallelism=6, places=MANY_PLACES,
    )  # fmt: skip
    database, clock, ids = folder / "dexaflow.db", SystemClock(), itertools.count(1)
    engine = open_writer(database)
    migrate(engine)

    def new_id() -> str:
        return f"id-{next(ids):06d}"

    def do(verb: Callable[[Tx], object]) -> None:
        run_alone(engine, verb, clock=clock, up=lambda: 0.0, new_id=new_id, term=None)

    for tenant, dag in dags:
        file = registering.DagFile(tenant, f"{tenant}.py", "snapshot", (dag,))
        do(lambda tx, file=file: registering.register_file(tx, file, (), lambda *_: None))  # type: ignore[misc]
    do(lambda tx: tx.run("INSERT INTO pools (pool, slots) VALUES ('small', 3)"))
    engine.dispose()
    record = Record(asyncio.get_running_loop().time, asyncio.get_running_loop().time())
    checks = Checks(drawn, record, Outside(database))
    planes: list[_RealPlane] = []
    machine = Machine(
        chance=Random(1), record=record, checks=checks, unlucky_starts=0.0, unlucky_tasks=0.0, quick=0.02,
        server=lambda: next((p for p in reversed(planes) if p.ready), None),
    )  # fmt: skip
    hooks = [_RealHook(budget, record, checks), _RealHook(placement, record, checks)]
    around = Surroundings(
        database=database, clock=clock, key=generate(), machine=machine, hooks=hooks, record=record, checks=checks,
        chance=Random(2), new_id=new_id, policy=drawn.policy, fail_open=False, recheck=drawn.recheck,
        parallelism=drawn.parallelism,
    )  # fmt: skip

    async def begin() -> _RealPlane:
        plane = _RealPlane(len(planes) + 1, around)
        planes.append(plane)
        plane.begin()
        while not plane.ready:
            await asyncio.sleep(0.01)
        return plane

    async def trigger(plane: _RealPlane, tenant: str, run: str) -> None:
        await plane.serve(
            lambda: plane.commands.trigger(f"{tenant}_dag", run_id=run, conf={}, logical_date=None, by="alice", note="")
        )

    first = await begin()
    for number, tenant in enumerate(["acme", "globex", "acme", "globex"]):
        await trigger(first, tenant, f"r{number}")
    await asyncio.sleep(0.35)
    first.kill()
    second = await begin()
    await second.serve(lambda: second.commands.cancel("r3", by="bob"))
    await second.serve(
        lambda: second.commands.clear("r0", task_ids=["changed"], downstream=True, only_failed=False, by="bob")
    )
    await asyncio.sleep(0.3)
    third = await begin()  # beside the second, which finds out
    await trigger(third, "acme", "r4")
    async with asyncio.timeout(60):
        while not checks.violations and not (
            all(state in ("success", "failed") for state, _ in checks.outside.runs().values())
            and all(row.state in ENDED for row in checks.now.rows.values())
            and not third.dispatcher.asking
        ):
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    checks.committed()
    checks.end()
    assert second.dead, "it has lost its lead, and goes on"
    found = list(checks.violations)
    third.kill()
    machine.stop()
    for hook in hooks:
        await hook.caller.close()
    for plane in planes:
        await plane.thread.aclose()
    await asyncio.sleep(0.05)
    checks.violations[:] = found
    checks.outside.close()
    return checks


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_the_promises_hold_on_real_loops_and_threads(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Crash, cancel, clear and a second control plane, with every kind of answer."""
    with tempfile.TemporaryDirectory(dir=place()) as folder, asyncio.Runner(loop_factory=factory) as runner:
        checks = runner.run(_night(Path(folder)))

    assert not checks.violations, "\n".join([*checks.record.trace()[-60:], *map(str, checks.violations)])
    seen = {name for name in checks.record.counts if name.startswith("outcome")}
    assert {"outcome admit", "outcome refuse", "outcome hold", "outcome error"} <= seen
