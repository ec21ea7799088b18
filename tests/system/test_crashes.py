"""The server and agents killed at their worst moments: nothing unchecked, twice, lost or leaked (R10.3, R10.4)."""

import json
import os
import random
import signal
from typing import Any

import pytest

from tests.system.endpoint import Endpoint
from tests.system.lite import Lite, processes_of, wait_for, write_marking_dag


def leavings(server: Lite) -> list[str]:
    """Return what agents have left in the data folder."""
    return [p.name for p in (server.data / "agents").iterdir() if p.name != "errors.log"]


def agent_of(server: Lite) -> dict[str, Any]:
    """Return the state of the one agent that runs."""

    def look() -> dict[str, Any] | None:
        for path in (server.data / "agents").glob("*.json"):
            try:
                state: dict[str, Any] = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            return state
        return None

    return wait_for(look, what="an agent")


def test_a_running_task_goes_on_while_the_server_is_killed_and_reports_to_the_next(server: Lite) -> None:
    marker = write_marking_dag(server, "long", "sleep 3")
    server.start()
    run_id = server.trigger("long")
    server.in_state(run_id, "t0", "running")
    server.kill9()
    server.start()
    assert server.ended(run_id) == "success"
    assert marker.read_text() == "t0\n"
    assert server.task(run_id, "t0")["try_number"] == 1
    wait_for(lambda: leavings(server) == [], what="the agent to leave nothing behind")


def test_sigterm_lets_running_tasks_go_on_and_the_next_start_adopts_them(server: Lite) -> None:
    marker = write_marking_dag(server, "long", "sleep 3")
    server.start()
    run_id = server.trigger("long")
    server.in_state(run_id, "t0", "running")
    assert server.stop() == 0
    server.start()
    assert server.ended(run_id) == "success"
    assert marker.read_text() == "t0\n"


def test_a_task_that_ends_while_no_server_is_up_is_heard_by_the_next(server: Lite) -> None:
    marker = write_marking_dag(server, "short", "sleep 1")
    server.start()
    run_id = server.trigger("short")
    server.in_state(run_id, "t0", "running")
    server.kill9()
    wait_for(marker.exists, what="the task to end")
    server.start()
    assert server.ended(run_id) == "success"
    assert marker.read_text() == "t0\n"


def test_killed_while_it_asks_it_asks_anew_and_runs_it_once(server: Lite, policy: Endpoint) -> None:
    server.config = policy.config()
    marker = write_marking_dag(server, "asked", "true")
    policy.rules({"*": {"decision": "admit", "takes": 3}})
    server.start()
    run_id = server.trigger("asked")
    wait_for(lambda: policy.asked, what="the question")
    server.kill9()
    assert not marker.exists()
    policy.rules({})
    server.start()
    assert server.ended(run_id) == "success"
    assert marker.read_text() == "t0\n"
    assert len({q["uid"] for q in policy.asked}) == 2


def test_a_killed_agent_fails_the_try_once_its_processes_are_dead_and_the_next_try_runs(server: Lite) -> None:
    marker = write_marking_dag(
        server,
        "orphans",
        "[ $DEXAFLOW_TRY_NUMBER = 2 ] || { (setsid sleep 300 &) ; sleep 301 & sleep 302; }",
        options=", retries=1, retry_delay=0",
    )
    server.start()
    run_id = server.trigger("orphans")
    server.in_state(run_id, "t0", "running")
    agent = agent_of(server)
    wait_for(lambda: len(processes_of(server)) >= 3, what="the task's processes")
    os.kill(agent["pid"], signal.SIGKILL)
    assert server.ended(run_id) == "success"
    assert server.task(run_id, "t0")["try_number"] == 2
    assert marker.read_text() == "t0\n"
    assert processes_of(server) == []
    first = server.explain(run_id, "t0", 1)
    assert first["state"] in ("failed", "up_for_retry")


def test_an_agent_killed_while_no_server_is_up_is_found_at_the_next_start(server: Lite) -> None:
    write_marking_dag(server, "gone", "sleep 300")
    server.start()
    run_id = server.trigger("gone")
    server.in_state(run_id, "t0", "running")
    agent = agent_of(server)
    server.kill9()
    os.kill(agent["pid"], signal.SIGKILL)
    server.start()
    assert server.ended(run_id) == "failed"
    assert "agent" in server.task(run_id, "t0")["reason"]
    assert processes_of(server) == []
    assert leavings(server) == []


def test_a_cancelled_running_task_is_dead_before_it_is_failed(server: Lite) -> None:
    marker = write_marking_dag(server, "stop", "sleep 300")
    server.start()
    run_id = server.trigger("stop")
    server.in_state(run_id, "t0", "running")
    assert server.request("POST", f"/dexaflow/v1/runs/{run_id}/cancel", {})[0] == 200
    assert server.ended(run_id) == "failed"
    assert server.task(run_id, "t0")["state"] == "failed"
    assert "cancelled by" in server.task(run_id, "t0")["reason"]
    assert processes_of(server) == []
    assert not marker.exists()


def test_a_cleared_running_task_is_dead_before_its_next_try_runs(server: Lite) -> None:
    marker = write_marking_dag(server, "again", "[ $DEXAFLOW_TRY_NUMBER = 2 ] || sleep 300")
    server.start()
    run_id = server.trigger("again")
    server.in_state(run_id, "t0", "running")
    assert server.request("POST", f"/dexaflow/v1/runs/{run_id}/clear", {})[0] == 200
    assert server.ended(run_id) == "success"
    assert server.task(run_id, "t0")["try_number"] == 2
    assert marker.read_text() == "t0\n"


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_again_and_again_every_task_runs_exactly_once(server: Lite, policy: Endpoint, seed: int) -> None:
    """Queued, asking, launching, running and reporting: wherever the server is when it dies."""
    dice = random.Random(seed)
    server.config = policy.config()
    marker = write_marking_dag(server, "many", "sleep 0.1", tasks=40)
    server.start()
    run_id = server.trigger("many")
    for _ in range(5):
        lines = marker.read_text().count("\n") if marker.exists() else 0
        more = lines + dice.randint(1, 6)
        wait_for(
            lambda more=more: marker.exists() and marker.read_text().count("\n") >= min(more, 40),  # type: ignore[misc]
            what="some tasks to run",
        )
        server.kill9()
        server.start()
    assert server.ended(run_id, 120) == "success"
    assert sorted(marker.read_text().split()) == sorted(f"t{i}" for i in range(40))
    asked = {q["task_id"] for q in policy.asked}
    assert asked == {f"t{i}" for i in range(40)}
    wait_for(lambda: leavings(server) == [], what="agents to leave nothing behind")
    pools = server.get("/api/v2/pools")["pools"]
    assert [p["occupied_slots"] for p in pools] == [0]


def test_a_second_server_on_the_same_data_is_refused_with_a_clear_line(server: Lite) -> None:
    server.start()
    second = Lite(server.root)
    second.start(ready=False)
    assert second.process is not None
    assert second.process.wait(30) == 1
    assert f"is in use by process {server.process.pid if server.process else ''}" in server.log()
    assert "Traceback" not in server.log()
