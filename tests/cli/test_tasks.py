"""`dexaflow tasks`: list, show, logs and explain, against a real server."""

import json
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.text import shown
from dexaflow.cli.explaining import changes_text
from dexaflow.cli.logs import ShownLines
from tests.cli.conftest import HOSTILE, Served

LOG = b"one\n\x1b[31mtwo\x1b[0m\r\nthr\tee \xff end"


@pytest.fixture(scope="module")
def ran(_served: Served) -> dict[str, str]:
    """Runs that have come to rest: by DAG."""
    made = {dag: _served.run("runs", "trigger", dag).stdout.strip() for dag in ("etl", "failing", "dear")}
    for run_id in made.values():
        _served.server.ended(run_id)
    return made


def steps(text: str) -> list[tuple[str, str]]:
    """Return the walk that is printed before the pod."""
    walk = text.partition("\n\n")[0]
    width = walk.index("task ")
    return [(line[:width].strip(), line[width:]) for line in walk.splitlines()]


def test_tasks_are_listed_and_shown(served: Served, ran: dict[str, str]) -> None:
    run_id = ran["failing"]
    base = f"/dexaflow/v1/runs/{run_id}/tasks"
    assert served.json("tasks", "list", run_id) == served.server.get(base)
    assert served.json("tasks", "show", run_id, "first", "--try", "1") == served.server.get(
        f"{base}/first?try_number=1"
    )
    table = served.run("tasks", "list", run_id).stdout
    assert "2/2" in table
    assert "exit code 3" in table
    assert "second" not in served.run("tasks", "list", run_id, "--state", "failed").stdout
    shown_task = served.run("tasks", "show", run_id, "first").stdout
    assert "2 of 2" in shown_task
    assert "has no try 9" in served.run("tasks", "show", run_id, "first", "--try", "9", code=1).stderr


def test_a_log_into_a_pipe_is_as_the_task_wrote_it(served: Served, ran: dict[str, str]) -> None:
    command = [sys.executable, "-m", "dexaflow.cli.main", "tasks", "logs", ran["etl"], "extract"]
    for more in ([], ["--follow"], ["--try", "1"]):
        ended = subprocess.run([*command, *more], capture_output=True, timeout=60, env=served.program.environ({}))
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, LOG, b"")


def test_a_log_is_json_for_programs(served: Served, ran: dict[str, str]) -> None:
    """One document; one a line, which together say the same, for whoever follows it."""
    whole = served.json("tasks", "logs", ran["etl"], "extract")
    assert whole == {
        "run_id": ran["etl"], "task_id": "extract", "try_number": 1, "offset": 0,
        "text": LOG.decode("utf-8", "replace"), "complete": True,
    }  # fmt: skip
    followed = served.run("tasks", "logs", ran["etl"], "extract", "--follow", "--output", "json").stdout
    pieces = [json.loads(line) for line in followed.splitlines()]
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert pieces[-1]["complete"]
    empty = served.json("tasks", "logs", ran["dear"], "dear_task")
    assert (empty["text"], empty["complete"]) == ("", True)


def test_a_log_on_a_terminal_is_text(served: Served, ran: dict[str, str]) -> None:
    """R4.4: escapes do nothing."""
    with served.program.on_terminal("tasks", "logs", ran["etl"], "extract") as terminal:
        assert terminal.end() == 0
    assert terminal.written.splitlines() == ["one", "\\u001b[31mtwo\\u001b[0m", "thr     ee \ufffd end"]


def test_each_try_has_its_log(served: Served, ran: dict[str, str]) -> None:
    assert served.run("tasks", "logs", ran["failing"], "first", "--try", "1").stdout == "try 1\n"
    assert served.run("tasks", "logs", ran["failing"], "first").stdout == "try 2\n"


def test_a_log_is_followed_to_its_end_across_a_restart(served: Served) -> None:
    run_id = served.run("runs", "trigger", "slow").stdout.strip()
    with served.program.started("tasks", "logs", run_id, "plain_wait", "-f") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "begun\n"
        served.server.stop()
        served.server.start()
        served.gate.touch()
        assert following.stdout.read() == "done\n"
        assert following.wait(60) == 0


