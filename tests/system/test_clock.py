"""The wall clock is stepped, under a server that runs and while none does: nothing is lost, and nothing hurries."""

import time

import pytest

from tests.system.evils import RULES, Walk
from tests.system.lite import wait_for

DAY = 86_400.0


def step_clock(walking: Walk, seconds: float) -> None:
    draft = walking.root / "clock.draft"
    draft.write_text(str(seconds))
    draft.rename(walking.root / "clock")


@pytest.mark.parametrize("seconds", [2 * DAY, -2 * DAY])
def test_a_clock_that_jumps_under_a_server_that_runs_changes_nothing(walking: Walk, seconds: float) -> None:
    """Tokens stay good, retries come, and what is held is asked no more often than `recheck` says (R6.1, R7.2)."""
    server, policy = walking.server, walking.policy
    policy.rules(RULES | {"held": {"decision": "hold", "reason": "not yet", "times": 3}})
    server.start()
    run_id = server.trigger("walk")
    server.in_state(run_id, "first", "running")
    began = time.monotonic()
    step_clock(walking, seconds)
    assert walking.evils() == []
    assert time.monotonic() - began >= 2.0  # three holds, a second each, of which the first may be over
    assert len([q for q in policy.asked if q["task_id"] == "held"]) == 4


@pytest.mark.parametrize("seconds", [2 * DAY, -2 * DAY])
def test_a_clock_that_jumps_while_no_server_is_up_loses_nothing(walking: Walk, seconds: float) -> None:
    """What runs meanwhile is heard by the next start, whatever time that has: its token is still good."""
    server = walking.server
    server.start()
    run_id = server.trigger("walk")
    server.in_state(run_id, "first", "running")
    server.kill9()
    step_clock(walking, seconds)
    server.start()
    assert walking.evils() == []
    assert server.task(run_id, "first")["try_number"] == 1


def test_a_schedule_makes_no_run_twice_and_none_in_vain_when_the_clock_jumps(walking: Walk) -> None:
    """Two days ahead there is one run, for the latest day, since nothing is caught up; back again there is none."""
    server = walking.server
    server.write_dag(
        "daily",
        f"""
        from datetime import datetime, timezone
        from dexaflow import DAG, bash

        with DAG("daily", schedule="0 0 * * *", start_date=datetime(2020, 1, 1, tzinfo=timezone.utc)):
            bash("t", ". {walking.root}/mark", env={{"HERE": "{walking.root}"}})
        """,
    )

    def dates() -> list[str]:
        runs = server.get("/dexaflow/v1/runs?dag_id=daily")["runs"]
        return sorted(run["logical_date"] for run in runs)

    server.start()
    wait_for(lambda: len(dates()) == 1, what="the run that is due")
    step_clock(walking, 2 * DAY)
    wait_for(lambda: len(dates()) == 2, what="the run of the day it seems to be")
    step_clock(walking, 0)
    assert walking.evils() == []
    time.sleep(1)
    assert len(set(dates())) == len(dates()) == 2


def test_run_ids_sort_as_the_runs_were_made_also_when_the_clock_is_set_back(walking: Walk) -> None:
    """R3.1: an endpoint may rely on it."""
    server = walking.server
    server.write_dag("plain", "from dexaflow import DAG, bash\n\nwith DAG('plain'):\n    bash('t', 'true')\n")
    server.start()
    made = [server.trigger("plain") for _ in range(3)]
    step_clock(walking, -2 * DAY)
    made += [server.trigger("plain") for _ in range(3)]
    assert sorted(made) == made
    first, *_, last = [server.get(f"/dexaflow/v1/runs/{run_id}")["queued_at"] for run_id in made]
    assert last < first
