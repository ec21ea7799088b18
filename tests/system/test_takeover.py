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
