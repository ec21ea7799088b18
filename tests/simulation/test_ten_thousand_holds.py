"""One tenant's ten thousand holds delay another tenant's attempt by no more than a tick (R6.2)."""

from pathlib import Path

import pytest

from dexaflow.admission import hold
from dexaflow.model.states import State
from dexaflow.store import people
from dexaflow.store.transaction import Tx
from tests.dispatch.world import World, world
from tests.store.world import a_task
from tests.virtual_time import run_virtually

TICK = 1.0  # seconds
HELD = 10_000


def _multiply_the_hold(w: World, within: float) -> None:
    """Make ten thousand of the one that there is, due one after the other within so many seconds."""

    def multiply(tx: Tx) -> None:
        columns = [row.name for row in tx.all("SELECT name FROM pragma_table_info('task_instances')")]
        own = {
            "attempt_id": "printf('held-%06d', n)",
            "run_id": "printf('many-%06d', n)",
            "next_ask_due": ":up + :within * n / :held",
        }
        chosen = ", ".join(own.get(column, column) for column in columns)
        tx.run(
            "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < :held)"
            f" INSERT INTO task_instances ({', '.join(columns)}) SELECT {chosen} FROM task_instances, counted",
            up=tx.up, within=within, held=HELD,
        )  # fmt: skip

    w.do(multiply)


@pytest.mark.parametrize(
    ("within", "takes", "recheck"),
    [(0.0, 0.4, 15.0), (600.0, 0.01, 600.0)],
    ids=["all due at once, slow hook", "due one by one, quick hook"],
)
def test_ten_thousand_holds_delay_another_tenant_by_no_more_than_a_tick(
    tmp_path: Path, within: float, takes: float, recheck: float
) -> None:
    """Its fresh attempt is asked at once, and so is its held one when it falls due."""

    async def test() -> None:
        async with world(tmp_path, recheck=recheck) as w:
            w.hook.always(hold("frozen"))
            w.hook.takes = takes
            w.register(a_task("frozen"), dag_id="theirs", tenant_id="acme")
            w.register(a_task("ours"), dag_id="ours", tenant_id="globex")
            w.trigger("theirs", "theirs")
            await w.seconds(1)
            _multiply_the_hold(w, within)
            w.dispatcher.wake()
            await w.seconds(3)
            assert len(w.hook.asked) > 40

            triggered = w.clock.monotonic()
            w.trigger("ours", "ours")
            await w.seconds(TICK + takes)
            (first,) = w.hook.times("ours")
            assert first - triggered <= TICK
            assert w.state("ours", "ours") is State.HELD

            due = w.clock.monotonic()
            attempt_id = w.row("ours", "ours").attempt_id
            w.do(lambda tx: people.ask_now(tx, attempt_id=attempt_id, hook=None))
            w.dispatcher.wake()
            await w.seconds(TICK)
            _, second = w.hook.times("ours")
            assert second - due <= TICK

            assert w.do(lambda tx: tx.all("SELECT 1 FROM task_instances WHERE state = 'held'"))[HELD:]  # none lost

    run_virtually(test)
