"""Our own API: runs, explanations, reviews, holds, hooks, logs and the stream of a run."""

import asyncio
import json

import httpx
import pytest

from dexaflow.model.dags import TaskSpec
from dexaflow.model.states import State
from tests.api.builders import Database, MemoryLogs, StoreCommands, a_dag, a_task, at
from tests.api.conftest import TOKEN, Server

V1 = "/dexaflow/v1"


async def test_runs_show_our_own_states(api: httpx.AsyncClient, database: Database) -> None:
    database.dag()
    database.run("run-1", queued=0.0)
    database.run("run-2", queued=60.0, state="success")
    database.task("extract", State.HELD)
    database.task("load", State.LAUNCHING)

    listed = (await api.get(f"{V1}/runs")).json()
    assert [r["run_id"] for r in listed["runs"]] == ["run-2", "run-1"]
    assert listed["runs"][1]["task_states"] == {"held": 1, "launching": 1}
    shown = (await api.get(f"{V1}/runs/run-1")).json()
    assert {t["task_id"]: t["state"] for t in shown["tasks"]} == {"extract": "held", "load": "launching"}
    assert shown["tasks"][0]["reason"] == "acme is frozen until 06:00 UTC"
    assert (await api.get(f"{V1}/runs", params={"state": "success"})).json()["total_entries"] == 1
    held = (await api.get(f"{V1}/runs/run-1/tasks", params={"state": "held"})).json()
    assert [t["task_id"] for t in held["tasks"]] == ["extract"]


async def test_dags_and_their_errors(api: httpx.AsyncClient, database: Database) -> None:
    """R2.2. Of a task's environment only the names are shown."""
    task = TaskSpec("extract", "bash", bash_command="true", env={"API_KEY": "hunter2"}, pool_slots=2)
    database.dag(a_dag("nightly_etl", task))
    database.dag_error("broken.py", cause="SyntaxError: \x1b[2J</script>")
    shown = await api.get(f"{V1}/dags/nightly_etl")
    assert shown.json()["tasks"][0]["environment"] == ["API_KEY"]
    assert "hunter2" not in shown.text
    errors = (await api.get(f"{V1}/dag-errors")).json()["errors"]
    assert (errors[0]["file"], errors[0]["line"], errors[0]["cause"]) == (
        "broken.py",
        3,
        "SyntaxError: \x1b[2J</script>",
    )
    paused = await api.patch(f"{V1}/dags/nightly_etl", json={"is_paused": True})
    assert paused.json()["is_paused"] is True
    assert (await api.get(f"{V1}/dags", params={"is_paused": True})).json()["total_entries"] == 1


@pytest.mark.parametrize("dag_id", ["errors", "runs", "tasks", "dags", "ask-now", "details"])
async def test_a_dag_may_be_called_like_a_part_of_an_address(
    api: httpx.AsyncClient, database: Database, dag_id: str
) -> None:
    database.dag(a_dag(dag_id, TaskSpec("extract", "bash", bash_command="true")))
    for path in (f"{V1}/dags/{dag_id}", f"/api/v2/dags/{dag_id}", f"/api/v2/dags/{dag_id}/details"):
        assert (await api.get(path)).json()["dag_id"] == dag_id
    assert (await api.post(f"{V1}/dags/{dag_id}/runs", json={})).status_code == 201


async def test_a_run_is_triggered_cancelled_and_cleared_by_someone(
    api: httpx.AsyncClient, database: Database, commands: StoreCommands
) -> None:
    """R6.3, noting by whom."""
    database.dag()
    made = await api.post(f"{V1}/dags/nightly_etl/runs", json={"conf": {"a": 1}}, headers={"X-Dexaflow-User": "alice"})
    assert made.status_code == 201
    run_id = made.json()["run_id"]
    assert (made.json()["triggered_by"], made.json()["task_states"]) == ("alice", {"none": 2})
    cancelled = await api.post(f"{V1}/runs/{run_id}/cancel", headers=[(b"X-Dexaflow-User", b"bob\x1b[1m")])
    assert cancelled.json()["task_states"] == {"skipped": 2}
    assert cancelled.json()["note"] == "cancelled by bob[1m"
    cleared = await api.post(f"{V1}/runs/{run_id}/clear", json={"task_ids": ["extract"], "downstream": True})
    assert cleared.json()["task_ids"] == ["extract", "load"]
    assert commands.by == ["alice", "bob[1m", "api"]
    database.set_task(run_id, "extract", state="success")
    with_note = await api.patch(f"{V1}/runs/{run_id}", json={"note": "later"})
    assert with_note.json()["note"] == "later"


