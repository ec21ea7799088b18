"""The agent's small parts: spool, folder, outcome, order."""

import json
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.agent.folder import AgentState, AlreadyClaimed, Folder, is_launch_id
from dexaflow.agent.order import Order
from dexaflow.agent.outcome import not_started, one_line, outcome_of
from dexaflow.agent.spool import Spool
from dexaflow.agent.user_process import Ended, Stop, seconds_as_text
from dexaflow.agent.work import Work
from dexaflow.authoring.results import MAX_RESULT_BYTES


def test_a_task_that_prints_nothing_has_no_log_file(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "log"))
    assert (spool.size, spool.read(0, 10), os.listdir(tmp_path)) == (0, b"", [])
    spool.close()


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 17))
def test_a_spool_gives_back_what_it_took(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], by: int) -> None:
    path = tmp_path_factory.mktemp("spool") / "log"
    spool = Spool(str(path))
    for part in parts:
        spool.append(part)

    read = b""
    while part := spool.read(len(read), by):
        read += part
    assert read == b"".join(parts)
    assert spool.size == len(read)
    spool.close()
    assert not path.exists()


def test_a_log_beyond_its_cap_ends_with_a_line_that_says_so(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "log"), max_bytes=10)
    for part in (b"12345", b"6789012345", b"never kept"):
        spool.append(part)

    assert spool.read(0, 1000) == b"1234567890"
    assert spool.read(10, 1000) == b"\n[the log ends here: it is longer than 10 bytes]\n"
    assert spool.size == 10 + len(spool.read(10, 1000))
    assert (tmp_path / "log").stat().st_size == 10
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    spool.close()


def test_a_full_disk_ends_the_log_and_not_the_task() -> None:
    spool = Spool("/dev/full")
    spool.append(b"x")
    spool.append(b"y")

    assert spool.read(0, 1000) == b"\n[the log ends here: No space left on device]\n"


STATE = AgentState("launch-1", "attempt-1", 4711, "boot:99")


def test_a_launch_is_claimed_by_one_agent(tmp_path: Path) -> None:
    """None runs twice at once, also when an order was handed to two (R10.3)."""
    folder = Folder(tmp_path / "agents")
    folder.make()
    folder.claim(STATE)

    with pytest.raises(AlreadyClaimed):
        folder.claim(AgentState("launch-1", "attempt-1", 4712, "boot:100"))
    assert folder.read("launch-1") == STATE
    assert os.listdir(tmp_path / "agents") == ["launch-1.json"]
    assert (tmp_path / "agents/launch-1.json").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "agents").stat().st_mode & 0o777 == 0o700


def test_a_state_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """A full disk: the launch is not claimed, or its state file stays as it was."""
    folder = Folder(tmp_path / "agents")
    folder.make()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError):
            folder.claim(STATE)
        assert os.listdir(tmp_path / "agents") == []
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        folder.claim(STATE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        with pytest.raises(OSError):
            folder.update(replace(STATE, user_pid=4711))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert folder.read("launch-1") == STATE
    assert os.listdir(tmp_path / "agents") == ["launch-1.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b'{"launch_id": "launch-1"}', b'{"x": 1}', b"\xff", b"[" * 100_000,
        b'{"launch_id": "launch-2", "attempt_id": "a", "pid": 7, "born": "b"}',
        b'{"launch_id": "launch-1", "attempt_id": "a", "pid": "7", "born": "b"}',
        b'{"launch_id": "launch-1", "attempt_id": "a", "pid": -1, "born": "b"}',
        b'{"launch_id": "launch-1", "attempt_id": "a", "pid": 7, "born": 3}',
        b'{"launch_id": "launch-1", "attempt_id": "a", "pid": 7, "born": "b", "user_pid": true}',
    ],
)  # fmt: skip
def test_a_damaged_state_file_is_that_of_a_dead_agent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "launch-1.json").write_bytes(content)

    state = Folder(tmp_path).read("launch-1")

    assert state is not None
    assert (state.pid, state.born, state.user_pid) == (0, "", None)


def test_all_files_of_a_launch_go_whatever_the_user_left(tmp_path: Path) -> None:
    """No leaked temporary files (R10.3)."""
    folder = Folder(tmp_path)
    folder.claim(STATE)
    Path(folder.log_file("launch-1")).write_text("x")
    deep = Path(folder.work_folder("launch-1")) / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "f").write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (deep / "link").symlink_to(outside)
    deep.chmod(0o500)
    deep.parent.chmod(0o000)

    folder.remove("launch-1")

    assert os.listdir(tmp_path) == ["outside"]
    assert outside.stat().st_mode & 0o777 == 0o755
    folder.remove("launch-1")  # again: nothing to do


def test_files_without_a_state_file_are_leavings(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.claim(STATE)
    for name in ("launch-1.log", "launch-2.log", "launch-3.work", "errors.log", "other.txt"):
        (tmp_path / name).touch()
    (tmp_path / f"launch-4.{2**22 + 1}.new").touch()
    (tmp_path / f"launch-5.{os.getpid()}.new").touch()  # being written

    assert folder.leavings() == ["launch-2", "launch-3"]
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith("new")) == [f"launch-5.{os.getpid()}.new"]


