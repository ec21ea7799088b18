"""Starting and stopping: one clear line for what cannot work, nothing half-started, an order in the end (R10.4)."""

import contextlib
import os
import pty
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.endpoint import Endpoint
from tests.system.lite import Lite, fails, processes_of, wait_for, write_marking_dag


def garbage(server: Lite) -> None:
    (server.data / "dexaflow.db").write_bytes(b"this is no database" * 500)


def damaged(server: Lite) -> None:
    content = bytearray((server.data / "dexaflow.db").read_bytes())
    content[4096 : 4096 * 6] = b"\xff" * 4096 * 5
    (server.data / "dexaflow.db").write_bytes(content)


def newer(server: Lite) -> None:
    with contextlib.closing(sqlite3.connect(server.data / "dexaflow.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.commit()


def a_folder_for_a_database(server: Lite) -> None:
    for path in server.data.glob("dexaflow.db*"):
        path.unlink()
    (server.data / "dexaflow.db").mkdir()


def a_corrupt_key(server: Lite) -> None:
    (server.data / "signing.key").write_text("no key\n")


def a_key_others_can_read(server: Lite) -> None:
    (server.data / "signing.key").chmod(0o644)


def a_file_for_the_agents(server: Lite) -> None:
    shutil.rmtree(server.data / "agents")
    (server.data / "agents").write_text("")


def a_folder_for_the_token(server: Lite) -> None:
    (server.data / "token").unlink()
    (server.data / "token").mkdir()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (garbage, "dexaflow.db: the file is no database; put a backup in its place, or move it away"),
        (damaged, "dexaflow.db: the database is damaged"),
        (newer, "newer Dexaflow"),
        (a_folder_for_a_database, "dexaflow.db"),
        (a_corrupt_key, "signing key"),
        (a_key_others_can_read, "signing key"),
        (a_file_for_the_agents, "agents"),
        (a_folder_for_the_token, "token"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line_and_leaves_nothing_behind(
    server: Lite, damage: Callable[[Lite], None], says: str
) -> None:
    server.start()
    assert server.stop() == 0
    kept = server.root / "kept"
    shutil.copytree(server.data, kept)
    damage(server)
    assert says in fails(server)
    shutil.rmtree(server.data)
    kept.rename(server.data)
    server.start()  # nothing holds the folder, and it works again


def test_a_file_in_place_of_the_data_folder_is_one_clear_line(server: Lite) -> None:
    server.data.write_text("")
    assert "data folder" in fails(server)


def test_a_data_folder_that_cannot_be_made_is_one_clear_line(server: Lite) -> None:
    (server.root / "file").write_text("")
    server.data = server.root / "file" / "data"
    assert "data folder" in fails(server)


def test_a_host_that_is_none_is_one_clear_line(server: Lite) -> None:
    server.config = {"server": {"host": "no.such.host.invalid"}}
    assert "cannot listen on no.such.host.invalid" in fails(server)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_starting_ends_it_and_the_next_start_works(server: Lite, number: int) -> None:
    for delay in (0.05, 0.3, 0.6, 0.9, 1.2):
        server.start(ready=False)
        assert server.process is not None
        time.sleep(delay)  # wherever the start is by then
        server.process.send_signal(number)
        server.process.wait(30)
    server.start()
    assert server.stop() == 0


def test_told_to_stop_it_stops_in_order_while_a_question_is_out(server: Lite, policy: Endpoint) -> None:
    """R10.4, issue: no new asks; what is being asked may be answered."""
    server.config = policy.config()
    marker = write_marking_dag(server, "asked", "true", tasks=2)
    policy.rules({"*": {"decision": "admit", "takes": 2}})
    server.start()
    run_id = server.trigger("asked")
    wait_for(lambda: len(policy.asked) == 2, what="the questions")
    late = server.trigger("asked")
    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    server.process.send_signal(signal.SIGTERM)  # impatience changes nothing
    assert server.process.wait(30) == 0
    assert len(policy.asked) <= 4
    assert not (server.data / "server.json").exists()
    assert "Traceback" not in server.log()
    policy.rules({})
    server.start()
    assert (server.ended(run_id), server.ended(late)) == ("success", "success")
    assert sorted(marker.read_text().split()) == ["t0", "t0", "t1", "t1"]


def test_a_hook_that_never_answers_does_not_keep_it_from_stopping(server: Lite, policy: Endpoint) -> None:
    server.config = policy.config(timeout="2s")
    write_marking_dag(server, "asked", "true")
    policy.rules({"*": {"decision": "admit", "takes": 600}})
    server.start()
    server.trigger("asked")
    wait_for(lambda: policy.asked, what="the question")
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 15


def test_when_the_signing_key_is_lost_what_runs_ends_with_a_reason_and_new_work_runs(server: Lite) -> None:
    server.config = {"agent": {"heartbeat": "1s", "silence": "5s"}}
    write_marking_dag(server, "long", "sleep 300")
    write_marking_dag(server, "short", "true")
    server.start()
    run_id = server.trigger("long")
    server.in_state(run_id, "t0", "running")
    assert server.stop() == 0
    (server.data / "signing.key").unlink()
    server.start()
    assert server.ended(server.trigger("short")) == "success"
    assert server.ended(run_id) == "failed"
    assert "agent" in server.task(run_id, "t0")["reason"]
    assert processes_of(server) == []


def test_a_locked_database_makes_it_unready_and_nothing_is_lost(server: Lite) -> None:
    """A backup that holds the lock: /health/ready tells the truth, and everything goes on afterwards."""
    marker = write_marking_dag(server, "waits", "sleep 1", tasks=3)
    server.start()
    run_id = server.trigger("waits")
    server.in_state(run_id, "t0", "running")
    with contextlib.closing(sqlite3.connect(server.data / "dexaflow.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        wait_for(lambda: server.request("GET", "/health/ready")[0] == 503, what="it to say that it is not ready")
        assert server.request("GET", "/health/live")[0] == 200
        assert server.get(f"/dexaflow/v1/runs/{run_id}")["run_id"] == run_id  # readers wait for nobody
        other.execute("ROLLBACK")
    wait_for(lambda: server.request("GET", "/health/ready")[0] == 200, what="it to be ready again")
    assert server.ended(run_id) == "success"
    assert sorted(marker.read_text().split()) == ["t0", "t1", "t2"]
    assert server.process is not None
    assert server.process.poll() is None


def environ_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs if pair)


def test_nothing_of_the_servers_environment_is_in_any_process_it_starts(server: Lite) -> None:
    """R10.4: the spawner, agents, users' processes and the DAG loader get an environment made for them."""
    server.environ = {"SERVER_SECRET": "keep-out", "DEXAFLOW_TOKEN": "keep-out"}
    server.write_dag(
        "loads",
        f"""
        import os
        import dexaflow
        open({str(server.root / "loader.env")!r}, "a").write(repr(dict(os.environ)))
        """,
    )
    write_marking_dag(server, "long", "sleep 300")
    server.start()
    assert server.process is not None
    run_id = server.trigger("long")
    server.in_state(run_id, "t0", "running")
    wait_for(lambda: processes_of(server), what="the user's process")
    seen = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            stat = (folder / "stat").read_text()
            parent = int(stat.rpartition(")")[2].split()[1])
            environ = environ_of(int(folder.name))
            ours = parent == server.process.pid or "DEXAFLOW_RUN_ID" in environ
            if ours and int(folder.name) != os.getpid():
                seen.append(folder.name)
                assert "SERVER_SECRET" not in environ
                assert "DEXAFLOW_TOKEN" not in environ
    assert len(seen) >= 2
    loader = server.root / "loader.env"
    wait_for(loader.exists, what="the loader")
    assert "keep-out" not in loader.read_text()


def test_a_dag_whose_file_is_renamed_goes_on_under_its_new_name(server: Lite) -> None:
    marker = write_marking_dag(server, "old", "true")
    server.start()
    assert server.ended(server.trigger("old")) == "success"
    (server.dags / "old.py").rename(server.dags / "new.py")
    wait_for(lambda: [d["file"] for d in server.get("/dexaflow/v1/dags")["dags"]] == ["new.py"], what="the new name")
    assert server.ended(server.trigger("old")) == "success"
    assert marker.read_text() == "t0\nt0\n"
    assert server.get("/dexaflow/v1/dag-errors")["errors"] == []


def test_the_token_is_printed_to_a_terminal(server: Lite) -> None:
    """R10.4: and to nothing else, see `test_lite`."""
    ours, its = pty.openpty()
    try:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "dexaflow.cli.main", "lite", "--dags", str(server.dags), "--data",
                str(server.data), "--port", "0",
            ],
            stdout=subprocess.DEVNULL, stderr=its, stdin=subprocess.DEVNULL, cwd=server.root,
        )  # fmt: skip
        try:
            said = b""
            while b"API token: " not in said or not said.endswith(b"\n"):
                assert select.select([ours], [], [], 30)[0], said
                said += os.read(ours, 4096)
            assert server.token.encode() in said
        finally:
            process.terminate()
            process.wait(30)
    finally:
        os.close(ours)
        os.close(its)


def test_what_a_hook_leaves_behind_does_not_hold_up_the_stop(server: Lite) -> None:
    """R8.3: a thread that is no daemon, and an exit handler; both begin with the hook's module."""
    (server.root / "leaving_things.py").write_text(
        "import atexit, threading\n"
        "from dexaflow.admission import admit\n"
        "forever = threading.Event()\n"
        "threading.Thread(target=forever.wait, name='left behind').start()\n"
        "atexit.register(forever.wait)\n"
        "def hook(request):\n"
        "    return admit()\n"
    )
    server.config = {"execution": {"admission": {"hooks": ["leaving_things:hook"]}}}
    server.start()
    assert server.stop() == 0
    assert [event["threads"] for event in server.events("exit_held_up")] == [["left behind"]]
