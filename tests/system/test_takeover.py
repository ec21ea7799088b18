"""Two control planes on one database: the later one wins, and the earlier one stops (R10.1, R10.3)."""

import sqlite3

from tests.system.lite import Lite, wait_for


def test_a_server_whose_lead_was_taken_stops_with_one_clear_line(server: Lite) -> None:
    server.start()
    with sqlite3.connect(server.data / "dexaflow.db", timeout=10) as database:
        database.execute("UPDATE leader SET term = term + 1")
    assert server.process is not None
    process = server.process
    wait_for(lambda: process.poll() is not None, what="the server to stop")
    assert process.returncode == 1
    assert "another control plane has taken over" in server.log()
    assert "Traceback" not in server.log()


def test_what_ran_under_the_first_is_heard_by_the_second_and_only_the_second_dispatches(server: Lite) -> None:
    """Nothing runs twice and nothing is lost when the lead changes hands while tasks run."""
    marker = server.root / "ran"
    server.config = {"parallelism": 2}
    server.write_dag(
        "handed",
        f"""
        from dexaflow import DAG, bash

        with DAG("handed"):
            for i in range(6):
                bash(f"t{{i}}", "sleep 1; echo $DEXAFLOW_TASK_ID >> {marker}")
        """,
    )
    server.start()
    run_id = server.trigger("handed")
    wait_for(lambda: any(t["state"] == "running" for t in server.run(run_id)["tasks"]), what="a task to run")
    with sqlite3.connect(server.data / "dexaflow.db", timeout=10) as database:
        database.execute("UPDATE leader SET term = term + 1")
    assert server.process is not None
    process = server.process
    wait_for(lambda: process.poll() is not None, what="the server to stop")
    with sqlite3.connect(server.data / "dexaflow.db", timeout=10) as database:
        (before,) = database.execute("SELECT COUNT(*) FROM task_instances WHERE launch_id IS NOT NULL").fetchone()
    assert before <= 4
    server.start()
    assert server.ended(run_id) == "success"
    assert sorted(marker.read_text().split()) == [f"t{i}" for i in range(6)]
