"""The store's verbs in any order: slots, launches, refusals, and that nothing is forgotten (R1, R6, R10.3)."""

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dexaflow.admission.results import Held
from dexaflow.base.errors import Conflict
from dexaflow.model.attempt import Attempt
from dexaflow.model.states import ENDED, HOLDS_SLOTS, State
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.store import admitting, leading, people, reporting, slots
from dexaflow.store.tries import attempt_of
from tests.store.world import ENGINES, World, a_task, opened

PARALLELISM = 4
TASKS = (
    a_task("a", retries=1, retry_delay=5.0),
    a_task("b", upstream=("a",), pool="small", pool_slots=2),
    a_task("c", pool="small"),
    a_task("d", upstream=("b", "c"), trigger_rule="all_done"),
    a_task("e", retries=2, retry_delay=0.0),
)
SMALL = 2


class StoreMachine(RuleBasedStateMachine):
    """People, hooks, agents, crashes and time, in any order; one transaction at a time."""

    engine_name = "sqlite"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.world = World(opened(self.engine_name, self.folder)).lead()
        self.launches: dict[str, str] = {}  # launch id -> attempt id, of every launch there ever was
        self.started: list[str] = []  # launch ids whose agent was let begin
        self.ended_agents: set[str] = set()
        self.refused: set[str] = set()
        self.known: dict[str, Attempt] = {}
        self.number = 0

    def teardown(self) -> None:
        self.world.engine.dispose()
        shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        self.world.do(lambda tx: people.set_pool(tx, "small", SMALL, None))
        assert self.world.register(*TASKS, max_active_runs=2, dagrun_timeout=500.0) == ()
        self.world.trigger("run-1")

    def rows(self) -> list[Any]:
        return self.world.rows("SELECT * FROM task_instances ORDER BY run_id, task_id")

    def pick(self, data: st.DataObject, *states: State) -> Attempt | None:
        """Return one of the attempts in these states, or now and then one from before that has moved on."""
        rows = [r for r in self.rows() if State(r.state) in states]
        stale = sorted(set(self.known) - {r.attempt_id for r in rows})
        if stale and data.draw(st.integers(0, 9)) == 0:
            return self.known[data.draw(st.sampled_from(stale))]
        if not rows:
            return None
        row = data.draw(st.sampled_from(rows))
        attempt = self.world.do(lambda tx: attempt_of(tx, row))
        self.known[attempt.id] = attempt
        return attempt

    # What happens

    @rule()
    def schedule(self) -> None:
        for attempt in self.world.schedule(PARALLELISM).queued:
            self.known[attempt.id] = attempt

    @rule(seconds=st.sampled_from([1.0, 6.0, 16.0, 600.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.world.do(leading.tick)

    @precondition(lambda self: self.number < 3)
    @rule()
    def trigger(self) -> None:
        self.number += 1
        self.world.trigger(f"more-{self.number}")

    @rule(data=st.data(), broken=st.booleans(), asked=st.booleans())
    def hold(self, data: st.DataObject, broken: bool, asked: bool) -> None:
        attempt = self.pick(data, State.QUEUED, State.HELD)
        if attempt is not None:
            self.world.hold(attempt, broken=broken, asked=asked or not broken)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        attempt = self.pick(data, State.QUEUED, State.HELD)
        if attempt is not None and self.world.refuse(attempt):
            self.refused.add(attempt.id)

    @rule(data=st.data())
    def fail_dispatch(self, data: st.DataObject) -> None:
        attempt = self.pick(data, State.HELD)
        if attempt is not None:
            held = Held(attempt, "webhook", "broken", (), broken=True)

            def write(tx: Any) -> bool:
                wait = admitting.retry_wait(tx, attempt, seconds_to_retry)
                due = None if wait is None else tx.up + wait
                return admitting.dispatch_failed(tx, held, reason="dispatch_failed", retry_due=due)

            self.world.do(write)

    @rule(data=st.data())
    def launch(self, data: st.DataObject) -> None:
        attempt = self.pick(data, State.QUEUED, State.HELD)
        if attempt is None:
            return
        launch_id = f"launch-{len(self.launches)}"
        written = self.world.launch(attempt, launch_id, PARALLELISM)
        if written is not None and written.launch_id is not None:
            live = [r for r in self.rows() if r.attempt_id == attempt.id]
            assert [r.launch_id for r in live] == [launch_id]
            self.launches[launch_id] = attempt.id

    @precondition(lambda self: self.launches)
    @rule(data=st.data())
    def agent_begins(self, data: st.DataObject) -> None:
        launch_id = data.draw(st.sampled_from(sorted(self.launches)))
        attempt = self.known[self.launches[launch_id]]
        pid = int(launch_id.removeprefix("launch-")) + 1
        if self.world.started(attempt, launch_id, pid) is not None and launch_id not in self.started:
            self.started.append(launch_id)

    @precondition(lambda self: self.started)
    @rule(data=st.data(), succeeded=st.booleans())
    def agent_ends(self, data: st.DataObject, succeeded: bool) -> None:
        launch_id = data.draw(st.sampled_from(self.started))
        self.ended_agents.add(launch_id)
        self.world.ended(self.known[self.launches[launch_id]], launch_id, succeeded=succeeded, result=b"1")

    @rule(data=st.data())
    def launch_is_lost(self, data: st.DataObject) -> None:
        rows = [r for r in self.rows() if r.state == "launching"]
        if rows:
            row = data.draw(st.sampled_from(rows))
            self.world.do(lambda tx: reporting.lost(tx, row.attempt_id, row.launch_id))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        run_id = data.draw(st.sampled_from([r.run_id for r in self.world.rows("SELECT run_id FROM runs")]))
        try:
            self.world.cancel(run_id)
        except Conflict:
            assert self.world.run_state(run_id) in ("success", "failed")

    @rule(data=st.data(), downstream=st.booleans(), only_failed=st.booleans())
    def clear(self, data: st.DataObject, downstream: bool, only_failed: bool) -> None:
        run_id = data.draw(st.sampled_from([r.run_id for r in self.world.rows("SELECT run_id FROM runs")]))
        tasks = data.draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True))
        self.world.clear(*tasks, run_id=run_id, downstream=downstream, only_failed=only_failed)

    @rule(slots=st.integers(0, SMALL + 1))
    def resize_pool(self, slots: int) -> None:
        self.world.do(lambda tx: people.set_pool(tx, "small", slots, None))

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.world.do(lambda tx: people.set_paused(tx, "d", paused=paused))

    @rule(away=st.sampled_from([0.0, 100.0]))
    def crash_and_start(self, away: float) -> None:
        self.world.wall += timedelta(seconds=away)
        self.world.lead()
        found = self.world.do(leading.recover)
        for attempt_id, launch_id in found.launching:
            if launch_id not in self.started:
                self.world.do(lambda tx, a=attempt_id, i=launch_id: reporting.lost(tx, a, i))  # type: ignore[misc]

    # What must hold

    @invariant()
    def slots_never_exceed_what_was_given(self) -> None:
        """Counted independently; a pool made smaller keeps what it gave, and gives nothing more."""
        taken = self.world.do(slots.slots_taken)
        assert taken.attempts <= PARALLELISM
        rows = [r for r in self.rows() if State(r.state) in HOLDS_SLOTS]
        assert taken.attempts == len(rows)
        assert taken.by_pool.get("small", 0) == sum(r.pool_slots for r in rows if r.pool == "small") <= SMALL + 1

    @invariant()
    def a_refused_attempt_never_runs_and_has_no_launch(self) -> None:
        """R1.4: one that was launched before, and given up since nobody was heard, was never let begin."""
        assert not self.refused & {self.launches[launch] for launch in self.started}
        for table in ("task_instances", "attempt_history"):
            for row in self.world.rows(f"SELECT * FROM {table}"):
                assert row.attempt_id not in self.refused or (row.launch_id is None and row.state == "failed")

    @invariant()
    def no_try_begins_twice(self) -> None:
        """R1.7, R10.3: two agents of one try are never both let begin."""
        begun = [self.launches[launch] for launch in self.started]
        assert len(begun) == len(set(begun))

    @invariant()
    def what_has_not_ended_has_a_next_step(self) -> None:
        """Nothing is lost: each attempt is waited for, held until a moment, or looked after by the watch."""
        runs = {r.run_id: r for r in self.world.rows("SELECT * FROM runs")}
        for row in self.rows():
            run, state = runs[row.run_id], State(row.state)
            if state not in ENDED:
                assert run.state in ("queued", "running"), (row.task_id, state, run.state)
            if state is State.HELD:
                assert row.next_ask_due is not None
                assert row.hook
                assert row.reason
            if state is State.UP_FOR_RETRY:
                assert row.retry_due is not None
            if state in (State.LAUNCHING, State.RUNNING):
                assert row.launch_id is not None
            if state in ENDED and state is not State.SUCCESS:
                assert row.reason, (row.task_id, state)

    @invariant()
    def the_history_holds_ended_tries_only(self) -> None:
        for row in self.world.rows("SELECT * FROM attempt_history"):
            assert State(row.state) in ENDED

    def finish(self) -> None:
        """From wherever things stand, admitting everything ends every run: nothing waits for ever."""
        self.world.do(lambda tx: people.set_paused(tx, "d", paused=False))
        self.world.do(lambda tx: people.set_pool(tx, "small", SMALL, None))
        for _ in range(200):
            self.world.pass_time(6)
            self.schedule()
            for row in self.rows():
                attempt = self.known.get(row.attempt_id) or self.world.do(lambda tx, r=row: attempt_of(tx, r))  # type: ignore[misc]
                self.known[attempt.id] = attempt
                if row.state in ("queued", "held"):
                    self.world.launch(attempt, f"last-{row.attempt_id}", PARALLELISM)
            for row in self.rows():
                attempt = self.known[row.attempt_id]
                if row.state == "launching":
                    self.world.started(attempt, row.launch_id)
                if row.state in ("launching", "running"):
                    self.world.ended(attempt, row.launch_id)
            if not self.world.rows("SELECT 1 FROM runs WHERE state IN ('queued', 'running')"):
                return
        raise AssertionError([(r.run_id, r.task_id, r.state) for r in self.rows() if State(r.state) not in ENDED])


class Finishing(StoreMachine):
    """Ends each story by letting everything through."""

    def teardown(self) -> None:
        try:
            if self.known:
                self.finish()
        finally:
            super().teardown()


@pytest.mark.parametrize("name", list(ENGINES))
def test_whatever_happens_in_whatever_order_nothing_is_unchecked_twice_lost_or_leaked(name: str) -> None:
    machine = type(f"On{name}", (Finishing,), {"engine_name": name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
