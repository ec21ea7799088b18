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
from collections.abc import Iterator
from pathlib import Path

from bench.lite import CORES, attempts_a_second, two_cores
from bench.rounds import ROOT
from bench.scale import Scale
from bench.table import Line, line, not_measured

__all__ = ["against_lite"]

VENV = ROOT / "build" / ".bench" / "airflow"
WANTED = "apache-airflow==3.*"
SLOTS = 32  # Airflow's default parallelism
READY_SECONDS, RUN_SECONDS = 300.0, 900.0
_WHAT = f"Lite end to end, against Airflow's LocalExecutor, attempts a second, {CORES} cores"
DAG = """
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG("tiny", schedule="@once", max_active_tasks={count}, is_paused_upon_creation=False):
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


@contextlib.contextmanager
def _standalone(command: Path, home: Path) -> Iterator[Path]:
    """Run all of Airflow on two cores and give its database."""
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
        yield database
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)


def _seconds(database: Path) -> tuple[float | None, str]:
    """Return how long the only run took once it has ended, and its state."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as found:
            row = found.execute(
                "SELECT state, (julianday(end_date) - julianday(start_date)) * 86400 FROM dag_run WHERE dag_id = 'tiny'"
            ).fetchone()
    except sqlite3.Error:  # not made yet
        return None, ""
    return (None, "") if row is None else (row[1], row[0])


def _rate(command: Path, count: int) -> float:
    """Return attempts a second. Raises `_NotHere`."""
    with tempfile.TemporaryDirectory(prefix="dexaflow-bench-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        (home / "dags").mkdir()
        (home / "dags" / "tiny.py").write_text(DAG.format(count=count))
        with _standalone(command, home) as database:
            until = time.monotonic() + READY_SECONDS + RUN_SECONDS
            while time.monotonic() < until:
                took, state = _seconds(database)
                if took is not None:
                    if state != "success":
                        raise _NotHere(f"its run ended as {state}")
                    return count / took
                time.sleep(1.0)
    raise _NotHere("its run did not end in time")


def against_lite(scale: Scale) -> list[Line]:
    """Lite, Airflow, Lite; once, since Airflow takes minutes."""
    try:
        command = _installed()
        before = attempts_a_second(scale.attempts)
        theirs = _rate(command, scale.attempts)
        ours = (before + attempts_a_second(scale.attempts)) / 2
    except _NotHere as why:
        return [not_measured(_WHAT, str(why), in_flight=SLOTS, at_least=10)]
    return [
        line(_WHAT, [ours / theirs], unit="x", in_flight=SLOTS, at_least=10),
        line("  Airflow, attempts a second", [theirs], unit="/s", in_flight=SLOTS),
        line("  Lite beside it, attempts a second", [ours], unit="/s", in_flight=SLOTS),
    ]