def test_an_empty_log_is_explained(served: Served) -> None:
    served.frozen.write_text("closed until 06:00 UTC")
    run_id = served.run("runs", "trigger", "frozen").stdout.strip()
    served.server.in_state(run_id, "held_task", "held")
    ended = served.run("tasks", "logs", run_id, "held_task")
    assert ended.stdout == ""
    assert "is held: freeze: closed until 06:00 UTC; asked again at" in ended.stderr
    served.run("runs", "cancel", run_id)
    run_id = served.run("runs", "trigger", "quiet").stdout.strip()
    served.server.in_state(run_id, "plain_quiet", "running")
    ended = served.run("tasks", "logs", run_id, "plain_quiet")
    assert (ended.stdout, ended.stderr) == ("", "dexaflow: the log is empty: try 1 of plain_quiet is running\n")
    served.gate.touch()


def test_a_walk_is_told_in_order_with_every_answer(served: Served, ran: dict[str, str]) -> None:
    """R9.2: who was asked, what came back, the changes, how long it took; and key by key who set what."""
    told = served.run("tasks", "explain", ran["etl"], "extract").stdout
    walk = steps(told)
    assert [name for name, _ in walk] == [
        "attempt", "dag", "state", "trigger", "scheduled", "slots", "own checks", "hook answer 1", "hook answer 2",
        "hook answer 3", "admission", "asked next", "launch", "agent", "end",
    ]  # fmt: skip
    said = dict(walk)
    assert said["own checks"] == "passed"
    assert said["hook answer 1"].startswith("freeze: admit; at ")
    assert "changes node_selector.tenant=default, labels.cost-center=4711" in said["hook answer 2"]
    assert " took " in said["hook answer 2"]
    assert "given back" in said["slots"]
    assert "token was minted" in said["launch"]
    assert "exit code 0" in said["end"]
    rows = [line.split() for line in told.partition("set by")[2].splitlines()]
    assert ["labels", "team", "data", "author"] in rows
    assert ["labels", "cost-center", "4711", "hook:place"] in rows
    assert ["resources.limits", "memory", "1Gi", "unit"] in rows
    assert ["service_account", "-", "default", "platform", "default"] in rows
    assert shown(HOSTILE) in told
    for evil in ("\x1b", "\u202e", "\u2028"):
        assert evil not in told
    explained = served.json("tasks", "explain", ran["etl"], "extract")
    assert explained == served.server.explain(ran["etl"], "extract")


def test_a_refusal_is_explained(served: Served, ran: dict[str, str]) -> None:
    """R1.4: it never runs and never holds a credential."""
    said = dict(steps(served.run("tasks", "explain", ran["dear"], "dear_task").stdout))
    assert said["admission"] == "refused by place: over budget [31m\\u202e"
    assert said["launch"] == "never: no token was minted, nothing was started"
    assert said["asked next"] == "nothing"


def test_a_hold_is_explained_with_what_is_asked_next(served: Served) -> None:
    """R6.1."""
    served.frozen.write_text("closed")
    run_id = served.run("runs", "trigger", "frozen").stdout.strip()
    served.server.in_state(run_id, "held_task", "held")
    said = dict(steps(served.run("tasks", "explain", run_id, "held_task").stdout))
    assert said["admission"].startswith("held by freeze since ")
    assert said["admission"].endswith(": closed")
    assert "(in " in said["asked next"]
    assert said["slots"] == "1 of pool default_pool, given back while it is held"
    assert said["launch"] == "not yet: no token, no process"
    served.run("runs", "cancel", run_id)
    over = dict(steps(served.run("tasks", "explain", run_id, "held_task").stdout))
    assert over["asked next"] == "nothing"
    assert over["admission"] == "was held by freeze: closed"
    assert over["slots"] == "1 of pool default_pool, given back when it was held"
    assert "cancelled by" in over["end"]


