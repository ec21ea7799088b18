"""What an attempt costs from trigger to report: a real Lite, a real TLS endpoint, real processes."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.system.endpoint import Endpoint
from tests.system.lite import Lite, lite, wait_for

from bench.scale import Scale
from bench.table import Line, line

__all__ = ["downstream", "end_to_end", "idle"]

CORES = 2
TICKS = os.sysconf("SC_CLK_TCK")
POLICY = """
from dexaflow.admission import Request, admit

def hook(request: Request):
    return admit(labels={"asked": "yes"})
"""
TINY_TASKS = """
from dexaflow import DAG, bash

with DAG("tiny", schedule=None):
    for number in range({count}):
        bash(f"t{{number}}", "true")
"""


@contextlib.contextmanager
def _two_cores() -> Iterator[None]:
    """Give everything started meanwhile two cores, however many there are."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:CORES])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _running(dag: str) -> Iterator[tuple[Lite, Endpoint]]:
    """Give a Lite with one DAG, and the endpoint that it asks about every attempt."""
    with tempfile.TemporaryDirectory() as name, _two_cores():
        policy = Endpoint(Path(name) / "policy")
        (policy.root / "policy_under_test.py").write_text(POLICY)
        policy.start()
        try:
            with lite(Path(name)) as server:
                server.config = policy.config()
                server.write_dag("bench", dag)
                server.start()
                yield server, policy
                server.stop()
        finally:
            policy.kill()


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _used(pid: int, *, children: bool = False) -> float:
    """Return the CPU-seconds of a process over all its threads, or of its ended children and theirs with it."""
    fields = _stat(pid)
    return sum(int(field) for field in fields[11 : 15 if children else 13]) / TICKS


def _spawner(server: int) -> int | None:
    """Return the process that forks the agents, or None while nothing has been started."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int(_stat(int(entry.name))[1]) == server and (entry / "comm").read_text().startswith("dexaflow-spawn"):
                return int(entry.name)
    return None


def _cpu(server: Lite, policy: Endpoint) -> Mapping[str, float]:
    assert server.process is not None
    assert policy.process is not None
    spawner = _spawner(server.process.pid)
    return {
        "server": _used(server.process.pid),
        "agents, bash and what forks them": 0.0 if spawner is None else _used(spawner, children=True),
        "endpoint": _used(policy.process.pid),
    }


def _seconds(later: str, earlier: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def _ended(server: Lite, run_id: str) -> Any:
    """Wait for the only run's end without disturbing it much; return it."""

    def look() -> bool:
        time.sleep(0.5)
        (run,) = server.get("/dexaflow/v1/runs")["runs"]  # a page of runs is cheap, a run with its tasks is not
        return run["state"] in ("success", "failed")

    wait_for(look, what="the run to end", seconds=120.0)
    found = server.run(run_id)
    assert found["state"] == "success", found["state"]
    return found


def end_to_end(scale: Scale) -> list[Line]:
    """Many tiny bash tasks without dependencies, each one asked about."""
    with _running(TINY_TASKS.format(count=scale.attempts)) as (server, policy):
        before = _cpu(server, policy)
        run = _ended(server, server.trigger("tiny"))
        after = _cpu(server, policy)
    wall = _seconds(run["ended_at"], run["started_at"])
    each = {name: (after[name] - before[name]) / scale.attempts * 1000 for name in after}
    flight = f"{CORES} cores"
    return [
        line("Lite end to end, tiny bash tasks, each asked, attempts a second", [scale.attempts / wall], unit="/s",
             in_flight=flight, at_least=70),
        line("  CPU of one attempt, all processes", [sum(each.values())], unit="ms", at_most=CORES * 1000 / 70),
        *(line(f"  of it {name}", [figure], unit="ms") for name, figure in each.items()),
    ]  # fmt: skip


CHAIN = """
from dexaflow import DAG, bash

with DAG("chain", schedule=None):
    before = None
    for number in range({count}):
        after = bash(f"t{{number}}", "true")
        if before is not None:
            before >> after
        before = after
"""


def downstream(scale: Scale) -> list[Line]:
    """A chain of tasks on an idle machine: from each one's success to its successor's start."""
    with _running(CHAIN.format(count=scale.chain)) as (server, _):
        tasks = {task["task_id"]: task for task in _ended(server, server.trigger("chain"))["tasks"]}
    gaps = [
        _seconds(tasks[f"t{number + 1}"]["started_at"], tasks[f"t{number}"]["ended_at"]) * 1000
        for number in range(scale.chain - 1)
    ]
    return [line("upstream success to downstream start, median of a chain", gaps, unit="ms", in_flight=1, at_most=100)]


def idle(scale: Scale) -> list[Line]:
    """A server that has run something and has nothing to do."""
    with _running(CHAIN.format(count=2)) as (server, _):
        _ended(server, server.trigger("chain"))
        time.sleep(min(2.0, scale.idle_seconds))
        assert server.process is not None
        began = _used(server.process.pid)
        time.sleep(scale.idle_seconds)
        used = (_used(server.process.pid) - began) / scale.idle_seconds * 100
        resident = _resident(server.process.pid)
    return [
        line("idle Lite server, memory", [resident], unit="MB", at_most=120),
        line("idle Lite server, CPU", [used], unit="% of a core"),
    ]


def _resident(pid: int) -> float:
    """Return resident memory in MB."""
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith("VmRSS:"):
            return int(row.split()[1]) / 1024
    return 0.0
