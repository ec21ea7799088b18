"""Text from outside, on its way through a real server into everything that shows or keeps it (R4.4).

Everybody who may say something says the same evil thing: DAG authors, their tasks, hooks that answer and hooks that
raise, whoever triggers a run. Then each outlet is looked at: the database, the log in both forms, tables into a pipe
and on a terminal, JSON, the metrics, the API.
"""

import http.client
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.program import Program
from tests.system.lite import Lite, lite, wait_for

T = TypeVar("T")
# Moves the cursor, paints, sets the title, turns text round, begins a line, ends a string, is no UTF-8 in the end.
EVIL = (
    "\x1b[31mred\x1b[2J\x1b]0;title\x07 \x9b1m {\"event\":\"forged\"}\r\nforged line\u2028other\u2029\u202eright\u2066"
    "\u200b\ufeff\x00\x85\x7f</script>'\";-- %s {0} [bold]x[/bold] \ud800"
)  # fmt: skip
NEVER = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"  # everything but "\n"
)
LONG = "x" * 100_000

HOOK = f"""
import threading
from dexaflow.admission import admit, hold, refuse
EVIL = {EVIL!r}
LONG = {LONG!r}

def evil(request):
    match request.task_id:
        case "held":
            return hold(EVIL + LONG)
        case "refused":
            return refuse(EVIL)
        case "raises":
            raise RuntimeError(EVIL + LONG)
        case "bad_key":
            return admit(labels={{EVIL: "x"}})
        case "bad_value":
            return admit(labels={{"team": EVIL}})
        case "bad_account":
            return admit(service_account=EVIL)
        case "annotated":
            return admit(annotations={{"note": EVIL}})
        case "threads":
            def fail():
                raise ValueError(EVIL)
            thread = threading.Thread(target=fail, name=EVIL)
            thread.start()
            thread.join()
            import warnings
            warnings.warn(EVIL)
            return admit()
        case _:
            return admit()
"""

# What an author may write down holds no NUL and no half of a pair: those are refused when the file is loaded.
MILD = EVIL.replace("\x00", "").replace("\ud800", "")
ONE_LINE = re.sub("[\x00-\x1f\x7f-\x9f]", "", MILD)

DAGS = f"""
from dexaflow import DAG, bash, task
MILD, ONE_LINE = {MILD!r}, {ONE_LINE!r}

with DAG("evil", description=MILD, tags=[ONE_LINE[:50]]):
    for name in ("held", "refused", "raises", "bad_key", "bad_value", "bad_account", "annotated", "threads"):
        bash(name, "true")
    bash("speaks", "printf '%s' \\"$TEXT\\"; printf '\\\\033[31m\\\\r\\\\n\\\\377'", env={{"TEXT": MILD}})
    bash("nowhere", "true", pool=ONE_LINE)

    @task
    def fails():
        raise RuntimeError({EVIL!r})

    @task
    def gives():
        return {{"text": MILD}}

    fails(), gives()

with DAG("labelled"):
    bash("a", "true", execution={{"labels": {{"team": ONE_LINE}}, "annotations": {{"note": MILD}}}})
"""

BROKEN = f"raise RuntimeError({EVIL!r})\n"
NULS = f"from dexaflow import DAG, bash\nwith DAG('nuls'):\n    bash('a', 'true', env={{'A': {EVIL!r}}})\n"
EVIL_FILE = "\x1b[31m\u202e\nfile"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lite]:
    """One server for all that follows: everything has been said by now."""
    with lite(tmp_path_factory.mktemp("hostile")) as made:
        (made.root / "evil.py").write_text(HOOK)
        made.config = {"execution": {"admission": {"hooks": ["evil:evil"], "recheck": "1h", "timeout": "10s"}}}
        made.write_dag("evil_dag", DAGS)
        made.write_dag("broken", BROKEN)
        made.write_dag("nuls", NULS)
        made.write_dag(EVIL_FILE, BROKEN)
        made.start()
        made.trigger("evil", {"evil": MILD})
        status, _ = send(
            made, "PATCH", f"/dexaflow/v1/runs/{run_of(made)}", {"note": MILD[:900]}, {"X-Dexaflow-User": "a\tb\xa0c"}
        )
        assert status == 200
        made.in_state(run_of(made), "held", "held")
        made.in_state(run_of(made), "raises", "held")
        for task in ("refused", "bad_key", "bad_value", "bad_account", "fails"):
            made.in_state(run_of(made), task, "failed")
        for task in ("annotated", "threads", "speaks", "gives"):
            made.in_state(run_of(made), task, "success")
        wait_for(lambda: len(made.get("/dexaflow/v1/dag-errors")["errors"]) >= 3, what="the files' errors")
        yield made