async def test_holds_are_listed_oldest_first_and_asked_now(
    api: httpx.AsyncClient, database: Database, commands: StoreCommands
) -> None:
    """R6.3: a platform engineer can list the holds and have one, or all of a hook, asked now."""
    database.dag()
    database.run()
    database.run("run-2", tenant_id="umbrella")
    younger = database.task("extract", State.HELD, held_at=at(30))
    older = database.task("extract", State.HELD, run_id="run-2", tenant_id="umbrella", held_at=at(10), hook="budget")
    running = database.task("load", State.RUNNING)

    holds = (await api.get(f"{V1}/holds")).json()
    assert [h["attempt_id"] for h in holds["holds"]] == [older, younger]
    assert holds["holds"][1]["reason"] == "acme is frozen until 06:00 UTC"
    assert (await api.get(f"{V1}/holds", params={"hook": "budget"})).json()["total_entries"] == 1
    assert (await api.get(f"{V1}/holds", params={"tenant_id": "acme"})).json()["holds"][0]["attempt_id"] == younger

    async def ask(**body: str) -> tuple[int, object]:
        answer = await api.post(f"{V1}/holds/ask-now", json=body)
        return answer.status_code, answer.json().get("count")

    assert await ask(attempt_id=younger) == (200, 1)
    assert await ask(run_id="run-2", task_id="extract") == (200, 1)
    assert await ask(hook="budget") == (200, 1)
    assert await ask(hook="freeze") == (200, 1)
    assert commands.asked == [(younger, None), (older, None), (None, "budget"), (None, "freeze")]
    assert await ask(hook="unheard of") == (404, None)
    assert await ask(attempt_id=running) == (409, None)
    assert await ask() == (422, None)
    assert await ask(attempt_id=younger, hook="freeze") == (422, None)
    assert await ask(run_id="run-2") == (422, None)


async def test_a_filter_that_names_nothing_there_is_is_not_found(api: httpx.AsyncClient, database: Database) -> None:
    """An empty list would look like good news. A tenant counts as soon as it is configured or has a DAG file."""
    database.dag()
    database.run()
    database.dag_error(tenant_id="globex")
    for path in ("dags", "dag-errors", "runs", "holds"):
        known = [(await api.get(f"{V1}/{path}", params={"tenant_id": t})).status_code for t in ("acme", "globex")]
        assert known == [200, 200]
        unknown = await api.get(f"{V1}/{path}", params={"tenant_id": "nothere"})
        assert unknown.status_code == 404
        assert unknown.json()["detail"] == "there is no tenant 'nothere'; there is acme and globex"
    unknown = await api.get(f"{V1}/runs/run-1/reviews", params={"task_id": "nothere"})
    assert unknown.json()["detail"].startswith("run 'run-1' has no task 'nothere'")


async def test_hooks_show_breaker_failures_next_probe_and_last_cause(api: httpx.AsyncClient) -> None:
    hooks = (await api.get(f"{V1}/hooks")).json()["hooks"]
    assert hooks == [
        {
            "name": "freeze", "breaker": "open", "failures": 5, "next_probe_seconds": 12.5,
            "last_cause": "connection refused", "last_failure_seconds": 3.5, "held": 2, "oldest_hold_seconds": 61.0,
        }
    ]  # fmt: skip


async def test_pools_are_set_by_name(api: httpx.AsyncClient) -> None:
    assert (await api.put(f"{V1}/pools/small", json={"slots": 2})).json()["open_slots"] == 2
    assert (await api.put(f"{V1}/pools/small", json={"slots": 3, "description": "x"})).json()["slots"] == 3
    assert (await api.put(f"{V1}/pools/small", json={"slots": 4})).json()["description"] == "x"
    assert (await api.put(f"{V1}/pools/small", json={"slots": 5.0})).json()["slots"] == 5  # one number to JSON Schema


