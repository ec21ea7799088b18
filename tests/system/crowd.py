"""A real Lite with more attempts due at once than it can ask in a second, and an endpoint that counts.

`python -m tests.soak.crowd` and `python -m tests.soak.held` run it with ten thousand.
"""

import asyncio
import contextlib
import itertools
import json
import os
import ssl
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
import uvloop

from tests.hooks import misbehaving
from tests.hooks.misbehaving import Peer, decided
from tests.system.lite import Lite, lite, wait_for

__all__ = ["Counting", "Crowd", "Held", "counting", "crowd", "held"]

TASKS_OF_A_RUN = 1_000
CROWD = """
from dexaflow import DAG, bash

with DAG("crowd", schedule=None, max_active_runs=1000):
    for number in range({tasks}):
        bash(f"t{{number}}", "true")
"""
OTHER = """
from dexaflow import DAG, bash

with DAG("other", schedule=None):
    bash("only", "true")
"""


@dataclass
class Counting:
    """Answers each question after `takes` seconds with what `decide` says, and counts."""

    decide: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda request: {"decision": "admit"}
    takes: float = 0.0
    url: str = ""
    ca_file: str = ""
    asked: list[tuple[float, str, str]] = field(default_factory=list)  # when, DAG, run and task
    connections: int = 0
    out: int = 0
    most_out: int = 0

    async def script(self, peer: Peer) -> None:
        """Serve one connection."""
        self.connections += 1
        while (body := await peer.question()) is not None:
            request = json.loads(body)["request"]
            self.asked.append((time.monotonic(), request["dag_id"], f"{request['run_id']} {request['task_id']}"))
            self.out += 1
            self.most_out = max(self.most_out, self.out)
            await asyncio.sleep(self.takes)
            self.out -= 1
            peer.send(decided(body, **self.decide(request)))
            peer.questions.clear()

    def gaps(self, dag_id: str, since: float) -> list[float]:
        """Return the seconds between two asks of one attempt, sorted, of those that began since then."""
        last: dict[str, float] = {}
        found = []
        for at, dag, attempt in list(self.asked):
            if dag == dag_id and at >= since:
                if attempt in last:
                    found.append(at - last[attempt])
                last[attempt] = at
        return sorted(found)

    def of(self, dag_id: str) -> int:
        """How often a DAG's attempts were asked about."""
        return sum(dag == dag_id for _, dag, _ in self.asked)


@contextlib.contextmanager
def counting(folder: Path) -> Iterator[Counting]:
    """Give such an endpoint, over TLS, in a thread of its own."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "counting-ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    made = Counting(ca_file=str(folder / "counting-ca.pem"))
    up, down = threading.Event(), threading.Event()

    async def serve() -> None:
        async with misbehaving.Endpoint(made.script, context) as endpoint:
            made.url = endpoint.url
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    assert up.wait(30)
    try:
        yield made
    finally:
        down.set()
        thread.join()


@dataclass(frozen=True)
class Crowd:
    """What was seen, in seconds where nothing else is said."""

    attempts: int
    decided: float  # from the trigger until all were held
    other_tenant: float  # from trigger to success, meanwhile
    asked_again: float  # from the moment when all were due at once again until all were asked
    other_tenant_again: float
    api: float  # the slowest answer meanwhile
    api_median: float
    connections: int
    memory_mb: float  # the server's peak
    memory_before_mb: float

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.3g}" for name, value in vars(self).items())


@contextlib.contextmanager
def _crowded(root: Path, tasks: int, *, recheck: str) -> Iterator[tuple[Counting, Lite]]:
    """Give a Lite with a DAG of so many tasks, each of them held, and another tenant's, whose task is admitted."""
    with counting(root) as endpoint, lite(root) as server:
        endpoint.decide = lambda r: (
            {"decision": "admit"} if r["dag_id"] == "other" else {"decision": "hold", "reason": "frozen"}
        )
        server.config = {
            "parallelism": 10_000,
            "tenants": {"acme": str(server.dags / "acme"), "globex": str(server.dags / "globex")},
            "execution": {
                "admission": {
                    "webhook": {"url": endpoint.url, "ca_file": endpoint.ca_file},
                    "timeout": "2s", "fail_open": True, "recheck": recheck,
                }
            },
        }  # fmt: skip
        server.write_dag("crowd", CROWD.format(tasks=tasks), "acme")
        server.write_dag("other", OTHER, "globex")
        server.start()
        assert server.request("PUT", "/dexaflow/v1/pools/default_pool", {"slots": 100_000})[0] in (200, 201)
        wait_for(lambda: server.request("GET", "/dexaflow/v1/dags/crowd")[0] == 200, what="the DAG")
        yield endpoint, server
        assert [server.events(name) for name in ("hook_failed", "hook_bypassed", "breaker_opened")] == [[], [], []]
        assert set(_outcomes(server)) == {"hold", "admit"}
        assert endpoint.most_out <= 16
        server.stop()


