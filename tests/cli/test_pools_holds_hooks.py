"""`dexaflow pools`, `holds` and `hooks`: what a platform engineer looks after, against a real server."""

import pytest

from dexaflow.base.text import shown
from tests.cli.conftest import HOSTILE, Served
from tests.system.lite import wait_for


def held(served: Served) -> str:
    """Make a run whose task is held, and return its id."""
    run_id = served.run("runs", "trigger", "frozen").stdout.strip()
    served.server.in_state(run_id, "held_task", "held")
    return run_id


def test_pools_are_set_listed_and_deleted(served: Served) -> None:
    assert served.run("pools", "set", "small", "3").stdout == "Pool small has 3 slots, 3 of them open.\n"
    assert served.json("pools", "set", "small", "4", "--description", HOSTILE)["description"] == HOSTILE
    assert served.json("pools", "set", "small", "5")["description"] == HOSTILE
    table = served.run("pools", "list").stdout
    assert shown(HOSTILE) in table
    assert "\x1b" not in table
    assert {pool["name"]: pool["slots"] for pool in served.json("pools", "list")["pools"]}["small"] == 5
    assert served.run("pools", "delete", "small").stdout == "Pool small is deleted.\n"
    assert "there is no pool 'small'" in served.run("pools", "delete", "small", code=1).stderr
    assert "default_pool cannot be deleted" in served.run("pools", "delete", "default_pool", code=1).stderr


@pytest.mark.parametrize(
    "arguments", [("a/b", "1"), ("", "1"), ("..", "1"), ("x", "-1"), ("x", "many"), ("x", "99999999999"), ("a\tb", "1")]
)
def test_a_pool_that_cannot_be_is_refused(served: Served, arguments: tuple[str, str]) -> None:
    said = served.run("pools", "set", *arguments, code=2).stderr
    assert arguments[1] not in ("1",) or "1 to 250 characters, no / and no control characters" in said
    assert "64 bits" not in said


def test_holds_are_listed_with_their_reason_and_next_ask(served: Served) -> None:
    """R6.1, R6.3, R4.4: the reason is whole and is text; JSON gives it as kept."""
    reason = "frozen \u202e " + "x" * 480
    served.frozen.write_text(reason)
    run_id = held(served)
    found = served.json("holds", "list", "--hook", "freeze", "--dag", "frozen")
    assert found == served.server.get("/dexaflow/v1/holds?hook=freeze&dag_id=frozen")
    assert [hold["reason"] for hold in found["holds"] if hold["run_id"] == run_id] == [reason]
    row = next(line for line in served.run("holds", "list").stdout.splitlines() if run_id in line)
    assert shown(reason) in row
    assert "(in " in row
    served.run("runs", "cancel", run_id)


def test_one_held_attempt_is_asked_now(served: Served) -> None:
    """R6.3."""
    served.frozen.write_text("closed")
    one, other = held(served), held(served)
    served.frozen.unlink()
    assert served.run("holds", "ask-now", one, "held_task").stdout == "1 held attempt is asked now.\n"
    assert served.server.ended(one) == "success"
    assert served.server.task(other, "held_task")["state"] == "held"
    refused = served.run("holds", "ask-now", one, "held_task", code=1)
    assert (refused.stdout, "this attempt is not held" in refused.stderr) == ("", True)
    body = {"run_id": one, "task_id": "held_task"}
    assert served.server.request("POST", "/dexaflow/v1/holds/ask-now", body)[0] == 409
    served.run("runs", "cancel", other)


def test_all_that_a_hook_holds_is_asked_now(served: Served) -> None:
    """R6.3."""
    served.frozen.write_text("closed")
    made = [held(served), held(served)]
    served.frozen.unlink()
    assert served.json("holds", "ask-now", "--hook", "freeze")["count"] >= 2
    assert [served.server.ended(run_id) for run_id in made] == ["success", "success"]
    assert "there is no hook 'nope'" in served.run("holds", "ask-now", "--hook", "nope", code=1).stderr


@pytest.mark.parametrize("arguments", [(), ("run",), ("run", "task", "--hook", "freeze"), ("run", "--hook", "freeze")])
def test_asking_now_needs_a_task_or_a_hook(served: Served, arguments: tuple[str, ...]) -> None:
    assert "give RUN and TASK, or --hook HOOK" in served.run("holds", "ask-now", *arguments, code=2).stderr


def test_what_is_not_there_is_no_empty_list(served: Served) -> None:
    """A mistyped name must not look like good news."""
    assert "there is no hook 'nothere'" in served.run("holds", "list", "--hook", "nothere", code=1).stderr
    assert "there is no DAG 'nothere'" in served.run("holds", "list", "--dag", "nothere", code=1).stderr
    assert "there is no DAG 'nothere'" in served.run("runs", "list", "--dag", "nothere", code=1).stderr
    assert "there is no DAG 'nothere'" in served.run("runs", "show", "nothere@latest", code=1).stderr
    assert served.run("holds", "list", "--hook", "place").stdout == "Nothing is held.\n"
    for command in (("holds", "list"), ("runs", "list"), ("dags", "list"), ("dags", "errors")):
        said = served.run(*command, "--tenant", "nothere", code=1)
        assert (said.stdout, said.stderr) == ("", "dexaflow: there is no tenant 'nothere'; there is default\n")
    for listing in (["runs", "list"], ["tasks", "list", "@latest"]):
        said = served.run(*listing, "--state", "nothere", code=2)
        assert "'nothere' is not one of" in said.stderr


def test_hooks_show_failures_and_cause_to_the_operator(served: Served) -> None:
    run_id = served.run("runs", "trigger", "broken").stdout.strip()
    served.server.in_state(run_id, "broken_task", "held")
    wait_for(lambda: served.json("hooks", "list")["hooks"][2]["held"], what="the hold to be counted")
    hooks = served.json("hooks", "list")["hooks"]
    assert [hook["name"] for hook in hooks] == ["freeze", "place", "broken"]
    assert hooks[2]["failures"] >= 1
    table = served.run("hooks", "list").stdout.splitlines()
    assert table[0].split("  ")[0] == "hook"
    assert "RuntimeError: not today" in table[-1]
    served.run("runs", "cancel", run_id)