async def test_an_admitted_attempt_is_explained_key_by_key(api: httpx.AsyncClient, database: Database) -> None:
    """R9.2: why did this run there: author, platform default, unit, or which hook."""
    database.dag()
    database.run()
    placement = {
        "image": "ghcr.io/acme/etl", "dedicated": True,
        "resources": {"requests": {"cpu": "500m"}, "limits": {}},
        "execution": {"service_account": "dexaflow-task", "node_selector": {"tenant": "acme", "zone": "a"}},
        "settings": [
            {"field": "node_selector", "key": "zone", "value": "a", "by": "author"},
            {"field": "node_selector", "key": "tenant", "value": "acme", "by": "hook:placement"},
            {"field": "service_account", "key": "", "value": "dexaflow-task", "by": "platform default"},
        ],
    }  # fmt: skip
    attempt = database.task("extract", State.RUNNING, placement=json.dumps(placement), host="node-7", pid=42)
    database.review(attempt, "freeze", "hold", reason="frozen", count=7, first_at=at(3), last_at=at(93))
    database.review(attempt, "placement", "admit", changes='{"node_selector":{"tenant":"acme"}}', seconds=0.012)

    told = (await api.get(f"{V1}/runs/run-1/tasks/extract/explain")).json()

    assert told["state"] == "running"
    assert (told["slots"]["taken_at"], told["slots"]["holds_now"]) == (at(3), True)
    assert told["own_checks"] == {"outcome": "passed", "reason": ""}
    admission = told["admission"]
    assert admission["outcome"] == "admitted"
    assert [(r["hook"], r["outcome"], r["count"]) for r in admission["reviews"]] == [
        ("freeze", "hold", 7),
        ("placement", "admit", 1),
    ]
    assert admission["reviews"][1]["changes"] == {"node_selector": {"tenant": "acme"}}
    assert told["launch"]["token_minted"] is True
    assert (told["agent"]["host"], told["agent"]["pid"]) == ("node-7", 42)
    assert told["pod"]["settings"] == placement["settings"]
    assert told["pod"]["dedicated"] is True
    assert told["end"]["ended_at"] is None
    reviews = (await api.get(f"{V1}/runs/run-1/reviews", params={"outcome": "hold"})).json()
    assert reviews["total_entries"] == 1


async def test_a_held_attempt_is_explained_with_when_it_is_asked_next(
    api: httpx.AsyncClient, database: Database
) -> None:
    """R6.1: it shows the reason, the hook and when it will be asked next; it has no slots and no token."""
    database.dag()
    database.run()
    attempt = database.task("extract", State.HELD, broken_seconds=31.5)
    database.review(attempt, "freeze", "error", reason="the request timed out (incident 7f3)", incident="7f3")
    told = (await api.get(f"{V1}/runs/run-1/tasks/extract/explain")).json()
    assert told["admission"]["outcome"] == "held"
    assert told["admission"]["hook"] == "freeze"
    assert told["admission"]["next_ask_at"] == at(18)
    assert told["admission"]["waited_on_broken_hook_seconds"] == 31.5
    assert told["admission"]["reviews"][0]["incident"] == "7f3"
    assert told["slots"]["holds_now"] is False
    assert told["launch"] == {"launched_at": None, "launch_id": None, "token_minted": False}
    assert told["pod"] is None


async def test_each_end_is_explained_by_who_brought_it_about(api: httpx.AsyncClient, database: Database) -> None:
    """R1.2, R1.4, R7.2, R1.5."""
    names = ("rejected", "refused", "dispatch_failed", "unhooked", "waiting", "skipped")
    database.dag(a_dag("nightly_etl", *(a_task(n) for n in names)))
    database.run()
    database.task("rejected", State.FAILED, reason="image allowlist: nginx is not allowed", ended_at=at(4))
    refused = database.task("refused", State.FAILED, hook="budget", reason="over budget", ended_at=at(4))
    database.review(refused, "budget", "refuse", task_id="refused", reason="over budget")
    broken = database.task("dispatch_failed", State.UP_FOR_RETRY, hook="freeze", reason="dispatch_failed: ...",
                           retry_at=at(999), retry_due=9.0, ended_at=at(4))  # fmt: skip
    database.review(broken, "freeze", "breaker_open", task_id="dispatch_failed")
    database.task("unhooked", State.SUCCESS, launch_id="l", launched_at=at(4), started_at=at(5), ended_at=at(6))
    database.task("waiting", State.SCHEDULED, reason="needs 9 slots; pool 'default_pool' has fewer")
    cancelled = database.task("skipped", State.SKIPPED, hook="freeze", reason="cancelled by bob", ended_at=at(4))
    database.review(cancelled, "freeze", "hold", task_id="skipped", reason="frozen")

    async def told(task_id: str) -> tuple[str, str, str]:
        found = (await api.get(f"{V1}/runs/run-1/tasks/{task_id}/explain")).json()
        return found["own_checks"]["outcome"], found["admission"]["outcome"], found["end"]["reason"]

    assert await told("rejected") == ("rejected", "not asked", "image allowlist: nginx is not allowed")
    assert await told("refused") == ("passed", "refused", "over budget")
    assert await told("dispatch_failed") == ("passed", "dispatch_failed", "dispatch_failed: ...")
    assert await told("unhooked") == ("passed", "admitted", "")
    assert await told("waiting") == ("not yet", "not yet", "")
    assert await told("skipped") == ("passed", "held", "cancelled by bob")
    waiting = (await api.get(f"{V1}/runs/run-1/tasks/waiting/explain")).json()
    assert waiting["slots"]["waits_because"].startswith("needs 9 slots")


