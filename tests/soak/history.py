"""`python -m tests.soak.history [RUNS]`: a real server with a hundred thousand runs behind it, and one with none.

Prints what each listing, each command and a run from trigger to end takes on both, and how fast the past goes.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dexaflow.store.engine import open_writer
from tests.store.test_history import fill
from tests.system.lite import Lite, lite, wait_for

DAG = """
from dexaflow import DAG, bash

with DAG("d", schedule=None):
    bash("t", "true")
"""
PATHS = {
    "runs": "/dexaflow/v1/runs?limit=50",
    "runs of a DAG": "/dexaflow/v1/runs?limit=50&dag_id=d",
    "runs, the last page": "/dexaflow/v1/runs?limit=50&offset={last}",
    "failed runs": "/dexaflow/v1/runs?limit=50&state=failed",
    "DAGs": "/dexaflow/v1/dags",
    "held": "/dexaflow/v1/holds",
    "Airflow's runs": "/api/v2/dags/d/dagRuns?limit=50",
    "Airflow's tasks": "/api/v2/dags/~/dagRuns/~/taskInstances?limit=50",
    "metrics": "/metrics",
}
COMMANDS = {"runs list": ["runs", "list"], "dags list": ["dags", "list"], "holds list": ["holds", "list"]}


def median(what: Callable[[], object], times: int = 9) -> float:
    """Return the milliseconds that it takes."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        what()
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def command(server: Lite, words: list[str]) -> None:
    """Run one command of ours."""
    subprocess.run(
        [sys.executable, "-m", "dexaflow.cli.main", *words, "--data", str(server.data)],
        check=True, capture_output=True, cwd=server.root,
    )  # fmt: skip


def measured(root: Path, runs: int) -> dict[str, float]:
    """Return what everything takes with so many runs in the past, in milliseconds."""
    with lite(root) as server:
        server.write_dag("d", DAG)
        server.start()
        assert server.ended(server.trigger("d")) == "success"
        server.stop()
        engine = open_writer(server.data / "dexaflow.db")
        fill(engine, runs)
        engine.dispose()
        server.config = {"history": {"retention": "3650d"}}
        began = time.perf_counter()
        server.start()
        found = {"start": (time.perf_counter() - began) * 1000}
        found |= {
            name: median(lambda path=path: server.get(path.format(last=max(0, runs - 50))))  # type: ignore[misc]
            for name, path in PATHS.items()
        }
        found |= {name: median(lambda words=words: command(server, words), 3) for name, words in COMMANDS.items()}  # type: ignore[misc]
        found["a run"] = median(lambda: server.ended(server.trigger("d")), 3)
        server.stop()
        print(f"with {runs:,} runs: { ({name: round(took, 1) for name, took in found.items()}) }", flush=True)
        server.config = {"history": {"retention": "1d"}}
        began = time.perf_counter()
        server.start()
        wait_for(
            lambda: server.get("/dexaflow/v1/runs?limit=1")["total_entries"] < 50, what="the past to go", seconds=3600
        )
        found["until the past is gone"] = (time.perf_counter() - began) * 1000
        server.stop()
    return found


def main(runs: int = 100_000) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as little, tempfile.TemporaryDirectory() as much:
        none, many = measured(Path(little), 50), measured(Path(much), runs)
    for name in none:
        print(f"{name:24} {none[name]:10.1f} ms {many[name]:10.1f} ms with {runs:,} runs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
