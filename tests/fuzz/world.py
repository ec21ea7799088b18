"""A real server with something in it, for whoever asks it everything."""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.api import Asked, ask_everything
from tests.system.lite import Lite, lite

__all__ = ["ask_a_real_server", "ask_by_its_own_program", "busy_server"]

_DAGS = """
from dexaflow import DAG, bash, task

with DAG("etl", tags=["a"], description="x"):
    @task
    def rows():
        return [1, 2]
    first = rows()
    bash("fails", "echo $ROWS; exit 1", env={"ROWS": first})

with DAG("frozen", schedule="0 6 * * *"):
    bash("held", "echo no")

with DAG("long"):
    bash("sleeps", "sleep 600")
"""

_HOOK = """
from dexaflow.admission import admit, hold

def freeze(request):
    if request.dag_id == "frozen":
        return hold("frozen \\x1b[31m for \\u202e now")
    return admit(labels={"team": "data"}, tolerations=[{"key": "a", "operator": "Exists"}])
"""


@contextmanager
def busy_server(root: Path) -> Iterator[tuple[Lite, Mapping[str, Sequence[object]]]]:
    """Give a server with runs that ended, are held and go on, and names by path parameter, most of which are there."""
    with lite(root) as server:
        server.write_dag("work", _DAGS)
        server.write_dag("broken", "import nothing_like_that")
        (root / "freeze.py").write_text(_HOOK)
        server.config = {"execution": {"admission": {"hooks": ["freeze:freeze"], "recheck": "1h"}}}
        server.start()
        runs = [server.trigger(dag, {"rows": 1}) for dag in ("etl", "frozen", "long")]
        server.ended(runs[0])
        server.in_state(runs[1], "held", "held")
        server.in_state(runs[2], "sleeps", "running")
        names: dict[str, Sequence[object]] = {
            "dag_id": ["etl", "frozen", "long", "~"],
            "run_id": [*runs, "etl@latest"],
            "dag_run_id": [*runs, "~"],
            "task_id": ["rows", "fails", "held", "sleeps"],
            "pool_name": ["default_pool"],
            "version_number": [1],
            "import_error_id": [1],
            "task_try_number": [1, 2],
            "try_number": [1],
            "xcom_key": ["return_value"],
        }
        yield server, names


def ask_a_real_server(root: Path, examples: int) -> Asked:
    """Ask a server of its own everything, and see that it has nothing to say against itself in its log."""
    with busy_server(root) as (server, names):
        asked = ask_everything(server.url, server.token, server.get("/openapi.json"), names, examples=examples)
        for event in server.events("api_failed"):
            asked.findings.setdefault(("the log", "api_failed"), str(event)[:3000])
        if "Traceback" in server.log():
            asked.findings.setdefault(("the log", "Traceback"), server.log()[-3000:])
        if not asked.findings and server.stop() != 0:
            asked.findings["the server", "stop"] = "it did not end in order"
    return asked


def ask_by_its_own_program(root: Path, examples: int) -> Asked:
    """Have schemathesis' program ask a server, with all its checks but one: a pool that is gone may be made anew."""
    asked = Asked()
    with busy_server(root) as (server, _):
        command = [
            *(str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json", "--no-color"),
            *("--header", f"Authorization: Bearer {server.token}", "--checks", "all", "-n", str(examples)),
            # A watched run that goes on has no end; and how fast it draws says nothing of us.
            *("--exclude-checks", "use_after_free", "--exclude-path-regex", "/events$"),
            *("--suppress-health-check", "all", "--request-timeout", "60"),
        ]
        ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        log = server.log()
    count = re.search(r"([0-9]+) generated", ended.stdout)
    asked.statuses["everything", 0] = int(count[1]) if count else 0
    if ended.returncode or "Traceback" in log:
        asked.findings["schemathesis", "run"] = f"{ended.stdout[-20_000:]}\n{ended.stderr[-2_000:]}"
    return asked
