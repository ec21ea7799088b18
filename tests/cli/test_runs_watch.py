"""`dexaflow runs watch`: progress as it happens, across a restart of the server."""

import json
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.cli.address import NoServer
from dexaflow.cli.live_table import _that_fit
from dexaflow.cli.watching import Event, Progress, parse_events
from tests.cli.conftest import HOSTILE, Served


def test_watching_ends_with_the_run_and_tells_how(served: Served) -> None:
    good = served.run("runs", "trigger", "etl", "--watch")
    run_id, *lines = good.stdout.splitlines()
    assert lines[-1].endswith(f"run {run_id} of etl  success")
    assert [line for line in lines if line.endswith("extract  success")]
    assert served.run("runs", "watch", run_id).stdout.count(run_id) == 1
    bad = served.run("runs", "trigger", "failing", "--watch", code=1)
    assert "first (try 2)  failed  exit code 3" in bad.stdout
    assert "second  upstream_failed" in bad.stdout
    missing = served.run("runs", "watch", "nope", code=2)
    assert "there is no run 'nope'" in missing.stderr


def test_json_is_an_event_a_line(served: Served) -> None:
    watched = served.run("runs", "trigger", "etl", "--watch", "--output", "json")
    events = [json.loads(line) for line in watched.stdout.splitlines()]
    assert watched.stdout.isascii()
    assert events[0]["event"] == "run"
    assert events[-1] == {"event": "end", "data": {"run_id": events[0]["data"]["run_id"], "state": "success"}}
    assert {e["data"]["task_id"] for e in events if e["event"] == "task"} == {"extract", "load"}


def test_a_restart_of_the_server_does_not_end_it(served: Served) -> None:
    """The server comes back at another port; what was told is not told again."""
    run_id = served.run("runs", "trigger", "slow").stdout.strip()
    with served.program.started("runs", "watch", run_id) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        told = ""
        while "plain_wait  running" not in told:
            told += (line := watching.stdout.readline())
            assert line
        served.server.stop()
        assert "the server is gone" in watching.stderr.readline()
        served.server.start()
        assert "the server is back" in watching.stderr.readline()
        served.gate.touch()
        told += watching.stdout.read()
        assert watching.wait(60) == 0
    assert told.count("plain_wait  running") == 1
    assert told.splitlines()[-1].endswith("success")


@pytest.mark.parametrize("command", [("runs", "watch"), ("tasks", "logs", "--follow")])
def test_ctrl_c_ends_it_quietly(served: Served, command: tuple[str, ...]) -> None:
    run_id = served.run("runs", "trigger", "slow").stdout.strip()
    served.server.in_state(run_id, "plain_wait", "running")
    task = ("plain_wait",) if command[0] == "tasks" else ()
    with served.program.started(*command, run_id, *task) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
        assert watching.stderr.read() == ""
    served.run("runs", "cancel", run_id)


def test_on_a_terminal_it_is_a_table_in_which_text_is_text(served: Served) -> None:
    """R4.4: a reason from outside moves no cursor."""
    served.frozen.write_text(HOSTILE)
    run_id = served.run("runs", "trigger", "frozen").stdout.strip()
    with served.program.on_terminal("runs", "watch", run_id) as terminal:
        terminal.until("asked again")
        assert "held" in terminal.written
        served.frozen.unlink()
        served.run("holds", "ask-now", run_id, "held_task")
        assert terminal.end() == 0
        assert "success" in terminal.written
        assert "\\u202e" in terminal.written
        for evil in ("\x1b[31mred", "\u202e", "\u2028", "\u200b", "\x1b[2J"):
            assert evil not in terminal.written


def test_ctrl_c_on_a_terminal_leaves_the_cursor_visible(served: Served) -> None:
    run_id = served.run("runs", "trigger", "slow").stdout.strip()
    with served.program.on_terminal("runs", "watch", run_id) as terminal:
        terminal.until("plain_wait")
        terminal.interrupt()
        assert terminal.end() == 130
        assert terminal.written.rindex("\x1b[?25h") > terminal.written.rindex("\x1b[?25l")
        assert "Traceback" not in terminal.written
    served.run("runs", "cancel", run_id)


def pieces(*parts: bytes) -> Callable[[], bytes]:
    left: Iterator[bytes] = iter([*parts, b""])
    return lambda: next(left)


STREAM = (
    b'event: run\ndata: {"run_id":"r"}\n\n: still here\n\nevent: task\ndata: {"reason":"\xe2\x82\xac"}\n\n'
    b'event: end\ndata: {"state":"success"}\n\nevent: cut\ndata: {"of'
)


@given(st.lists(st.integers(1, len(STREAM) - 1)))
def test_events_are_the_same_however_the_bytes_come(cuts: list[int]) -> None:
    places = [0, *sorted(set(cuts)), len(STREAM)]
    parts = [STREAM[a:b] for a, b in pairwise(places)]
    assert list(parse_events(pieces(*parts))) == [
        Event("run", {"run_id": "r"}),
        Event("task", {"reason": "\u20ac"}),
        Event("end", {"state": "success"}),
    ]


@given(st.binary())
def test_whatever_is_sent_is_events_or_an_error_of_ours(sent: bytes) -> None:
    try:
        assert all(isinstance(event.data, dict) for event in parse_events(pieces(*([sent] if sent else []))))
    except NoServer:
        pass


def test_an_event_without_end_is_given_up() -> None:
    with pytest.raises(NoServer, match="too large"):
        list(parse_events(pieces(b"data: ", *[b"x" * 1_000_000] * 5)))


def test_being_asked_again_with_the_same_answer_is_no_news() -> None:
    progress = Progress()
    held = {"task_id": "a", "state": "held", "reason": "frozen", "hook": "freeze", "try_number": 1, "next_ask_at": "x"}
    assert progress.take(Event("task", held))
    assert not progress.take(Event("task", {**held, "next_ask_at": "y"}))
    assert progress.take(Event("task", {**held, "reason": "frozen still"}))
    assert progress.counts() == "1 held"


def test_where_there_is_no_room_the_pressing_tasks_are_drawn() -> None:
    states = ["success"] * 50 + ["held", "none", "running", "failed"] + ["none"] * 50
    tasks = [{"task_id": str(n), "state": state} for n, state in enumerate(states)]
    assert [t["state"] for t in _that_fit(tasks, 4)] == ["success", "held", "running", "failed"]
    assert _that_fit(tasks, 200) == tasks