def run_of(server: Lite) -> str:
    """Return the first run, in which all of it was said."""
    return str(server.get("/dexaflow/v1/runs?dag_id=evil&limit=250")["runs"][-1]["run_id"])


def send(server: Lite, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, bytes]:
    """Send one request whose headers are as given, and return the answer as it came."""
    address = urlsplit(server.url)
    assert address.hostname is not None
    with closing(http.client.HTTPConnection(address.hostname, address.port, timeout=30)) as connection:
        given = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), given)
        answer = connection.getresponse()
        return answer.status, answer.read()


def commands(server: Lite) -> list[list[str]]:
    run = run_of(server)
    return [
        ["dags", "list"],
        ["dags", "show", "evil"],
        ["dags", "errors"],
        ["runs", "list"],
        ["runs", "show", run],
        ["tasks", "list", run],
        ["tasks", "show", run, "nowhere"],
        *(["tasks", "explain", run, task] for task in ("raises", "bad_key", "annotated")),
        ["holds", "list"],
        ["hooks", "list"],
        ["pools", "list"],
    ]


def at_once(work: list[list[str]], do: Callable[[list[str]], T]) -> list[tuple[list[str], T]]:
    """Return each command with what `do` makes of it, a few of them at a time."""
    with ThreadPoolExecutor(4) as pool:
        return list(zip(work, pool.map(do, work), strict=True))


def test_tables_into_a_pipe_hold_nothing_but_text(server: Lite) -> None:
    program = Program(server.data, server.root)
    for arguments, ended in at_once(commands(server), lambda arguments: program.run(*arguments)):
        found = NEVER.findall(ended.stdout + ended.stderr)
        assert not found, (arguments, found, ended.stdout)
        assert "forged line" not in ended.stdout.splitlines()


def test_nothing_said_does_anything_on_a_terminal(server: Lite) -> None:
    """Colours are the program's own; a cursor that moves, a title, a line that turns round would be theirs."""
    program = Program(server.data, server.root)
    run = run_of(server)
    for arguments in (
        ["dags", "errors"],
        ["holds", "list"],
        ["tasks", "explain", run, "raises"],
        ["tasks", "logs", run, "speaks"],
        ["tasks", "logs", run, "fails"],
    ):
        with program.on_terminal(*arguments) as terminal:
            terminal.end()
        written = re.sub("\x1b\\[[0-9;]*m", "", terminal.written.replace("\r\n", "\n"))
        assert "\x1b[31mred" not in terminal.written
        assert not NEVER.findall(written), (arguments, written)


def test_json_is_ascii_and_gives_what_was_said_exactly_as_kept(server: Lite) -> None:
    program = Program(server.data, server.root)
    at_once(commands(server), lambda arguments: program.json(*arguments))  # it sees to one line of ASCII
    holds = program.json("holds", "list")["holds"]
    reasons = {hold["task_id"]: hold["reason"] for hold in holds}
    kept = re.sub("[\x00-\x1f\x7f-\x9f]", "", EVIL.replace("\ud800", "\ufffd"))
    assert reasons["held"] == (kept + LONG).encode()[:512].decode("utf-8", "ignore")
    assert server.task(run_of(server), "refused")["reason"] == kept
    run = server.run(run_of(server))
    assert run["conf"] == {"evil": MILD}
    assert run["note"] == MILD[:900]


def test_author_of_a_task_hears_nothing_of_what_its_hook_raised(server: Lite) -> None:
    """R7.2: the cause is for the server's log alone, under the incident that the author sees."""
    reason = server.task(run_of(server), "raises")["reason"]
    assert re.fullmatch(r"admission hook evil:evil: the request failed \(incident [0-9a-f]{12}\)", reason)
    (event,) = server.events("hook_failed")
    assert event["incident"] in reason
    assert event["cause"].startswith("RuntimeError: \x1b[31mred")
    assert len(event["cause"]) < 1000


