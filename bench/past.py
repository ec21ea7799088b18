"""Scheduling and listing over one database, in a fresh process: prints the CPU of each in microseconds.

    python -m bench.past FOLDER RUNS LISTINGS

Scheduling is the real scheduler's pass and the verbs that take an attempt from `scheduled` to `success`, so many runs
of a hundred tasks; listing is the API itself, from the request to the last byte, each page so many times.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.database import Database, new_id
from bench.endpoint import pin
from bench.rounds import cpu
from dexaflow.admission.gate import Gate
from dexaflow.admission.results import Admitted
from dexaflow.api.app import App, create_app
from dexaflow.base.clock import SystemClock
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.observe.metrics import Metrics
from dexaflow.policy.checked import Checked
from dexaflow.policy.checks import check
from dexaflow.policy.policy import Policy
from dexaflow.scheduling.loop import one_pass, planner
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.store import admitting, registering, reporting, running
from dexaflow.store.engine import open_reader
from dexaflow.store.reading import Reader
from dexaflow.store.transaction import Tx

__all__ = ["LISTINGS", "PARALLELISM", "TASKS", "main", "register"]

TASKS = 100  # of the DAG that is scheduled
PARALLELISM = 16
LISTINGS: Mapping[str, str] = {
    "runs": "/dexaflow/v1/runs?limit=100",
    "runs of a DAG": "/dexaflow/v1/runs?limit=100&dag_id=past_00",
    "a run with its tasks": "/dexaflow/v1/runs/{run}",
    "held attempts": "/dexaflow/v1/holds?limit=100",
    "DAGs": "/dexaflow/v1/dags?limit=100",
    "pools": "/api/v2/pools",
    "Airflow's runs of a DAG": "/api/v2/dags/past_00/dagRuns?limit=100&order_by=-start_date",
    "Airflow's failed tasks": "/api/v2/dags/~/dagRuns/~/taskInstances?limit=100&state=failed",
    "Airflow's tasks of all": "/api/v2/dags/~/dagRuns/~/taskInstances?limit=100",
}


def register(database: Database, dag_id: str, tasks: int, **options: Any) -> None:
    """Register a DAG of so many tiny tasks."""
    specs = tuple(TaskSpec(f"t{number:03}", "bash", bash_command="true") for number in range(tasks))
    loaded = registering.DagFile("acme", f"{dag_id}.py", "snapshot", (DagSpec(dag_id, specs, **options),))
    errors, _ = database.do(lambda tx: registering.register_file(tx, loaded, (), planner(tx)))
    assert errors == (), errors


def _admit(gate: Gate, attempt: Attempt) -> Admitted:
    """Nobody is asked, so the review ends at once."""
    passed = check(attempt, Policy())
    assert isinstance(passed, Checked)
    step = gate.review(passed)
    try:
        step.send(None)
    except StopIteration as end:
        verdict = end.value
    assert isinstance(verdict, Admitted)
    return verdict


def _run_attempt_to_its_end(database: Database, gate: Gate, attempt: Attempt) -> None:
    admitted, launch_id = _admit(gate, attempt), new_id()
    written = database.do(
        lambda tx: admitting.launch(tx, admitted, launch_id=launch_id, placement="{}", parallelism=PARALLELISM)
    )
    assert written is not None
    database.do(lambda tx: reporting.started(tx, attempt.id, launch_id, "here", 7))
    database.do(
        lambda tx: reporting.attempt_ended(
            tx, attempt.id, launch_id, succeeded=True, reason="", exit_code=0, result=None, retry=seconds_to_retry
        )
    )


def _run_to_its_end(database: Database, gate: Gate, run_id: str) -> None:
    new = running.NewRun(run_id, "manual", None, None, None, {}, "bench")
    database.do(lambda tx: running.create_run(tx, "work", new))
    ended = 0
    while ended < TASKS:
        queued = database.do(lambda tx: one_pass(tx, PARALLELISM)).queued
        for attempt in queued:
            _run_attempt_to_its_end(database, gate, attempt)
        ended += len(queued)
    database.do(lambda tx: one_pass(tx, PARALLELISM))


def _schedule(database: Database, runs: int) -> float:
    """Return the microseconds of CPU of one attempt."""
    gate = Gate(
        [], policy=Policy(), fail_open=False, clock=SystemClock(), new_uid=new_id, new_incident=new_id,
        observer=Metrics(timeout=1.0, hooks=[]),
    )  # fmt: skip
    _run_to_its_end(database, gate, f"work-{new_id()}")
    began = cpu()
    for _ in range(runs):
        _run_to_its_end(database, gate, f"work-{new_id()}")
    return (cpu() - began) / (runs * TASKS) * 1e6


def _api(database: Database) -> App:
    nothing: Any = None  # no command is given, no log read
    return create_app(
        reader=Reader(open_reader(database.path)), commands=nothing, api_token=lambda token: True, agent_routes=[],
        metrics=lambda: b"", health=nothing, logs=nothing,
    )  # fmt: skip


async def _get(app: App, address: str) -> bytes:
    path, _, query = address.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"authorization", b"Bearer any"), (b"host", b"here")], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }  # fmt: skip
    body: list[bytes] = []
    status: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])
        body.append(message.get("body", b""))

    await app(scope, receive, send)
    assert status == [200], (address, status, b"".join(body)[:500])
    return b"".join(body)


async def _list(database: Database, times: int) -> dict[str, float]:
    """Return the microseconds of CPU of each page."""
    app = _api(database)
    (newest,) = json.loads(await _get(app, "/dexaflow/v1/runs?limit=1&dag_id=past_00"))["runs"]
    found: dict[str, float] = {}
    for name, template in LISTINGS.items():
        address = template.format(run=newest["run_id"])
        await _get(app, address)
        await _get(app, address)
        began = cpu()
        for _ in range(times):
            await _get(app, address)
        found[name] = (cpu() - began) / times * 1e6
    return found


def _forget_work(tx: Tx) -> None:
    """Remove the runs that were scheduled: the next turn's lists are to show what this one's did."""
    work = "SELECT run_id FROM runs WHERE dag_id = 'work'"
    for table in ("reviews", "results", "attempt_history", "task_instances"):
        tx.run(f"DELETE FROM {table} WHERE run_id IN ({work})")
    tx.run("DELETE FROM runs WHERE dag_id = 'work'")


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the figures."""
    folder, runs, listings = arguments
    pin(1)
    database = Database(Path(folder))
    figures = asyncio.run(_list(database, int(listings)))
    figures["scheduling"] = _schedule(database, int(runs))
    database.do(_forget_work)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
