"""`dexaflow runs`: trigger, list, show, cancel, clear and note, against a real server."""

import json
import os
import pwd
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.errors import UsageError
from dexaflow.base.text import shown
from dexaflow.cli.run_inputs import conf_from, moment_from
from tests.cli.conftest import HOSTILE, Served
from tests.system.lite import wait_for


def ended(served: Served, run_id: str) -> str:
    return served.server.ended(run_id)


def test_trigger_prints_the_id_and_nothing_else(served: Served) -> None:
    """So that a script can take it."""
    done = served.run("runs", "trigger", "etl", "--conf", '{"rows": [1, 2]}', "--note", HOSTILE)
    run_id = done.stdout.strip()
    assert done.stdout == f"{run_id}\n"
    assert done.stderr == ""
    assert ended(served, run_id) == "success"
    made = served.json("runs", "show", run_id)
    assert made == served.server.run(run_id)
    assert (made["conf"], made["note"], made["run_type"]) == ({"rows": [1, 2]}, HOSTILE, "manual")
    assert made["triggered_by"] == pwd.getpwuid(os.getuid()).pw_name
    table = served.run("runs", "show", run_id).stdout
    assert shown(HOSTILE) in table
    assert "\x1b" not in table
    assert '{"rows": [1, 2]}' in table


