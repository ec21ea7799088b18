"""Killed, stopped, or told to end at each step of the line: nothing is unchecked, twice, lost or leaked (R10.3)."""

import re
import shutil
import signal
import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from dexaflow.base.steps import Step
from tests.system.evils import Walk, walk
from tests.system.lite import wait_for
from tests.system.stepping import ROOT

FIRST_START = [Step.KEY_DRAFTED, Step.FILE_DRAFTED, Step.SCHEMA_CHANGED]
LATER_START = [
    Step.LOCK_TAKEN, Step.LEAD_WRITTEN, Step.LEAD_TAKEN, Step.RECOVERY_WRITTEN, Step.RECOVERED, Step.AGENTS_FOUND,
    Step.ANNOUNCED,
]  # fmt: skip
PUBLISHING = [Step.VERSION_DRAFTED, Step.VERSION_KEPT, Step.VERSION_WRITTEN, Step.VERSION_PUBLISHED]
CANCELLING = [Step.CANCEL_WRITTEN, Step.CANCELLED, Step.KILL_SENT, Step.KILLED]
CLEARING = [Step.CLEAR_WRITTEN, Step.CLEARED]
REMOVING = [Step.REMOVAL_BEGUN]
ENDING = [Step.STOPPING, Step.WITHDRAWN]
# Here it is not the server that dies.
AGENTS = [
    Step.ORDER_READ, Step.FORKED, Step.AGENT_BEGUN, Step.STATE_DRAFTED, Step.STATE_CLAIMED, Step.START_ACCEPTED,
    Step.USER_FORKED, Step.USER_BEGUN, Step.USER_NOTED, Step.USER_ENDED, Step.REPORT_READY, Step.REPORT_HEARD,
    Step.FILES_GOING,
]  # fmt: skip
ON_THE_WAY = [
    step for step in Step
    if step not in {*FIRST_START, *LATER_START, *PUBLISHING, *CANCELLING, *CLEARING, *REMOVING, *ENDING, *AGENTS}
]  # fmt: skip


class Life:
    """One server after the other on one data folder, each brought to one step."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.server = walk.server
        self.found: list[str] = []
        self.long = ""  # the latest run of what takes long

    def bring_to(self, step: Step, number: signal.Signals) -> None:
        """Have the signal fall at the step, whatever it takes to get there."""
        if step in FIRST_START or step in LATER_START or step in REMOVING:
            if step in FIRST_START:
                self._begin_anew()
            elif step in LATER_START:
                self._work_in_flight()
            else:
                self._grow_old()
            self.walk.plan.arm(step, number)
            self.server.start(ready=False)
        else:
            self._up()
            if step is Step.SPAWNER_BEGUN and self.server.stop() == 0:  # each server begins one, for its first launch
                self._up()
            if step in CANCELLING or step in CLEARING:
                self.long = self.server.trigger("long")
                self.server.in_state(self.long, "long", "running")
                self.walk.plan.arm(step, number)
                self._say(self.long, "clear" if step in CLEARING else "cancel")
            else:
                self.walk.plan.arm(step, number)
                if step in PUBLISHING:
                    self.walk.publish(step.name)
                elif step in ENDING:
                    assert self.server.process is not None
                    self.server.process.terminate()
                else:
                    self._say("walk", "trigger")
        wait_for(self.walk.plan.hit, what=f"somebody to come to {step.name}", seconds=30)

    def _up(self) -> None:
        if self.server.process is None or self.server.process.poll() is not None:
            self.server.start()
            wait_for(lambda: self.server.get("/dexaflow/v1/dags")["dags"], what="the DAGs to be there")

    def _begin_anew(self) -> None:
        if self.server.process is not None:
            self.server.kill9()
            shutil.rmtree(self.server.data)

    def _work_in_flight(self) -> None:
        self._up()
        run_id = self.server.trigger("walk")
        self.server.in_state(run_id, "first", "running")
        self.server.kill9()

    def _grow_old(self) -> None:
        self._up()
        assert self.server.stop() == 0
        with closing(sqlite3.connect(self.server.data / "dexaflow.db")) as database:
            database.execute("UPDATE runs SET ended_at = '2000-01-01T00:00:00.000000Z'")
            database.commit()

    def _say(self, name: str, what: str) -> None:
        """Ask for what may kill who is asked."""
        path = f"dags/{name}/runs" if what == "trigger" else f"runs/{name}/{what}"
        try:
            self.server.request("POST", f"/dexaflow/v1/{path}", {"conf": {}} if what == "trigger" else {})
        except OSError:
            pass  # it died of it

    def kill(self, step: Step) -> None:
        """Kill whoever comes to the step, go on, and note the evils."""
        self.bring_to(step, signal.SIGKILL)
        if step not in AGENTS:
            assert self.server.process is not None
            self.server.process.wait(30)
        self._up()
        if step is Step.CANCEL_WRITTEN or step is Step.CLEAR_WRITTEN:  # whoever asked had no answer, and asks again
            self._say(self.long, "clear" if step is Step.CLEAR_WRITTEN else "cancel")
        self.found += [f"killed as {step.name} ({step}): {evil}" for evil in self.walk.evils()]


def lives(root: Path, steps: Sequence[Step]) -> list[str]:
    """Go through the steps one after the other on one data folder. Returns the evils found."""
    with walk(root) as walking:
        life = Life(walking)
        for step in steps:
            life.kill(step)
        if "Traceback" in walking.server.log():
            life.found.append(f"a traceback: {walking.server.log().partition('Traceback')[2][:2000]}")
        return life.found


@pytest.mark.timeout(600)
def test_killed_at_any_step_nothing_is_unchecked_twice_lost_or_leaked(tmp_path: Path) -> None:
    """Each step is come to, or `bring_to` gives up: so each name in `Step` is one that the walk reaches."""
    halves = [
        [*FIRST_START, *LATER_START, *PUBLISHING, *CANCELLING, *CLEARING, *AGENTS],
        [*ON_THE_WAY, *ENDING, *REMOVING],
    ]
    assert {step for half in halves for step in half} == set(Step)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lives, [tmp_path / "a", tmp_path / "b"], halves))
    assert found == [[], []]


def test_only_tests_can_have_anything_happen_at_a_step() -> None:
    """No variable, option or key leads to `watch`; and each step is named where it is, once in the code."""
    source = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    named = re.findall(r"reached\(Step\.([A-Z_]+)\)", "\n".join(source.values()))
    assert sorted(named) == sorted(step.name for step in Step)
    imported = {
        line for text in source.values() for line in text.splitlines() if re.search(r"import.*\bsteps|base.steps", line)
    }
    assert imported == {"from dexaflow.base.steps import Step, reached"}