def test_a_broken_hook_is_explained_without_its_cause(served: Served) -> None:
    """R7.2: the cause is in the server's log alone, under an id."""
    run_id = served.run("runs", "trigger", "broken").stdout.strip()
    served.server.in_state(run_id, "broken_task", "held")
    told = served.run("tasks", "explain", run_id, "broken_task").stdout
    said = dict(steps(told))
    assert said["hook answer 3"].startswith("broken: broken: held: the request failed")
    assert "the server's log has the cause under" in said["hook answer 3"]
    assert "not today" not in told
    served.run("runs", "cancel", run_id)
    over = dict(steps(served.run("tasks", "explain", run_id, "broken_task").stdout))
    assert over["admission"] == "was held by broken: the hook was broken", "it is not tried again"


def test_an_exit_code_is_told_once_and_what_never_ran_would_have_run(served: Served, ran: dict[str, str]) -> None:
    failed = served.run("tasks", "explain", ran["failing"], "first").stdout
    assert dict(steps(failed))["end"].count("exit code 3") == 1
    assert "What it ran with" in failed
    assert "What it would have run with" in served.run("tasks", "explain", ran["dear"], "dear_task").stdout


def test_what_waits_for_a_paused_dag_says_so_wherever_one_looks(served: Served) -> None:
    """Since when, by whom, and what lets it go on."""
    served.run("dags", "pause", "etl")
    try:
        run_id = served.run("runs", "trigger", "etl").stdout.strip()
        shown_dag = served.run("dags", "show", "etl").stdout
        for told in (
            served.run("tasks", "explain", run_id, "load").stdout,
            served.run("tasks", "show", run_id, "load").stdout,
            served.run("tasks", "list", run_id).stdout,
            served.run("runs", "show", run_id).stdout,
            served.run("tasks", "logs", run_id, "load").stderr,
        ):
            assert "its DAG is paused since 20" in told
            assert "`dexaflow dags unpause etl` lets it go on" in told
        assert "the log is empty: try 1 of load has not begun: its DAG is paused" in told  # the log's, the last of them
        assert "since 20" in shown_dag
        assert " by " in shown_dag
        told = served.run("tasks", "explain", run_id, "load").stdout
        assert dict(steps(told))["scheduled"].endswith("; waits for extract (none)")
    finally:
        served.run("dags", "unpause", "etl")
    served.server.ended(run_id)


def test_changes_are_told_key_by_key() -> None:
    toleration = {"key": "tenant", "operator": "Equal", "value": "acme", "effect": "NoSchedule"}
    assert changes_text({"labels": {"a": "b"}, "tolerations": [toleration], "service_account": "x"}) == (
        "labels.a=b, tolerations: tenant=acme:NoSchedule, service_account=x"
    )
    assert changes_text({"tolerations": [{"operator": "Exists"}]}) == "tolerations: every taint"


def test_the_line_of_an_answer_that_changed_much_ends() -> None:
    many = changes_text({"labels": {f"k{n}": "v" for n in range(5_000)}})
    assert many.startswith("labels.k0=v, ")
    assert many.endswith(", labels.k19=v and 4,980 more")
    long = changes_text({"annotations": {"note": "x" * 60_000}, "service_account": "etl"})
    assert long == f"annotations.note={'x' * 383}..., service_account=etl"


@given(st.binary(), st.lists(st.integers(0, 200)))
def test_a_log_is_the_same_text_however_its_bytes_come(log: bytes, cuts: list[int]) -> None:
    whole = ShownLines().feed(log, last=True)
    assert all(shown(line) == line for line in whole)
    places = [0, *sorted(c for c in cuts if c <= len(log)), len(log)]
    lines, found = ShownLines(), list[str]()
    for start, end in pairwise(places):
        found += lines.feed(log[start:end])
    assert found + lines.feed(b"", last=True) == whole


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    lines = ShownLines()
    assert sum(len(line) for _ in range(10) for line in lines.feed(b"x" * 60_000)) > 500_000
