"""Many attempts at once on a virtual clock (R6.2, R7.4); `python -m tests.soak.virtual` runs them with thousands."""

import asyncio
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from dexaflow.admission import Request, admit, hold
from dexaflow.admission.ports import Answered
from dexaflow.dispatch.dispatcher import MAX_RECHECKS
from dexaflow.model.states import State
from tests.dispatch.world import BROKEN, SimulatedHook, World, world
from tests.store.world import a_task
from tests.virtual_time import run_virtually


class CountingHook(SimulatedHook):
    """Knows how many questions are out."""

    out = 0
    most_out = 0

    async def ask(self, request: Request) -> Answered:
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        try:
            return await super().ask(request)
        finally:
            self.out -= 1


def in_state(w: World, state: State) -> int:
    return int(w.do(lambda tx: tx.one("SELECT COUNT(*) AS n FROM task_instances WHERE state = :s", s=state)).n)  # type: ignore[union-attr]


def one_probes_and_the_others_follow(root: Path, waiting: int) -> float:
    """Let a hook that so many wait for recover. Returns the virtual seconds until all were let go."""

    async def test() -> float:
        w: World
        hook = CountingHook(takes=0.05)
        async with world(root, hooks=[hook], recheck=60.0, parallelism=5_000) as w:
            w.pool(5_000)
            hook.always(BROKEN)
            w.register(*(a_task(f"t{i}") for i in range(waiting)))
            w.register(*(a_task(f"fresh{i}") for i in range(20)), dag_id="e", tenant_id="globex")
            w.trigger()
            while in_state(w, State.HELD) < waiting:
                await w.seconds(0.1)
            opened_until = w.gate.next_probe("webhook")
            assert opened_until is not None

            hook.asked.clear()
            hook.always(admit())
            hook.takes = 2.0  # the probe is out for a while, and meanwhile others come
            await asyncio.sleep(opened_until - w.clock.monotonic() - 0.5)
            assert hook.asked == []
            w.trigger("r2", "e")
            await w.seconds(1.5)
            (probe,) = hook.asked
            assert not probe[1].task_id.startswith("fresh")

            hook.takes, hook.most_out = 0.05, 0
            began = w.clock.monotonic()
            while in_state(w, State.HELD):
                await w.seconds(1)
            assert len(hook.asked) == waiting + 20  # each once: nobody had to wait for a second turn
            assert hook.most_out <= MAX_RECHECKS
            return w.clock.monotonic() - began

    return run_virtually(test)


def held_for_four_rechecks(root: Path, attempts: int, recheck: float) -> tuple[float, float]:
    """Have so many held for a while. Returns the shortest and the longest time between two asks of one of them."""

    async def test() -> tuple[float, float]:
        async with world(root, recheck=recheck, parallelism=20_000) as w:
            w.pool(20_000)
            w.hook.answer = lambda r: admit() if r.tenant_id == "globex" else hold("frozen")
            w.register(*(a_task(f"t{i}") for i in range(attempts)))
            w.register(a_task("other"), dag_id="e", tenant_id="globex")
            w.trigger()
            while in_state(w, State.HELD) < attempts:
                await w.seconds(1)
            for turn in range(4):
                await w.seconds(recheck - 10)
                w.trigger(f"r{turn}", "e")
                await w.seconds(10)
                assert w.state("other", f"r{turn}") is State.SUCCESS
            assert in_state(w, State.HELD) == attempts
            rows = w.do(lambda tx: tx.one("SELECT COUNT(*) AS n, SUM(count) AS asks FROM reviews"))
            assert rows is not None
            assert rows.n == attempts + 4  # repeated answers are one row, however long it takes
            assert rows.asks == len(w.hook.asked)
            times = defaultdict(list)
            for at, request in w.hook.asked:
                times[request.task_id].append(at)
            del times["other"]
            gaps = [b - a for asks in times.values() for a, b in pairwise(asks)]
            assert len(gaps) >= 3 * attempts
            return min(gaps), max(gaps)

    return run_virtually(test)


def test_of_many_that_wait_one_probes_and_the_others_follow_at_the_pace(tmp_path: Path) -> None:
    """R7.4: neither before the probe's end nor after it does everybody ask in the same moment."""
    assert one_probes_and_the_others_follow(tmp_path, MAX_RECHECKS * 5) > 5


def test_many_held_are_each_asked_at_the_pace_of_recheck_and_keep_one_row(tmp_path: Path) -> None:
    """R6.2, R9.2"""
    shortest, longest = held_for_four_rechecks(tmp_path, 100, recheck=60.0)
    assert 60.0 <= shortest <= longest <= 66.0 + 1.0
