"""The same 500 tiny tasks through Airflow's LocalExecutor, where it may be installed: `AIRFLOW=1 make bench`.

It is installed once into `build/.bench/airflow`, by the package index that pip is set up with; that takes minutes.
"""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.lite import CORES, attempts_a_second, two_cores
from bench.rounds import ROOT
from bench.scale import Scale
from bench.table import Line, line, not_measured

__all__ = ["against_lite"]

VENV = ROOT / "build" / ".bench" / "airflow"
WANTED = "apache-airflow==3.*"
SLOTS = 8  # as in Lite; with its own default of 32 on two cores, tasks of Airflow fail for want of time
READY_SECONDS, RUN_SECONDS = 300.0, 900.0
_WHAT = f"Lite end to end, against Airflow's LocalExecutor, attempts a second, {CORES} cores"
DAG = """
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG("tiny", schedule=None, max_active_tasks={count}, is_paused_upon_creation=False):
    for number in range({count}):
        BashOperator(task_id=f"t{{number}}", bash_command="true")
"""


class _NotHere(Exception):  # noqa: N818 - what it says
    """Airflow cannot be measured here, and why."""


def _installed() -> Path:
    """Return Airflow's command, installed now if it is not yet. Raises `_NotHere`."""
    command = VENV / "bin" / "airflow"
    if not command.exists():
        if os.environ.get("AIRFLOW") != "1":
            raise _NotHere("it takes minutes to install; AIRFLOW=1 does")
        with contextlib.suppress(subprocess.CalledProcessError):
            subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True, capture_output=True)
            subprocess.run(
                [str(VENV / "bin" / "pip"), "install", "--quiet", WANTED], check=True, capture_output=True, timeout=1800
            )
        if not command.exists():
            raise _NotHere("pip could not install it")
    if os.environ.get("AIRFLOW") != "1":
        raise _NotHere("AIRFLOW=1 measures it")
    return command


@dataclass(frozen=True, slots=True)
class _Airflow:
    """All of Airflow, running."""

    command: Path
    environ: Mapping[str, str]
    database: Path
    port: int

    def ready(self) -> bool:
        """Whether its tasks could report, and it has read the DAG: its parts start in no order."""
        with (
            contextlib.suppress(OSError, sqlite3.Error),
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v2/monitor/health", timeout=5),
            contextlib.closing(_reading(self.database)) as found,
        ):
            return found.execute(_READ).fetchone() is not None
        return False

    def trigger(self) -> None:
        subprocess.run(
            [str(self.command), "dags", "trigger", "tiny"], env=dict(self.environ), check=True, capture_output=True
        )

    def run(self) -> tuple[float | None, str]:
        """Return how long the only run took once it has ended, and its state."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(_reading(self.database)) as found:
            row = found.execute(_RUN).fetchone()
            if row is not None:
                return row[1], row[0]
        return None, ""


_READ = "SELECT 1 FROM serialized_dag WHERE dag_id = 'tiny'"
_RUN = "SELECT state, (julianday(end_date) - julianday(start_date)) * 86400 FROM dag_run WHERE dag_id = 'tiny'"


def _reading(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)


@contextlib.contextmanager
def _standalone(command: Path, home: Path) -> Iterator[_Airflow]:
    """Run all of Airflow on two cores."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    database = home / "airflow.db"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")} | {
        "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": str(SLOTS),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{database}",
    }
    with two_cores(), (home / "airflow.log").open("wb") as log:
        process = subprocess.Popen(
            [str(command), "standalone"], env=environ, cwd=home, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield _Airflow(command, environ, database, port)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)


def _rate(command: Path, count: int) -> float:
    """Return attempts a second. Raises `_NotHere`."""
    with tempfile.TemporaryDirectory(prefix="dexaflow-bench-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        (home / "dags").mkdir()
        (home / "dags" / "tiny.py").write_text(DAG.format(count=count))
        with _standalone(command, home) as airflow:
            _wait(airflow.ready, READY_SECONDS, "it did not start")
            airflow.trigger()
            _wait(lambda: airflow.run()[0] is not None, RUN_SECONDS, "its run did not end")
            took, state = airflow.run()
    if took is None or state != "success":
        raise _NotHere(f"its run ended as {state}")
    return count / took


def _wait(happened: Callable[[], bool], seconds: float, otherwise: str) -> None:
    until = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > until:
            raise _NotHere(f"{otherwise} in time")
        time.sleep(1.0)


def against_lite(scale: Scale) -> list[Line]:
    """Lite, Airflow, Lite, and so on: each of Airflow's runs beside the mean of Lite's before and after it."""
    lite, theirs = [], []
    try:
        command = _installed()
        lite.append(attempts_a_second(scale.attempts))
        for _ in range(scale.repeats):
            theirs.append(_rate(command, scale.attempts))
            lite.append(attempts_a_second(scale.attempts))
    except _NotHere as why:
        return [not_measured(_WHAT, str(why), in_flight=SLOTS, at_least=10)]
    ours = [(before + after) / 2 for before, after in pairwise(lite)]
    return [
        line(
            _WHAT, [mine / its for mine, its in zip(ours, theirs, strict=True)], unit="x", in_flight=SLOTS, at_least=10
        ),
        line("  Airflow, attempts a second", theirs, unit="/s", in_flight=SLOTS),
        line("  Lite beside it, attempts a second", ours, unit="/s", in_flight=SLOTS),
    ]
