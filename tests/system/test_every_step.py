"""Killed, stopped, or told to end at each step of the line: nothing is unchecked, twice, lost or leaked (R10.3)."""

import contextlib
import os
import random
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dexaflow.base.steps import Step
from tests.system.evils import Walk, walk
from tests.system.lite import Lite, wait_for
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
                    self.walk.publish()
                elif step in ENDING:
                    assert self.server.process is not None
                    self.server.process.terminate()
                else:
                    self._say("walk", "trigger")
        wait_for(self.walk.plan.hit, what=f"somebody to come to {step.name}", seconds=30)

    def _up(self) -> None:
        process = self.server.process
        if process is not None:  # which may be on its way up, or down
            wait_for(lambda: process.poll() is not None or self.server.announced(), what="the server to be up or gone")
        if process is None or process.poll() is not None:
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
        self.server.trigger("walk")
        wait_for(lambda: not self.walk.unended(), what="a run to end")
        assert self.server.stop() == 0
        with closing(sqlite3.connect(self.server.data / "dexaflow.db")) as database:
            database.execute("UPDATE runs SET ended_at = '2000-01-01T00:00:00.000000Z'")
            database.commit()

    def _say(self, name: str, what: str) -> None:
        """Ask for what may kill who is asked."""
        path = f"dags/{name}/runs" if what == "trigger" else f"runs/{name}/{what}"
        body: dict[str, Any] = {"conf": {}} if what == "trigger" else {}
        with contextlib.suppress(OSError):  # it died of it, or stands still
            self.server.request("POST", f"/dexaflow/v1/{path}", body, seconds=5)

    def kill(self, step: Step) -> None:
        """Kill whoever comes to the step, go on, and note the evils."""
        self.bring_to(step, signal.SIGKILL)
        if step not in AGENTS:
            assert self.server.process is not None
            self.server.process.wait(30)
        self._look(step, "killed")

    def end(self, step: Step) -> None:
        """Tell whoever comes to the step to end in order, go on, and note the evils."""
        self.bring_to(step, signal.SIGTERM)
        if step not in AGENTS:
            assert self.server.process is not None
            status = self.server.process.wait(30)
            if status not in (0, -signal.SIGTERM):  # the latter before there is anything to be ended in order
                self.found.append(f"told to end as {step.name}: exit status {status}")
        self._look(step, "told to end")

    def stop(self, step: Step) -> None:
        """Stop whoever comes to the step, long enough for another to take over; have it go on, and note the evils."""
        self.bring_to(step, signal.SIGSTOP)
        stopped = self.walk.plan.hit()
        assert stopped is not None
        if step in AGENTS:
            time.sleep(2.0)  # longer than `agent.silence`
        else:
            other = self._taken_over()
        os.kill(stopped, signal.SIGCONT)
        if step not in AGENTS:
            self._one_goes_on(step, other)
        self._look(step, "stopped")

    def _taken_over(self) -> Lite:
        """Start a second server as somebody would who thinks that the first is dead; it may not come to lead."""
        (self.server.data / "lock").unlink()
        other = Lite(self.server.root)
        other.config, other.environ = self.server.config, self.server.environ
        other.program, other.python_path = self.server.program, self.server.python_path
        other.start(ready=False)
        process = other.process
        assert process is not None
        wait_for(
            lambda: other.announced() or process.poll() is not None,
            what="the second server to lead, or to say why it cannot",
        )
        return other

    def _one_goes_on(self, step: Step, other: Lite) -> None:
        first, second = self.server.process, other.process
        assert first is not None
        assert second is not None
        wait_for(lambda: first.poll() is not None or second.poll() is not None, what="one of the two to give up")
        if first.poll() is not None and second.poll() is None:
            self.server.process = second
        gave_up = first if first.poll() is not None else second
        if gave_up.returncode != (0 if step in ENDING and gave_up is first else 1):
            self.found.append(f"stopped as {step.name}: exit status {gave_up.returncode}")

    def _look(self, step: Step, how: str) -> None:
        self._up()
        if step is Step.CANCEL_WRITTEN or step is Step.CLEAR_WRITTEN:  # whoever asked had no answer, and asks again
            self._say(self.long, "clear" if step is Step.CLEAR_WRITTEN else "cancel")
        self.found += [f"{how} as {step.name} ({step}): {evil}" for evil in self.walk.evils()]


Deed = Callable[[Life, Step], None]


def lives(root: Path, deeds: Sequence[tuple[Deed, Step]]) -> list[str]:
    """Do one deed after the other on one data folder. Returns the evils found."""
    with walk(root) as walking:
        life = Life(walking)
        for deed, step in deeds:
            deed(life, step)
        if "Traceback" in walking.server.log():
            life.found.append(f"a traceback: {walking.server.log().partition('Traceback')[2][:2000]}")
        return life.found


def side_by_side(root: Path, deeds: Sequence[tuple[Deed, Step]]) -> list[str]:
    """Do the deeds on two data folders at once, half of them on each."""
    halves = [deeds[::2], deeds[1::2]]
    with ThreadPoolExecutor(2) as threads:
        return [evil for found in threads.map(lives, [root / "a", root / "b"], halves) for evil in found]


@pytest.mark.timeout(600)
def test_killed_at_any_step_nothing_is_unchecked_twice_lost_or_leaked(tmp_path: Path) -> None:
    """Each step is come to, or `bring_to` gives up: so each name in `Step` is one that the walk reaches."""
    assert side_by_side(tmp_path, [(Life.kill, step) for step in Step]) == []


@pytest.mark.timeout(300)
def test_a_step_can_be_come_to_again_and_again(tmp_path: Path) -> None:
    """On one data folder: else what is drawn for the next test decides whether it can pass."""
    steps = [*PUBLISHING, *ENDING, *CANCELLING[:1], *CLEARING[:1], *REMOVING]
    assert side_by_side(tmp_path, [(Life.kill, step) for step in steps for _ in range(4)]) == []


@pytest.mark.timeout(3600)
def test_stopped_or_told_to_end_at_any_step_nothing_is_unchecked_twice_lost_or_leaked(tmp_path: Path) -> None:
    """At each step with `make crashes`, else at a few drawn ones: while it stands still, another may take over."""
    deeds = [(deed, step) for deed in (Life.stop, Life.end) for step in Step]
    if not os.environ.get("EVERY_STEP"):
        seed = int(os.environ.get("CRASH_SEED") or random.randrange(1_000_000))
        print(f"CRASH_SEED={seed} draws the same steps again")  # shown when it fails
        deeds = random.Random(seed).sample(deeds, 6)
    assert side_by_side(tmp_path, deeds) == []


def test_only_tests_can_have_anything_happen_at_a_step() -> None:
    """No variable, option or key leads to `watch`; and each step is named where it is, once in the code."""
    source = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    named = re.findall(r"reached\(Step\.([A-Z_]+)\)", "\n".join(source.values()))
    assert sorted(named) == sorted(step.name for step in Step)
    imported = {
        line for text in source.values() for line in text.splitlines() if re.search(r"import.*\bsteps|base.steps", line)
    }
    assert imported == {"from dexaflow.base.steps import Step, reached"}