def test_log_is_one_json_object_a_line_in_ascii_and_no_line_is_forged(server: Lite) -> None:
    raw = (server.root / "server.log").read_bytes()
    assert not re.search(rb"[^\x20-\x7e\n]", raw)
    events = [json.loads(line) for line in raw.splitlines()]
    assert all(event["event"] != "forged" for event in events)
    said = {event["event"] for event in events}
    assert {"dag_error", "hook_failed", "thread_failed"} <= said
    assert any(event["logger"] == "py.warnings" for event in events)


def test_log_for_people_is_text_too(server: Lite, tmp_path: Path) -> None:
    """The same server once more, with its log as a terminal would show it."""
    server.stop()
    before = (server.root / "server.log").stat().st_size
    server.config["logging"] = {"format": "console", "level": "debug"}
    server.start()
    run_id = server.trigger("evil", {"evil": MILD})
    server.in_state(run_id, "raises", "held")
    server.in_state(run_id, "threads", "success")
    server.in_state(run_id, "fails", "failed")
    text = (server.root / "server.log").read_bytes()[before:].decode()
    assert "hook_failed" in text
    assert "thread_failed" in text
    assert not NEVER.findall(text)
    for line in text.splitlines():
        assert re.match(r"\d{4}-\d\d-\d\dT|    ", line), line


def test_labels_of_metrics_are_small_closed_sets_whatever_was_said(server: Lite) -> None:
    """A label of what others say would be a series for each thing they say."""

    def series() -> dict[str, set[str]]:
        _, page = send(server, "GET", "/metrics", None, {})
        found: dict[str, set[str]] = {}
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                for label, value in sample.labels.items():
                    found.setdefault(label, set()).add(value)
        return found

    before = series()
    for n in range(5):
        status, _ = send(server, "POST", "/dexaflow/v1/dags/evil/runs", {"conf": {}, "note": f"{n}"},
                         {"X-Dexaflow-User": f"user{n}"})  # fmt: skip
        assert status == 201
    wait_for(lambda: server.get("/dexaflow/v1/holds?limit=250")["total_entries"] >= 12, what="the holds of five runs")
    after = series()
    assert set(after) <= {"hook", "outcome", "state", "pool", "le", "file"}
    assert after["hook"] == {"evil:evil"}
    assert after["pool"] == before["pool"] == {"default_pool"}
    assert len(after["state"]) < 20
    assert len(after["outcome"]) <= 7


def test_database_is_whole_and_all_its_text_is_utf8_without_nul(server: Lite) -> None:
    with closing(sqlite3.connect(server.data / "dexaflow.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        database.text_factory = bytes
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in database.execute(f'SELECT * FROM "{table.decode()}"'):
                for value in row:
                    if isinstance(value, bytes):
                        value.decode()
                        assert b"\x00" not in value, (table, value)
        for (reason,) in database.execute("SELECT reason FROM task_instances UNION SELECT reason FROM reviews"):
            assert len(reason) <= 512
            assert not re.search("[\x00-\x1f\x7f-\x9f]", reason.decode())


def test_what_cannot_be_kept_whole_is_refused_and_not_cut_in_silence(server: Lite) -> None:
    """A NUL and half a pair, which databases and other readers choke on, and what is longer than is documented."""
    path = "/dexaflow/v1/dags/evil/runs"
    for body in (
        {"conf": {"a": "\x00"}},
        {"conf": {"a": "\ud800"}},
        {"note": "x" * 1001},
        {"conf": {"a": "x" * 66_000}},
    ):
        status, answer = send(server, "POST", path, body, {})
        assert status in (400, 422), answer
        assert not NEVER.findall(answer.decode())
    errors = {error["file"]: error["cause"] for error in server.get("/dexaflow/v1/dag-errors")["errors"]}
    assert "NUL" in errors["nuls.py"] or "surrogate" in errors["nuls.py"]
    assert all(len(cause) <= 500 and not NEVER.findall(cause) for cause in errors.values())


def test_task_logs_are_kept_byte_for_byte(server: Lite) -> None:
    """Whoever reads them into a pipe wants what the task wrote; only a terminal gets them as text."""
    raw = subprocess.run(
        [sys.executable, "-m", "dexaflow.cli.main", "tasks", "logs", run_of(server), "speaks"],
        env=Program(server.data, server.root).environ({}), cwd=server.root, capture_output=True, check=True, timeout=90,
    ).stdout  # fmt: skip
    assert MILD.encode() + b"\x1b[31m\r\n\xff" in raw
