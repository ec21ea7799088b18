"""Task logs as files: a piece sent twice is kept once, and no id leaves its folder (R10.4)."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.errors import StoreError
from dexaflow.model.states import State
from dexaflow.reports.handling import AgentReports
from dexaflow.reports.logs import LogFiles
from dexaflow.scheduling.retries import seconds_to_retry
from tests.dispatch.world import World, world
from tests.store.world import a_task
from tests.virtual_time import run_virtually


def test_pieces_are_appended_and_one_sent_twice_is_kept_once(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path)
    assert logs.append("r", "t", 1, 0, b"hello ") == 6
    assert logs.append("r", "t", 1, 6, b"world") == 11
    assert logs.append("r", "t", 1, 0, b"hello ") == 11
    assert logs.append("r", "t", 1, 6, b"world!") == 12  # it grew meanwhile
    assert logs.read("r", "t", 1, 0, 100) == b"hello world!"
    assert logs.read("r", "t", 1, 6, 3) == b"wor"
    assert logs.size("r", "t", 1) == 12


def test_a_piece_beyond_the_end_is_not_taken_and_the_sender_learns_where_to_go_on(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path)
    assert logs.append("r", "t", 1, 5, b"late") == 0
    assert logs.read("r", "t", 1, 0, 100) == b""


@pytest.mark.parametrize("offset", [5, 6, 2**31, 919_133_806_697_004, 2**53, 2**63 - 1, 2**80])
def test_beyond_its_end_a_log_is_empty_however_far(tmp_path: Path, offset: int) -> None:
    """No file system seeks as far as a caller may count."""
    logs = LogFiles(tmp_path)
    logs.append("r", "t", 1, 0, b"hello")
    assert logs.read("r", "t", 1, offset, 10) == b""


def test_tries_have_logs_of_their_own_and_go_with_their_run(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path)
    logs.append("r", "t", 1, 0, b"one")
    logs.append("r", "t", 2, 0, b"two")
    logs.append("other", "t", 1, 0, b"other")
    assert logs.read("r", "t", 2, 0, 100) == b"two"
    logs.remove_run("r")
    assert logs.read("r", "t", 1, 0, 100) == b""
    assert logs.read("other", "t", 1, 0, 100) == b"other"


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_files_and_every_folder_on_the_way_are_their_owners_alone(tmp_path: Path, umask: int) -> None:
    """R10.4"""
    before = os.umask(umask)
    try:
        LogFiles(tmp_path / "logs").append("r", "t", 1, 0, b"x")
    finally:
        os.umask(before)
    for path in [tmp_path / "logs", *(tmp_path / "logs").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


@given(run_id=st.text(min_size=1, max_size=250), task_id=st.text(min_size=1, max_size=250))
def test_no_id_leaves_the_folder_or_meets_another(run_id: str, task_id: str) -> None:
    logs = LogFiles(Path("/logs"))
    try:
        path = logs._path(run_id, task_id, 1)
    except UnicodeEncodeError:
        return  # half of a surrogate pair: no id has one
    assert len(path.parts) == 5
    assert ".." not in path.parts
    assert all(0 < len(part.encode()) <= 255 for part in path.parts[2:])


def test_a_log_that_cannot_be_kept_is_a_store_error_so_that_the_agent_says_it_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            reports = reports_of(w, tmp_path)
            (tmp_path / "logs").write_text("a file where the folder should be")
            attempt_id, launch_id = await launched(w)
            assert await reports.started(attempt_id, launch_id, pid=1, host="here") is not None
            with pytest.raises(StoreError, match="the log cannot be kept"):
                await reports.append_log(attempt_id, launch_id, 0, b"x")
            with pytest.raises(StoreError, match="the log cannot be kept"):
                await finish(reports, attempt_id, launch_id, b"x")
            assert w.state() is State.RUNNING
            (tmp_path / "logs").unlink()
            assert await finish(reports, attempt_id, launch_id, b"x")
            assert w.state() is State.SUCCESS

    run_virtually(test)


def test_a_report_said_twice_is_heard_twice_and_counts_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with world(tmp_path) as w:
            reports = reports_of(w, tmp_path)
            attempt_id, launch_id = await launched(w)
            assert not await finish(reports, attempt_id, launch_id, b"early")  # it has not begun
            assert await reports.started(attempt_id, launch_id, pid=1, host="here") is not None
            assert await reports.append_log(attempt_id, launch_id, 0, b"one ") == 4
            for _ in range(2):
                assert await finish(reports, attempt_id, launch_id, b"two", offset=4)
            assert LogFiles(tmp_path / "logs").read("r", "t", 1, 0, 100) == b"one two"
            assert (w.row().log_bytes, w.state()) == (7, State.SUCCESS)
            assert await reports.heartbeat(attempt_id, launch_id) is None
            assert await reports.append_log(attempt_id, launch_id, 7, b"more") is None

    run_virtually(test)


async def launched(w: World) -> tuple[str, str]:
    w.executor.starts_after = 10_000.0
    w.register(a_task())
    w.trigger()
    await w.seconds(1)
    (launch,) = w.executor.launches
    return launch.launched.attempt_id, launch.launch_id


def reports_of(w: World, root: Path) -> AgentReports:
    return AgentReports(
        w.store, LogFiles(root / "logs"), w.watch, versions=root, retry=seconds_to_retry,
        wake_scheduler=w.scheduler.wake,
    )  # fmt: skip


async def finish(reports: AgentReports, attempt_id: str, launch_id: str, tail: bytes, offset: int = 0) -> bool:
    return await reports.finished(
        attempt_id, launch_id, succeeded=True, exit_code=0, reason="", result=None, log_offset=offset, log_tail=tail
    )
