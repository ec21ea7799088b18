"""A real `dexaflow lite` process with real files, driven as its users drive it: over HTTP and by signals."""

import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import yaml

T = TypeVar("T")
DEADLINE = 60.0  # seconds until a test that waits gives up; nothing here takes so long


def wait_for(look: Callable[[], T | None], *, what: str, seconds: float = DEADLINE) -> T:
    """Return the first truthy thing that `look` finds. Another process moves: there is no event to wait for."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}; last seen: {found!r}"
        time.sleep(0.05)


class Lite:
    """One data folder and the servers that run on it, one after the other."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.dags = root / "dags"
        self.dags.mkdir(parents=True, exist_ok=True)
        self.config: dict[str, Any] = {}
        self.environ: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.python_path: list[str] = []
        self.program = ["-m", "dexaflow.cli.main"]

    def write_dag(self, name: str, source: str, folder: str = "") -> None:
        """Write a DAG file in one step, as an editor does."""
        path = self.dags / folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".tmp")
        beside.write_text(textwrap.dedent(source))
        beside.rename(path)

    def start(self, *, ready: bool = True, port: int = 0) -> "Lite":
        """Start a server on the data folder and wait until it is ready."""
        config = self.root / "dexaflow.yaml"
        config.write_text(yaml.safe_dump(self.config))
        environ = {k: v for k, v in os.environ.items() if not k.startswith("DEXAFLOW_")}
        environ |= {"PYTHONPATH": os.pathsep.join(self.python_path)} | self.environ
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, *self.program, "lite", "--dags", str(self.dags), "--data",
                    str(self.data), "--config", str(config), "--port", str(port),
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environ, cwd=self.root, start_new_session=True,
            )  # fmt: skip
        if ready:
            wait_for(self._is_ready, what="the server to be ready")
        return self

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended: {self.log()[-2000:]}"
        try:
            return self.announced() and self.request("GET", "/health/ready")[0] == 200
        except (OSError, ValueError, http.client.HTTPException):
            return False

    def announced(self) -> bool:
        """Whether this server, and no other, is the one that agents and people find."""
        assert self.process is not None
        try:
            return bool(json.loads((self.data / "server.json").read_text())["pid"] == self.process.pid)
        except FileNotFoundError:
            return False

    def log(self) -> str:
        """Return what all servers of this folder have logged."""
        return (self.root / "server.log").read_text(errors="replace")

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of one event."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line.get("event") == event]

    def kill9(self) -> None:
        """Kill the server as a crash would."""
        self.signal(signal.SIGKILL)

    def stop(self) -> int:
        """Stop the server in order and return its exit status."""
        return self.signal(signal.SIGTERM)

    def signal(self, number: int) -> int:
        """Send a signal and wait for the end."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(DEADLINE)

    @property
    def token(self) -> str:
        return (self.data / "token").read_text().strip()

    @property
    def url(self) -> str:
        return str(json.loads((self.data / "server.json").read_text())["url"])

    def request(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, seconds: float = 30
    ) -> tuple[int, Any]:
        """Return status and decoded body of one request to the API."""
        address = urlsplit(self.url)
        assert address.hostname is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=seconds)
        try:
            headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
            data = None
            if body is not None:
                data = json.dumps(body)
                headers["Content-Type"] = "application/json"
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            content = response.read()
            if "json" in (response.headers.get_content_type() or ""):
                return response.status, json.loads(content)
            return response.status, content.decode(errors="replace")
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return the body of a GET that succeeds."""
        status, body = self.request("GET", path)
        assert status == 200, (status, body)
        return body

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Trigger a run once its DAG is there; return its id."""

        def attempt() -> str | None:
            status, body = self.request("POST", f"/dexaflow/v1/dags/{dag_id}/runs", {"conf": conf or {}})
            return str(body["run_id"]) if status == 201 else None

        return wait_for(attempt, what=f"DAG {dag_id} to be there")

    def run(self, run_id: str) -> Any:
        """Return a run with its tasks."""
        return self.get(f"/dexaflow/v1/runs/{quote(run_id, safe='')}")

    def task(self, run_id: str, task_id: str) -> Any:
        """Return one task of a run."""
        return self.get(f"/dexaflow/v1/runs/{quote(run_id, safe='')}/tasks/{quote(task_id, safe='')}")

    def explain(self, run_id: str, task_id: str, try_number: int | None = None) -> Any:
        """Return the walk of an attempt."""
        suffix = "" if try_number is None else f"?try_number={try_number}"
        return self.get(f"/dexaflow/v1/runs/{quote(run_id, safe='')}/tasks/{quote(task_id, safe='')}/explain{suffix}")

    def task_log(self, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Return the log of one try."""
        path = (
            f"/dexaflow/v1/runs/{quote(run_id, safe='')}/tasks/{quote(task_id, safe='')}/logs?try_number={try_number}"
        )
        return str(self.get(path))

    def ended(self, run_id: str, seconds: float = DEADLINE) -> str:
        """Wait until a run has ended and return its state."""

        def look() -> str | None:
            state = str(self.run(run_id)["state"])
            return state if state in ("success", "failed") else None

        return wait_for(look, what=f"run {run_id} to end", seconds=seconds)

    def in_state(self, run_id: str, task_id: str, *states: str, seconds: float = DEADLINE) -> Any:
        """Wait until a task is in one of the states and return it."""

        def look() -> Any:
            task = self.task(run_id, task_id)
            return task if task["state"] in states else None

        return wait_for(look, what=f"{task_id} to be {' or '.join(states)}", seconds=seconds)


@contextmanager
def lite(root: Path) -> Iterator[Lite]:
    """Give a Lite that is not started yet; nothing of it is left afterwards."""
    made = Lite(root)
    try:
        yield made
    finally:
        if made.process is not None and made.process.poll() is None:
            made.process.kill()
            made.process.wait()
        for agent in (made.data / "agents").glob("*.json"):
            try:
                os.killpg(json.loads(agent.read_text())["pid"], signal.SIGKILL)
            except (OSError, ValueError, KeyError):
                continue


def processes_of(server: Lite) -> list[int]:
    """Return the processes that run anything for this data folder's tasks."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"DEXAFLOW_RUN_ID=" in environ and str(server.root).encode() in environ:
            found.append(int(folder.name))
    return found


def write_marking_dag(server: Lite, name: str, command: str, tasks: int = 1, options: str = "") -> Path:
    """Write a DAG whose tasks each add a line to a file when they have run."""
    marker = server.root / f"{name}.ran"
    server.write_dag(
        name,
        f"""
        from dexaflow import DAG, bash

        with DAG({name!r}):
            for i in range({tasks}):
                bash(f"t{{i}}", {command + f"; echo $DEXAFLOW_TASK_ID >> {marker}"!r}{options})
        """,
    )
    return marker


def fails(server: Lite) -> str:
    """Start a server that cannot work; return the one line that says why."""
    before = len(server.log()) if (server.root / "server.log").exists() else 0
    server.start(ready=False)
    assert server.process is not None
    assert server.process.wait(30) == 1
    said = server.log()[before:]
    assert "Traceback" not in said, said
    lines = [line for line in said.splitlines() if line.startswith("dexaflow: ")]
    assert len(lines) == 1, said
    assert not (server.data / "server.json").exists()
    return lines[0]