async def test_an_earlier_try_is_explained_by_its_number(api: httpx.AsyncClient, database: Database) -> None:
    database.dag()
    database.run()
    first = database.earlier_try("extract", State.HELD, try_number=1, reason="cleared", ended_at=at(9))
    database.review(first, "freeze", "hold", reason="frozen")
    database.task("extract", State.SCHEDULED, try_number=2)
    told = (await api.get(f"{V1}/runs/run-1/tasks/extract/explain", params={"try_number": 1})).json()
    assert (told["try_number"], told["latest_try"], told["admission"]["outcome"]) == (1, 2, "held")
    assert told["admission"]["next_ask_at"] is None
    now = (await api.get(f"{V1}/runs/run-1/tasks/extract/explain")).json()
    assert now["admission"]["reviews"] == []
    assert (await api.get(f"{V1}/runs/run-1/tasks/extract/explain?try_number=3")).status_code == 404


async def test_logs_are_followed_by_offset(api: httpx.AsyncClient, database: Database, logs: MemoryLogs) -> None:
    database.dag()
    database.run()
    database.task("extract", State.RUNNING)
    logs.kept["run-1", "extract", 1] = b"one\n\xff\x00two\n"
    url = f"{V1}/runs/run-1/tasks/extract/logs"
    first = await api.get(url, params={"limit": 5})
    assert first.content == b"one\n\xff"
    assert first.headers["x-dexaflow-next-offset"] == "5"
    assert first.headers["x-dexaflow-log-complete"] == "false"
    assert first.headers["content-type"].startswith("text/plain")
    assert first.headers["x-content-type-options"] == "nosniff"
    rest = await api.get(url, params={"offset": 5})
    assert (rest.content, rest.headers["x-dexaflow-log-complete"]) == (b"\x00two\n", "false")
    database.set_task("run-1", "extract", state="failed", ended_at=at(9))
    last = await api.get(url, params={"offset": 10})
    assert (last.content, last.headers["x-dexaflow-log-complete"]) == (b"", "true")


async def test_a_watched_run_tells_every_change_until_it_ends(server: Server, database: Database) -> None:
    database.dag()
    database.run()
    database.task("extract", State.HELD)
    database.task("load", State.NONE)
    told: list[tuple[str, dict[str, object]]] = []
    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as client,
        client.stream("GET", f"{server.url}{V1}/runs/run-1/events") as stream,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in stream.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                told.append((name, json.loads(line.removeprefix("data: "))))
                if len(told) == 3:
                    await asyncio.to_thread(database.set_task, "run-1", "extract", state="success", next_ask_at=None)
                elif len(told) == 4:
                    await asyncio.to_thread(database.do, lambda tx: tx.run("UPDATE runs SET state = 'success'"))
    assert [n for n, _ in told] == ["run", "task", "task", "task", "run", "end"]
    assert [d.get("state") for _, d in told] == ["running", "held", "none", "success", "success", "success"]
    assert (told[1][1]["reason"], told[1][1]["next_ask_at"]) == ("acme is frozen until 06:00 UTC", at(18))


