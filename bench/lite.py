"""What an attempt costs from trigger to report: a real Lite, a real TLS endpoint, real processes."""

import contextlib
import os
import statistics
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
from dexaflow.config.schema import default_parallelism

__all__ = ["CORES", "attempts_a_second", "downstream", "end_to_end", "idle", "resident", "two_cores", "used"]

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
def two_cores() -> Iterator[None]:
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
    with tempfile.TemporaryDirectory() as name, two_cores():
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


def used(pid: int, *, children: bool = False) -> float:
    """Return the CPU-seconds of a process over all its threads, or of its ended children and theirs with it."""
    fields = _stat(pid)
    return sum(int(field) for field in fields[11 : 15 if children else 13]) / TICKS


def resident(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(row.split()[1]) / 1024 for row in rows if row.startswith("VmRSS:")), 0.0)


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
        "server": used(server.process.pid),
        "agents, bash and what forks them": 0.0 if spawner is None else used(spawner, children=True),
        "endpoint": used(policy.process.pid),
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


def _once(attempts: int) -> Mapping[str, float]:
    """Run them through a fresh server; return attempts a second, and each process's milliseconds of one attempt."""
    with _running(TINY_TASKS.format(count=attempts)) as (server, policy):
        before = _cpu(server, policy)
        run = _ended(server, server.trigger("tiny"))
        after = _cpu(server, policy)
    wall = _seconds(run["ended_at"], run["started_at"])
    return {"rate": attempts / wall} | {name: (after[name] - before[name]) / attempts * 1000 for name in after}


def attempts_a_second(attempts: int) -> float:
    """Run so many tiny bash tasks through a fresh server."""
    return _once(attempts)["rate"]


def end_to_end(scale: Scale) -> list[Line]:
    """Many tiny bash tasks without dependencies, each one asked about."""
    found = [_once(scale.attempts) for _ in range(scale.repeats)]
    processes = [name for name in found[0] if name != "rate"]
    flight = f"{default_parallelism()} on {CORES} cores"
    return [
        line("Lite end to end, tiny bash tasks, each asked, attempts a second", [r["rate"] for r in found], unit="/s",
             in_flight=flight, at_least=70),
        line("  CPU of one attempt, all processes", [sum(r[name] for name in processes) for r in found], unit="ms",
             in_flight=flight),
        *(line(f"  of it {name}", [r[name] for r in found], unit="ms", in_flight=flight) for name in processes),
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


def _gap(tasks: int) -> float:
    """Run a chain through a fresh server; return the median milliseconds from one's success to the next one's start."""
    with _running(CHAIN.format(count=tasks)) as (server, _):
        found = {task["task_id"]: task for task in _ended(server, server.trigger("chain"))["tasks"]}
    return statistics.median(
        _seconds(found[f"t{number + 1}"]["started_at"], found[f"t{number}"]["ended_at"]) * 1000
        for number in range(tasks - 1)
    )


def downstream(scale: Scale) -> list[Line]:
    """A chain of tasks on an idle machine: from each one's success to its successor's start."""
    gaps = [_gap(scale.chain) for _ in range(scale.repeats)]
    return [line("upstream success to downstream start, median of a chain", gaps, unit="ms", in_flight=1, at_most=100)]


def _idle(seconds: float) -> tuple[float, float]:
    """Return MB and percent of a core of a fresh server that has run two tasks and has nothing to do."""
    with _running(CHAIN.format(count=2)) as (server, _):
        _ended(server, server.trigger("chain"))
        time.sleep(min(2.0, seconds))
        assert server.process is not None
        began = used(server.process.pid)
        time.sleep(seconds)
        percent = (used(server.process.pid) - began) / seconds * 100
        return resident(server.process.pid), percent


def idle(scale: Scale) -> list[Line]:
    """A server that has run something and has nothing to do."""
    found = [_idle(scale.idle_seconds) for _ in range(scale.repeats)]
    return [
        line("idle Lite server, memory", [memory for memory, _ in found], unit="MB", in_flight=0, at_most=120),
        line("idle Lite server, CPU", [percent for _, percent in found], unit="% of a core", in_flight=0),
    ]
