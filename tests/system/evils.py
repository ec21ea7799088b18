"""The four evils, looked for from the outside: unchecked, twice, lost, leaked (R10.3).

A `Walk` is one data folder with a workload that goes through every step of the line, and the endpoint it is asked of.
"""

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.system.endpoint import Endpoint, endpoint
from tests.system.lite import Lite, lite, wait_for
from tests.system.stepping import ROOT, Plan

__all__ = ["Walk", "walk"]

# Says that it runs; and, by a lock that all its children hold with it, whether another try of it runs.
MARK = """
exec 9>"$HERE/locks/$DEXAFLOW_RUN_ID.$DEXAFLOW_TASK_ID"
flock -n 9 || echo "$DEXAFLOW_RUN_ID $DEXAFLOW_TASK_ID two-at-once" >> "$HERE/ran"
echo "$DEXAFLOW_RUN_ID $DEXAFLOW_TASK_ID $DEXAFLOW_TRY_NUMBER" >> "$HERE/ran"
echo "a line for the log"
"""
WALK = """
from dexaflow import DAG, bash

def marked(task_id, command="true", **options):
    return bash(task_id, ". {here}/mark; " + command, env={{"HERE": "{here}"}}, retry_delay=0, **options)

with DAG("walk"):
    marked("first", "sleep 0.4", retries=2) >> marked("then", retries=2)
    marked("held", retries=2)
    marked("refused", retries=2)
    marked("retried", "[ $DEXAFLOW_TRY_NUMBER != 1 ]", retries=3)

with DAG("long"):
    marked("long", "[ $DEXAFLOW_TRY_NUMBER != 1 ] || sleep 300")
    marked("waits")
"""
RULES = {
    "held": {"decision": "hold", "reason": "not yet", "times": 1},
    "refused": {"decision": "refuse", "reason": "never"},
}
ENDED_AS = {"first": "success", "then": "success", "held": "success", "refused": "failed", "retried": "success"}
KEPT = {"agents", "dexaflow.db", "dexaflow.db-shm", "dexaflow.db-wal", "lock", "logs", "server.json", "signing.key",
        "token", "versions"}  # fmt: skip


class Walk:
    """Runs the workload and says which evils it finds."""

    def __init__(self, server: Lite, policy: Endpoint) -> None:
        self.server = server
        self.policy = policy
        self.root = server.root
        self.plan = Plan(self.root)
        self._looked_at: set[str] = set()
        self._published = 0
        (self.root / "locks").mkdir()
        (self.root / "tmp").mkdir()
        (self.root / "mark").write_text(MARK)
        server.program = ["-m", "tests.system.stepping", str(self.root)]
        server.python_path = [str(ROOT)]
        server.environ = {"TMPDIR": str(self.root / "tmp")}
        server.config = policy.config() | {"agent": {"heartbeat": "200ms", "silence": "1s"}, "parallelism": 8}
        self.publish()
        policy.rules(RULES)

    def publish(self) -> None:
        """Write the DAG file, each time as a version that was not there before."""
        self._published += 1
        self.server.write_dag("walk", WALK.format(here=self.root) + f"# {self._published}\n")

    def unended(self) -> list[str]:
        """Return the runs that have not ended."""
        runs = self.server.get("/dexaflow/v1/runs?limit=250")["runs"]
        return [r["run_id"] for r in runs if r["state"] not in ("success", "failed")]

    def evils(self) -> list[str]:
        """Let everything come to its end, and return what is wrong then."""
        found = []
        try:
            wait_for(lambda: not self.unended(), what="every run to end", seconds=30)
        except AssertionError:
            found += [f"lost: {run_id}: {self._states(run_id)}" for run_id in self.unended()]
        left: list[str] = []

        def clean() -> bool:
            left[:] = self._leaked()
            return not left

        with contextlib.suppress(AssertionError):
            wait_for(clean, what="nothing to be left", seconds=10)
        found += [f"leaked: {thing}" for thing in left]
        return found + self._misrun()

    def _states(self, run_id: str) -> dict[str, str]:
        return {t["task_id"]: f"{t['state']} {t['try_number']} {t['reason']}" for t in self._tasks(run_id)}

    def _tasks(self, run_id: str) -> Any:
        return self.server.run(run_id)["tasks"]

    def _misrun(self) -> list[str]:
        """What ran unchecked, twice or not at all."""
        path = self.root / "ran"
        ran = [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []
        admitted = {
            (q["run_id"], q["task_id"], str(q["try_number"])) for q in self.policy.asked if q["decision"] == "admit"
        }
        found = [f"twice at once: {line}" for line in ran if line[2] == "two-at-once"]
        counted = Counter(line for line in ran if line[2] != "two-at-once")
        found += [f"twice: {attempt} ran {n} times" for attempt, n in counted.items() if n > 1]
        found += [f"unchecked: {attempt}" for attempt in counted if attempt not in admitted]
        for run in self.server.get("/dexaflow/v1/runs?limit=250")["runs"]:
            if run["run_id"] in self._looked_at:
                continue
            self._looked_at.add(run["run_id"])
            for task in self._tasks(run["run_id"]):
                attempt = (run["run_id"], task["task_id"], str(task["try_number"]))
                if task["state"] == "success" and attempt not in counted:
                    found.append(f"lost: {attempt} is a success and never ran")
                if run["dag_id"] == "walk" and task["state"] != ENDED_AS[task["task_id"]]:
                    found.append(f"lost: {attempt} is {task['state']}: {task['reason']}")
        return found

    def _leaked(self) -> list[str]:
        """What is there that should be gone: files, processes, slots, launches."""
        data = self.server.data
        left = [f"file {p.name}" for p in data.iterdir() if p.name not in KEPT]
        left += [f"agent's file {p.name}" for p in (data / "agents").iterdir() if p.name != "errors.log"]
        left += [f"version {p.name}" for p in data.glob("versions/*") if not re.fullmatch("[0-9a-f]{64}", p.name)]
        left += [f"temporary file {p.name}" for p in (self.root / "tmp").iterdir()]
        left += self._processes()
        left += [
            f"{p['occupied_slots']} slots" for p in self.server.get("/api/v2/pools")["pools"] if p["occupied_slots"]
        ]
        with contextlib.closing(sqlite3.connect(f"file:{data / 'dexaflow.db'}?mode=ro", uri=True)) as database:
            for state, count in database.execute(
                "SELECT state, COUNT(*) FROM task_instances"
                " WHERE state IN ('queued', 'held', 'launching', 'running', 'up_for_retry') GROUP BY state"
            ):
                left.append(f"{count} attempts {state}")
            if database.execute("PRAGMA quick_check").fetchone() != ("ok",):
                left.append("a damaged database")
        return left

    def _processes(self) -> list[str]:
        """Return the processes of this folder besides the server and its spawner."""
        assert self.server.process is not None
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                mine = str(self.root).encode() in (folder / "cmdline").read_bytes()
                environ = (folder / "environ").read_bytes()
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            state, parent = rest.split()[:2]
            mine |= b"DEXAFLOW_RUN_ID=" in environ and str(self.root).encode() in environ
            spawner = name == "dexaflow-spawn" and int(parent) == self.server.process.pid
            if mine and state not in "ZX" and folder.name != str(self.server.process.pid) and not spawner:
                found.append(f"process {folder.name} ({name})")
        return found


@contextmanager
def walk(root: Path) -> Iterator[Walk]:
    """Give a walk whose server is not started yet."""
    root.mkdir(parents=True, exist_ok=True)
    with lite(root / "lite") as server, endpoint(root / "policy") as policy:
        yield Walk(server, policy)
