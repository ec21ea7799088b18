"""Ten thousand held attempts: what they cost while nothing is due, and whether each is asked again when it is."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.system.lite import Lite, lite, wait_for

from bench.endpoint import HOLD, Endpoint, endpoint
from bench.lite import resident, two_cores, used
from bench.scale import Scale
from bench.table import Line, line

__all__ = ["many"]

TASKS = 1_000  # of each run at most
DAG = """
from dexaflow import DAG, bash

with DAG("held", schedule=None, max_active_runs=100):
    for number in range({count}):
        bash(f"t{{number}}", "true")
"""


@contextlib.contextmanager
def _server(found: Lite, policy: Endpoint, recheck: float) -> Iterator[int]:
    """Give the process id of a server on the folder's data."""
    webhook = {"url": policy.url, "ca_file": str(policy.ca_file), "token_file": str(policy.token_file)}
    found.config = {"execution": {"admission": {"webhook": webhook, "recheck": f"{recheck:g}s"}}}
    found.start()
    assert found.process is not None
    yield found.process.pid
    found.stop()


def _held(server: Lite) -> int:
    return int(server.get("/dexaflow/v1/holds?limit=1")["total_entries"])


def _hold(server: Lite, count: int) -> None:
    """Trigger so many tasks and wait until all of them are held."""
    for _ in range(max(1, count // TASKS)):
        server.trigger("held")

    def look() -> bool:
        time.sleep(0.5)
        return _held(server) == count

    wait_for(look, what=f"{count} holds", seconds=600.0)


def _asks(policy: Endpoint, before: int, count: int, *, seconds: float) -> int:
    """Return how many questions came until as many did as there are attempts, or until it has taken too long.

    Those that came due together stay together for many rechecks: how many fall into a stretch of time says little.
    """
    deadline = time.monotonic() + seconds
    while (asks := policy.counts().questions - before) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return asks


def many(scale: Scale) -> list[Line]:
    """One server for each of the two rechecks, on the same data; the repeats are stretches of time, or of questions."""
    count, held = scale.held, f"0 of {scale.held:,} held"
    cores, memory, rates, costs = [], [], [], []
    with (
        tempfile.TemporaryDirectory() as name,
        endpoint(Path(name), decision=HOLD) as policy,
        two_cores(),
        lite(Path(name) / "lite") as server,
    ):
        server.write_dag("bench", DAG.format(count=min(TASKS, count)))
        with _server(server, policy, 3600) as pid:
            _hold(server, count)
            time.sleep(scale.idle_seconds)
            for _ in range(scale.repeats):
                began = used(pid)
                time.sleep(scale.idle_seconds)
                cores.append((used(pid) - began) / scale.idle_seconds * 100)
                memory.append(resident(pid))
        recheck = scale.recheck
        with _server(server, policy, recheck) as pid:
            status, _ = server.request("POST", "/dexaflow/v1/holds/ask-now", {"hook": "webhook"})
            assert status == 200
            time.sleep(recheck * 1.5)  # until everyone has been asked once
            for _ in range(scale.repeats):
                began, busy, asked = time.monotonic(), used(pid), policy.counts().questions
                asks = _asks(policy, asked, count, seconds=recheck * 2)
                rates.append(asks / (time.monotonic() - began) / (count / recheck))
                costs.append((used(pid) - busy) / max(asks, 1) * 1000)
            assert _held(server) == count
    return [
        line(f"{count:,} held, recheck 1h, nothing due: CPU", cores, unit="% of a core", in_flight=held, at_most=2),
        line(f"{count:,} held, recheck 1h, nothing due: memory", memory, unit="MB", in_flight=held, at_most=300),
        line(f"{count:,} held, recheck {recheck:g}s: asks a second, against held / recheck", rates, unit="x",
             in_flight="at most 64", at_least=0.9, at_most=1.1),
        line("  the server's CPU of one ask", costs, unit="ms", in_flight="at most 64"),
    ]  # fmt: skip