def test_what_a_task_puts_beside_the_files_of_agents_stops_nobody(tmp_path: Path) -> None:
    """Its working directory is in the same folder, and the next server looks into it when it starts (R10.3)."""
    folder = Folder(tmp_path)
    folder.claim(STATE)
    for name in ("a b.json", "\udcff.json", ".json", "x.y.json", "\udcff.new", "\udcff.log", "launch-6.work"):
        (tmp_path / name).touch()
    for name in ("launch-2.json", "launch-3.log", "launch-4.7.new", "launch-5.new"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "launch-7.json")
    (tmp_path / "launch-8.json").symlink_to("/dev/zero")

    assert folder.launches() == ["launch-1"]
    for launch_id in folder.leavings():
        folder.remove(launch_id)
        folder.remove_drafts(launch_id)
    folder.remove("launch-1")
    assert folder.launches() == []


@pytest.mark.parametrize("text", ["", ".", "..", "../x", "a/b", "a.b", "a\n", "-x", "x" * 65, "ä", "a b", "\0"])
def test_what_is_no_launch_id_names_no_file(text: str, tmp_path: Path) -> None:
    assert not is_launch_id(text)
    with pytest.raises(ValueError):
        Folder(tmp_path).read(text)
    with pytest.raises(ValueError):
        Order(text, "a", "/", url="http://localhost")


def test_an_order_says_where_the_server_is_in_one_way() -> None:
    order = Order("launch-1", "attempt-1", "/data/agents", server_file="/data/server.json")

    assert Order.from_json(order.to_json()) == order
    for server_file, url in (("", ""), ("a", "b")):
        with pytest.raises(ValueError, match="one of them"):
            Order("launch-1", "attempt-1", "/", server_file, url)


def some_work(**changes: Any) -> dict[str, Any]:
    return {"operator": "bash", "execution_timeout": None, "context": {}, "dag_id": "d", "task_id": "t", **changes}


BASH, PYTHON = Work.from_json(some_work()), Work.from_json(some_work(operator="python"))


@pytest.mark.parametrize(
    ("ended", "work", "succeeded", "reason"),
    [
        (Ended(0, None, b""), BASH, True, ""),
        (Ended(0, None, b'R{"a": 1}'), PYTHON, True, ""),
        (Ended(3, None, b""), BASH, False, "exit code 3"),
        (Ended(-9, None, b""), BASH, False, "killed by SIGKILL"),
        (Ended(-11, None, b"R1"), PYTHON, False, "killed by SIGSEGV"),
        (Ended(-63, None, b""), BASH, False, "killed by signal 63"),
        (Ended(1, None, b"EValueError: no\x1b[31m\n\x00such\xff"), PYTHON, False, "ValueError: no [31m such�"),
        (Ended(7, None, b"R1"), PYTHON, False, "exit code 7"),
        (Ended(0, None, b""), PYTHON, False, "the process ended with exit code 0, but before the task's function"),
        (Ended(0, None, b"Rnot json"), PYTHON, False, "its result is not JSON"),
        (Ended(0, None, b"R\xff"), PYTHON, False, "its result is not JSON"),
        (
            Ended(0, None, b'R"' + b"x" * MAX_RESULT_BYTES + b'"'),
            PYTHON,
            False,
            "its result is larger than 65536",
        ),
        (Ended(0, Stop("timed out after 30s", timed_out=True), b"R1"), PYTHON, False, "timed out after 30s"),
        (Ended(-15, Stop("cancelled"), b""), BASH, False, "cancelled"),
    ],
)
def test_the_reason_says_what_came_of_it(ended: Ended, work: Work, succeeded: bool, reason: str) -> None:
    """Exit code, signal by name, timeout; one line."""
    outcome = outcome_of(ended, work)

    assert (outcome.succeeded, outcome.exit_code) == (succeeded, ended.exit_code)
    assert outcome.reason.startswith(reason)
    assert bool(outcome.reason) is not succeeded


def test_a_result_of_exactly_the_limit_passes() -> None:
    said = json.dumps("x" * (MAX_RESULT_BYTES - 2)).encode()

    assert outcome_of(Ended(0, None, b"R" + said), PYTHON).result == said.decode()


def test_what_could_not_begin_says_so() -> None:
    assert not_started(FileNotFoundError(2, "No such file or directory")).reason == (
        "could not start: No such file or directory"
    )
    assert not_started(KeyError("operator")).exit_code is None


@pytest.mark.parametrize(
    "changes",
    [
        {"operator": "docker"},
        {"execution_timeout": 0},
        {"execution_timeout": "soon"},
        {"execution_timeout": float("nan")},
        {"env": {"A": 1}},
        {"env": [1]},
        {"context": None},
        {"dag_id": 5},
    ],
)
def test_work_that_is_not_as_agreed_is_not_begun(changes: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        Work.from_json(some_work(**changes))


@given(st.text())
def test_a_reason_is_one_printable_line_of_bounded_size(text: str) -> None:
    line = one_line(text, 40)

    assert len(line.encode()) <= 40
    assert not line or line.isprintable()


@pytest.mark.parametrize(("seconds", "text"), [(30.0, "30s"), (0.5, "0.5s"), (3600.0, "3600s"), (1e9, "1000000000s")])
def test_durations_read_as_written(seconds: float, text: str) -> None:
    assert seconds_as_text(seconds) == text