async def test_a_stream_ends_when_the_server_stops(server: Server, database: Database) -> None:
    database.dag()
    database.run()
    app = server.config.app
    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as client,
        client.stream("GET", f"{server.url}{V1}/runs/run-1/events") as stream,
    ):
        async for line in stream.aiter_lines():
            assert not line.startswith("event: end")
            app.stop_streams()  # type: ignore[union-attr]  # it is our App
    assert app.services.streams == 0  # type: ignore[union-attr]


async def test_health_and_metrics_are_open_and_say_what_is_wrong(
    api: httpx.AsyncClient, health: dict[str, object]
) -> None:
    for path in ("/health", "/health/live", "/health/ready", "/metrics"):
        assert (await api.get(path, headers={"Authorization": ""})).status_code == 200
        asked, probed = await api.get(path), await api.head(path)
        assert (probed.status_code, probed.content) == (200, b"")
        assert probed.headers["content-type"] == asked.headers["content-type"]
    health.update(ready=False, scheduler=False, why="another control plane leads")
    assert (await api.head("/health/ready")).status_code == 503
    assert (await api.get("/health/live")).status_code == 200
    ready = await api.get("/health/ready")
    assert (ready.status_code, ready.json()["why"]) == (503, "another control plane leads")
    assert (await api.get("/health")).status_code == 503


async def test_what_waits_for_a_paused_dag_says_so_with_since_when_and_by_whom(
    api: httpx.AsyncClient, database: Database
) -> None:
    """Runs and tasks alike, wherever they are shown, and what to do about it."""
    database.dag(a_dag("nightly_etl", a_task("extract"), a_task("load", upstream=("extract",))))
    database.run("run-1")
    database.task("extract", State.SCHEDULED, reason="admitted; waits for its DAG to be unpaused")
    database.task("load", State.NONE, reason="")
    url = f"{V1}/dags/nightly_etl"
    paused = (await api.patch(url, json={"is_paused": True}, headers={"X-Dexaflow-User": "alice"})).json()
    again = (await api.patch(url, json={"is_paused": True}, headers={"X-Dexaflow-User": "bob"})).json()
    assert paused["paused_by"] == again["paused_by"] == "alice"
    assert paused["paused_at"] == again["paused_at"]

    said = f"its DAG is paused since {paused['paused_at'][:19].replace('T', ' ')} UTC by alice;"
    said += " `dexaflow dags unpause nightly_etl` lets it go on"
    run = (await api.get(f"{V1}/runs/run-1")).json()
    assert run["waits_because"] == said
    assert [task["reason"] for task in run["tasks"]] == [said, said]
    listed = (await api.get(f"{V1}/runs/run-1/tasks")).json()["tasks"]
    assert [task["reason"] for task in listed] == [said, said]
    told = (await api.get(f"{V1}/runs/run-1/tasks/load/explain")).json()
    assert told["slots"]["waits_because"] == f"{said}; waits for extract (scheduled)"
    airflow = "/api/v2/dags/nightly_etl/dagRuns/run-1/taskInstances/load"
    assert (await api.get(airflow)).json()["note"] == said

    going_on = (await api.patch(url, json={"is_paused": False})).json()
    assert (going_on["paused_at"], going_on["paused_by"]) == (None, "")
    run = (await api.get(f"{V1}/runs/run-1")).json()
    assert (run["waits_because"], run["tasks"][0]["reason"]) == ("", "admitted; waits for pool slots")
    told = (await api.get(f"{V1}/runs/run-1/tasks/load/explain")).json()
    assert told["slots"]["waits_because"] == "waits for extract (scheduled)"


async def test_a_run_whose_turn_has_not_come_says_so(api: httpx.AsyncClient, database: Database) -> None:
    """`max_active_runs` keeps it; a run that is about to begin says nothing."""
    database.dag(a_dag("nightly_etl", a_task("extract"), max_active_runs=1))
    database.run("waits", state="queued")
    database.task("extract", State.NONE, run_id="waits", reason="")
    assert (await api.get(f"{V1}/runs/waits")).json()["waits_because"] == ""
    database.run("first", state="running", logical_date=None)
    said = "as many runs of its DAG are running as max_active_runs allows (1); it begins when one of them ends"
    run = (await api.get(f"{V1}/runs/waits")).json()
    assert (run["waits_because"], run["tasks"][0]["reason"]) == (said, said)
    assert (await api.get(f"{V1}/runs/first")).json()["waits_because"] == ""
