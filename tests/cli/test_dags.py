"""`dexaflow dags`: list, show, errors, pause and unpause, against a real server."""

from dexaflow.base.text import shown
from tests.cli.conftest import HOSTILE, Served
from tests.system.lite import wait_for


def test_dags_are_listed_and_files_with_problems_pointed_at(served: Served) -> None:
    ended = served.run("dags", "list")
    rows = {line.split()[0]: line for line in ended.stdout.splitlines()[2:]}
    assert {"etl", "failing", "frozen"} <= set(rows)
    assert "etl.py" in rows["etl"]
    assert "`dexaflow dags errors`" in ended.stderr
    assert "nonsense.py" in served.run("dags", "errors").stdout


def test_json_is_the_apis_answer_to_the_letter(served: Served) -> None:
    for command, path in (
        (("dags", "list"), "/dexaflow/v1/dags"),
        (("dags", "show", "etl"), "/dexaflow/v1/dags/etl"),
        (("dags", "errors"), "/dexaflow/v1/dag-errors"),
    ):
        assert served.json(*command) == served.server.get(path)


def test_text_from_outside_is_text_in_a_table_and_exact_in_json(served: Served) -> None:
    """R4.4: no escapes, no line of its own; JSON as kept."""
    ended = served.run("dags", "show", "etl")
    assert shown(HOSTILE) in ended.stdout
    for evil in ("\x1b", "\u202e", "\u2028", "\x9b", "\u200b"):
        assert evil not in ended.stdout
    assert served.json("dags", "show", "etl")["description"] == HOSTILE


def test_of_a_tasks_environment_only_the_names_are_shown(served: Served) -> None:
    ended = served.run("dags", "show", "etl")
    assert "$SECRET" in ended.stdout
    assert "hunter2" not in ended.stdout


def test_a_paused_dag_waits_and_whoever_triggers_it_is_told(served: Served) -> None:
    assert served.run("dags", "pause", "paused").stdout == "paused is paused.\n"
    try:
        ended = served.run("runs", "trigger", "paused")
        run_id = ended.stdout.strip()
        assert "`dexaflow dags unpause paused`" in ended.stderr
        assert served.json("runs", "show", run_id)["state"] == "queued"
        assert "paused" in served.run("dags", "list").stdout
    finally:
        assert served.run("dags", "unpause", "paused").stdout == "paused is active.\n"
    assert wait_for(lambda: served.json("runs", "show", run_id)["state"] == "success", what="the run to go on")


def test_a_dag_that_is_not_there_is_one_line(served: Served) -> None:
    for command in (("dags", "show"), ("dags", "pause"), ("runs", "trigger")):
        ended = served.run(*command, "unheard_of", code=1)
        assert ended.stdout == ""
        assert ended.stderr == "dexaflow: there is no DAG 'unheard_of'; `dexaflow dags list` shows them\n"
    assert served.run("dags", "show", "x\x1b[31m\u202e", code=1).stderr.removesuffix("\n").isprintable()