def test_a_run_is_given_its_id_date_and_conf(served: Served, tmp_path: Path) -> None:
    (tmp_path / "conf.json").write_bytes(b'\xef\xbb\xbf{"day": "\\u202e", "n": 9007199254740993}')
    made = served.json(
        "runs", "trigger", "etl", "--run-id", "by.hand_1", "--conf", f"@{tmp_path}/conf.json",
        "--logical-date", "2026-01-31T06:00:00+01:00",
    )  # fmt: skip
    assert (made["run_id"], made["conf"]) == ("by.hand_1", {"day": "\u202e", "n": 9007199254740993})
    assert made["logical_date"].startswith("2026-01-31T05:00:00")
    again = served.run("runs", "trigger", "etl", "--run-id", "by.hand_1", code=1)
    assert "by.hand_1" in again.stderr
    piped = served.run("runs", "trigger", "etl", "--conf", "@-", input='{"from": "stdin"}')
    assert served.json("runs", "show", piped.stdout.strip())["conf"] == {"from": "stdin"}


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ("{", "is not JSON"), ("[1]", "is a list"), ("null", "is null"), ("1", "is a number"), ('{"a": NaN}', "NaN"),
        ('{"a": 1, "a": 2}', "'a' is given twice"), ("[" * 100_000, "nested too deeply"), ("@/nowhere", "/nowhere"),
        ("@a\0b", "no file has a name"), (json.dumps({"a": "\u20ac" * 22_000}, ensure_ascii=False), "more than 64 KiB"),
        ("@.", "cannot be read"),
        ('{"a": "\\ud800"}', "half of a surrogate pair"), ('{"\\udfff": 1}', "half of a surrogate pair"),
        ('{"a": [18446744073709551616]}', "beyond 64 bits"), ('{"a": 1e999}', "beyond 64 bits"),
        ('{"a\\u0000": 1}', "NUL"),
    ],
)  # fmt: skip
def test_a_conf_that_cannot_be_used_is_refused_here(conf: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        conf_from(conf)


@given(st.text())
def test_whatever_is_written_as_conf_is_an_object_or_an_error_of_ours(written: str) -> None:
    try:
        found = conf_from(written)
    except UsageError:
        return
    assert isinstance(found, dict)


@given(st.text(alphabet="0123456789-:T+Z. W"))
def test_whatever_is_written_as_date_has_a_zone_or_is_an_error_of_ours(written: str) -> None:
    try:
        found = moment_from(written)
    except UsageError:
        return
    assert datetime.fromisoformat(found).tzinfo is not None


def test_what_the_server_refuses_names_the_option_it_came_from(served: Served) -> None:
    def said(*words: str) -> str:
        return served.run("runs", *words, code=2).stderr.removeprefix("dexaflow: ").strip()

    assert said("trigger", "etl", "--run-id", "a b").startswith("--run-id: may hold ASCII letters, digits and _ . ~")
    assert said("trigger", "etl", "--run-id", "..") == "--run-id: must hold more than dots and tildes"
    assert "--state" in said("list", "--state", "bogus")
    assert said("trigger", "etl", "--note", "x" * 1001).startswith("--note: ")
    two = said("trigger", "etl", "--note", "x" * 1001, "--run-id", "a b")
    assert "--note: " in two
    assert "; --run-id: " in two or two.startswith("--run-id: ")
    assert "there is no run 'nope'" in served.run("runs", "show", "nope", code=1).stderr


def test_a_run_is_listed_with_the_date_that_it_is_for(served: Served) -> None:
    served.run("runs", "trigger", "etl", "--run-id", "for-march", "--logical-date", "2026-03-05T06:30:00+00:00")
    listed = served.run("runs", "list", "--dag", "etl").stdout.splitlines()
    (row,) = [line for line in listed if line.startswith("for-march")]
    assert "2026-03-05 06:30" in row


def test_runs_are_listed_newest_first_and_the_rest_is_mentioned(served: Served) -> None:
    made = [served.run("runs", "trigger", "failing").stdout.strip() for _ in range(3)]
    for run_id in made:
        assert ended(served, run_id) == "failed"
    found = served.json("runs", "list", "--dag", "failing", "--state", "failed", "--limit", "2")
    assert [run["run_id"] for run in found["runs"]] == made[:0:-1]
    table = served.run("runs", "list", "--dag", "failing", "--limit", "2")
    assert [line.split()[0] for line in table.stdout.splitlines()[2:]] == made[:0:-1]
    assert "1 failed, 1 upstream_failed" in table.stdout
    assert f"2 of {found['total_entries']} runs" in table.stderr
    assert served.run("runs", "list", "--dag", "failing", "--state", "success").stdout == "No runs.\n"


def test_on_a_narrow_terminal_an_id_stays_whole_and_what_says_least_is_left_out(served: Served) -> None:
    """An id that is broken into pieces cannot be copied."""
    run_id = served.run("runs", "trigger", "etl").stdout.strip()
    with served.program.on_terminal("runs", "list", "--dag", "etl", "--limit", "1", columns=90) as terminal:
        assert terminal.end() == 0
    assert run_id in terminal.written
    assert "tenant" not in terminal.written
    assert "state" in terminal.written
    assert "tenant" in served.run("runs", "list", "--dag", "etl", "--limit", "1").stdout


def test_the_newest_run_of_a_dag_has_a_name(served: Served) -> None:
    run_id = served.run("runs", "trigger", "etl").stdout.strip()
    assert served.json("runs", "show", "etl@latest")["run_id"] == run_id
    assert served.json("runs", "show", "@latest")["run_id"] == run_id
    assert "no DAG 'unheard_of'" in served.run("runs", "show", "unheard_of@latest", code=1).stderr


def test_a_hold_ends_when_its_run_is_cancelled(served: Served) -> None:
    """R6.3."""
    served.frozen.write_text("closed")
    run_id = served.run("runs", "trigger", "frozen").stdout.strip()
    served.server.in_state(run_id, "held_task", "held")
    assert served.run("runs", "cancel", run_id).stdout == f"Run {run_id} is cancelled: 1 skipped.\n"
    assert ended(served, run_id) == "failed"
    user = pwd.getpwuid(os.getuid()).pw_name
    assert f"cancelled by {user}" in served.run("runs", "show", run_id).stdout
    assert "has ended" in served.run("runs", "cancel", run_id, code=1).stderr


def test_failed_tasks_get_a_new_try(served: Served) -> None:
    """R6.3."""
    run_id = served.run("runs", "trigger", "failing").stdout.strip()
    assert ended(served, run_id) == "failed"
    assert served.run("runs", "clear", run_id, "--only-failed").stdout == "Cleared: first, second.\n"
    wait_for(lambda: served.server.task(run_id, "first")["try_number"] == 4, what="the new tries")
    assert ended(served, run_id) == "failed"
    assert served.json("runs", "clear", run_id, "--task", "first", "--downstream")["task_ids"] == ["first", "second"]
    assert "no task 'third'" in served.run("runs", "clear", run_id, "--task", "third", code=1).stderr
    ended(served, run_id)


def test_a_note_is_set_and_removed(served: Served) -> None:
    run_id = served.run("runs", "trigger", "etl").stdout.strip()
    assert served.run("runs", "note", run_id, "look\nhere").stdout == "Noted: look\\u000ahere\n"
    assert served.server.run(run_id)["note"] == "look\nhere"
    assert served.run("runs", "note", run_id, "").stdout == "The note is removed.\n"
