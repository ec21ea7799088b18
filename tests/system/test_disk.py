"""A disk that is full or read-only, and a database that somebody else holds: one clear line, and nothing is lost."""

import contextlib
import json
import resource
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.evils import Walk
from tests.system.lite import Lite, fails, wait_for


@pytest.fixture
def small_disk(walking: Walk) -> Iterator[Path]:
    """Put the data folder on a disk of its own, of 4 MB."""
    data = walking.server.data
    data.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "none", str(data)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only who may mount can have a disk of its own; the limit on file sizes stands in for it")
    try:
        yield data
    finally:
        process = walking.server.process
        if process is not None and process.poll() is None:
            walking.server.kill9()
        wait_for(
            lambda: not subprocess.run(["umount", str(data)], capture_output=True, check=False).returncode,
            what="agents to leave the disk",
        )


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / ".ballast").open("ab", buffering=0) as ballast:
        while True:
            ballast.write(b"\0" * 4096)


def make_room(disk: Path) -> None:
    (disk / ".ballast").unlink()


def causes(server: Lite) -> set[str]:
    """Return what the log says went wrong, each once."""
    lines = [json.loads(line) for line in server.log().splitlines() if line.startswith("{")]
    return {str(line.get("cause")) for line in lines if line["level"] == "error"}


def test_a_full_disk_at_start_is_one_clear_line_and_later_it_starts(walking: Walk, small_disk: Path) -> None:
    server = walking.server
    fill(small_disk)
    assert fails(server).endswith("No space left on device; make room on that disk")
    make_room(small_disk)
    server.start()
    assert server.ended(server.trigger("walk")) == "failed"
    assert server.stop() == 0
    fill(small_disk)
    assert "full" in fails(server)
    make_room(small_disk)
    server.start()
    assert walking.evils() == []


@pytest.mark.parametrize("meanwhile", ["launching", "running"])
def test_a_disk_that_fills_up_loses_nothing(walking: Walk, small_disk: Path, meanwhile: str) -> None:
    server = walking.server
    server.start()
    run_id = server.trigger("walk")
    server.in_state(run_id, "first", meanwhile, "running")
    fill(small_disk)
    time.sleep(2)  # a few rounds of every loop
    status, said = server.request("POST", "/dexaflow/v1/dags/walk/runs", {"conf": {}})
    assert (status, said["detail"]) == (
        503, "the database refused a write: database or disk is full; make room on that disk"
    )  # fmt: skip
    assert all("make room on that disk" in cause for cause in causes(server)), causes(server)
    make_room(small_disk)
    assert walking.evils() == []


def limit_files(server: Lite, size: int) -> None:
    """Let the server, its spawner and its agents write no file beyond `size`, as on a disk that is full."""
    assert server.process is not None
    mine = [server.process.pid]
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                b"watched_agents.py" in (folder / "cmdline").read_bytes()
                and str(server.root).encode() in (folder / "cmdline").read_bytes()
            ):
                mine.append(int(folder.name))
    for pid in mine:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_when_no_file_may_grow_nothing_is_lost_and_all_goes_on_afterwards(walking: Walk) -> None:
    """The log of the server cannot grow either, and is no reason to die."""
    server = walking.server
    server.start()
    run_id = server.trigger("walk")
    server.in_state(run_id, "first", "running")
    limit_files(server, 0)
    assert server.request("POST", "/dexaflow/v1/dags/walk/runs", {"conf": {}})[0] == 503
    time.sleep(2)  # a few rounds of every loop
    limit_files(server, resource.RLIM_INFINITY)
    assert walking.evils() == []
    assert server.process is not None
    assert server.process.poll() is None


def test_whoever_asks_whether_it_is_ready_learns_that_no_write_succeeds(walking: Walk) -> None:
    """Also when nothing is due: a database that takes no writes is not found out by a pass that has none."""
    server = walking.server
    server.start()
    limit_files(server, 0)
    wait_for(lambda: server.request("GET", "/health/ready")[0] == 503, what="it to say that it is not ready")
    ready = server.request("GET", "/health/ready")[1]
    assert (ready["database"], ready["why"]) == (False, "the database takes no writes; the server's log says why")
    limit_files(server, resource.RLIM_INFINITY)
    wait_for(lambda: server.request("GET", "/health/ready")[0] == 200, what="it to be ready again")


def test_a_data_folder_on_a_disk_that_is_mounted_read_only_is_one_clear_line(walking: Walk, small_disk: Path) -> None:
    server = walking.server
    server.start()
    assert server.stop() == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert "Read-only file system" in fails(server)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    server.start()
    server.trigger("walk")
    assert walking.evils() == []


def test_a_database_that_somebody_holds_is_waited_for_at_start_and_then_named(walking: Walk) -> None:
    server = walking.server
    server.start()
    assert server.stop() == 0
    with contextlib.closing(sqlite3.connect(server.data / "dexaflow.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        said = fails(server)
        assert said.startswith(f"dexaflow: cannot use {server.data / 'dexaflow.db'}: ")
        assert said.endswith("database is locked; another program has it open: end that, then try again")
        server.start(ready=False)
        time.sleep(2)  # less than it waits
        other.execute("ROLLBACK")
    wait_for(lambda: server.announced(), what="the server to be up")
    server.trigger("walk")
    assert walking.evils() == []


def test_a_database_that_somebody_holds_for_a_moment_loses_nothing(walking: Walk) -> None:
    """For longer than a write waits: `test_startup`."""
    server = walking.server
    server.start()
    run_id = server.trigger("walk")
    server.in_state(run_id, "first", "running")
    with contextlib.closing(sqlite3.connect(server.data / "dexaflow.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(2)
        other.execute("ROLLBACK")
    assert walking.evils() == []
    assert all("another program has it open" in cause for cause in causes(server)), causes(server)