def crowd(root: Path, attempts: int, takes: float) -> Crowd:
    """Have so many attempts of one tenant due at once, twice, with one of another tenant between them.

    Asserts what is promised of it, and returns what was measured.
    """
    runs = -(-attempts // TASKS_OF_A_RUN)
    with _crowded(root, attempts // runs, recheck="1h") as (endpoint, server):
        endpoint.takes = takes
        memory_before = _peak(server)
        with _watched(server) as answers:
            began = time.monotonic()
            for _ in range(runs):
                server.trigger("crowd")
            other = _other(server)
            wait_for(lambda: _held(server) == attempts, what="all to be held", seconds=600)
            decided = time.monotonic() - began
            first = endpoint.of("crowd")

            began = time.monotonic()
            assert server.request("POST", "/dexaflow/v1/holds/ask-now", {"hook": "webhook"})[0] == 200
            again = _other(server)
            wait_for(lambda: endpoint.of("crowd") == 2 * attempts, what="all to be asked again", seconds=600)
            asked_again = time.monotonic() - began
        assert first == attempts, "each was asked once"
        assert endpoint.connections <= 16
        peak = _peak(server)
    return Crowd(
        attempts, decided, other, asked_again, again, max(answers), statistics.median(answers), endpoint.connections,
        peak, memory_before,
    )  # fmt: skip


@dataclass(frozen=True)
class Held:
    """What was seen of attempts that are held for a while; seconds where nothing else is said."""

    attempts: int
    seconds: float
    asks: int
    shortest_gap: float  # between two asks of one attempt
    median_gap: float
    longest_gap: float
    other_tenant: float  # the slowest of its attempts, from trigger to success
    api: float  # the slowest answer
    api_median: float
    cpu: float  # of a core
    memory_mb: float  # the peak
    memory_before_mb: float  # when all were held

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.3g}" for name, value in vars(self).items())


def held(root: Path, attempts: int, seconds: float, recheck: float) -> Held:
    """Have so many attempts held for so long, with one of another tenant now and then."""
    runs = -(-attempts // TASKS_OF_A_RUN)
    with _crowded(root, attempts // runs, recheck=f"{recheck:g}s") as (endpoint, server):
        for _ in range(runs):
            server.trigger("crowd")
        wait_for(lambda: _held(server) == attempts, what="all to be held", seconds=600)
        before, cpu, asked, others = _peak(server), _cpu_seconds(server), endpoint.of("crowd"), []
        began = time.monotonic()
        with _watched(server) as answers:
            while time.monotonic() - began < seconds:
                others.append(_other(server))
                time.sleep(min(5.0, seconds / 10))
        took = time.monotonic() - began
        asks, gaps = endpoint.of("crowd") - asked, endpoint.gaps("crowd", began)
        cpu = (_cpu_seconds(server) - cpu) / took
        assert _held(server) == attempts
        peak = _peak(server)
    return Held(
        attempts, took, asks, gaps[0], statistics.median(gaps), gaps[-1], max(others), max(answers),
        statistics.median(answers), cpu, peak, before,
    )  # fmt: skip


def _cpu_seconds(server: Lite) -> float:
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _other(server: Lite) -> float:
    began = time.monotonic()
    assert server.ended(server.trigger("other"), seconds=600) == "success"
    return time.monotonic() - began


def _held(server: Lite) -> int:
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in str(server.get("/metrics")).splitlines()
        if line.startswith("dexaflow_admission_held_attempts{")
    )


def _outcomes(server: Lite) -> Iterator[str]:
    for line in str(server.get("/metrics")).splitlines():
        if line.startswith("dexaflow_admission_reviews_total{") and not line.endswith(" 0.0"):
            yield line.partition('outcome="')[2].partition('"')[0]


def _peak(server: Lite) -> float:
    """The server's largest resident memory so far, in MB."""
    assert server.process is not None
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextlib.contextmanager
def _watched(server: Lite) -> Iterator[list[float]]:
    """Ask the API again and again for the length of a block; gives how long each answer took."""
    seconds: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        for path in itertools.cycle(["/dexaflow/v1/runs", "/dexaflow/v1/holds", "/health/ready", "/dexaflow/v1/hooks"]):
            began = time.monotonic()
            server.get(path)
            seconds.append(time.monotonic() - began)
            if ended.wait(0.1):
                return

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seconds
    finally:
        ended.set()
        thread.join()
