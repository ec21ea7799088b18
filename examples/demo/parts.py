"""The two processes of the demo, and a few words of HTTP to talk to them."""

import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from dexaflow.agent.processes import adopt_orphans, children
from examples.demo.certificates import write_certificates
from examples.demo.folder import Folder
from examples.demo.interruptions import Interruptions

__all__ = ["DemoFailed", "Endpoint", "Lite", "Processes", "until"]

T = TypeVar("T")
HERE = Path(__file__).parent
STOP_SECONDS = 8.0  # for server and endpoint to stop by themselves; whoever stops a CI job waits ten


class DemoFailed(Exception):  # noqa: N818 - what the demo says
    """Something differs from what the demo promises."""


def until(look: Callable[[], T | None], what: str, seconds: float = 60.0) -> T:
    """Return the first truthy thing that `look` finds. Raises `DemoFailed`."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise DemoFailed(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)
    return found


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Processes:
    """Everything that the demo starts, and what that starts: none of it outlives the demo unless it is to."""

    def __init__(self, folder: Folder, interruptions: Interruptions) -> None:
        self.folder = folder
        self._interruptions = interruptions
        self._begun: list[subprocess.Popen[bytes]] = []
        adopt_orphans()  # agents are made to live on without a server: they become children of ours

    def begin(self, arguments: list[str], log: Path, environ: dict[str, str]) -> "subprocess.Popen[bytes]":
        """Start `dexaflow` with arguments, its output in a file."""
        with log.open("ab") as out, self._interruptions.held_back():
            child = subprocess.Popen(
                [sys.executable, "-m", "dexaflow.cli.main", *arguments],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=os.environ | environ,
                start_new_session=True, pass_fds=[self.folder.lock],
            )  # fmt: skip
            self._begun.append(child)
            self.folder.held_by(os.getpid(), *self._alive())
        return child

    def leave_running(self) -> None:
        """Let them live on; they have the folder from now on."""
        self.folder.held_by(*self._alive())

    def _alive(self) -> list[int]:
        return [child.pid for child in self._begun if child.poll() is None]

    def end(self) -> None:
        """Have all of them stop, and kill what is then left of them and of theirs."""
        for child in self._begun:
            if child.poll() is None:
                child.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for child in self._begun:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        while left := children(os.getpid()):  # what a killed one leaves behind comes to us in its turn
            for pid in left:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


class Process:
    """A child process with its output in a file."""

    def __init__(self, processes: Processes, log: Path) -> None:
        self._processes = processes
        self.log = log
        self.child: subprocess.Popen[bytes] | None = None

    def begin(self, *arguments: str, environ: dict[str, str] | None = None) -> None:
        """Start `dexaflow` with arguments."""
        self.child = self._processes.begin(list(arguments), self.log, environ or {})

    def alive(self) -> None:
        """Raises `DemoFailed` when the process has ended."""
        if self.child is None or self.child.poll() is not None:
            raise DemoFailed(f"a process of the demo ended; see {self.log}")

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()


class Endpoint(Process):
    """The policy endpoint: HTTPS with a throw-away CA, bearer token, one port through all restarts."""

    def __init__(self, processes: Processes) -> None:
        folder = processes.folder.path
        super().__init__(processes, folder / "endpoint.log")
        self.folder = folder
        self.port = free_port()
        self.freeze = folder / "freeze"
        write_certificates(folder)
        self.token = folder / "policy-token"
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_urlsafe(24) + "\n")

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/admit"

    def start(self) -> None:
        """Start it and wait until it listens."""
        self.begin(
            "endpoint", "serve", "examples.policy.demo_policy:policy", "--host", "127.0.0.1", "--port", str(self.port),
            "--tls-cert", str(self.folder / "tls.crt"), "--tls-key", str(self.folder / "tls.key"),
            "--token-file", str(self.token), "--path", "/admit",
            environ={"DEMO_FREEZE_FILE": str(self.freeze)},
        )  # fmt: skip
        until(self._listens, "the endpoint to listen")

    def _listens(self) -> bool:
        self.alive()
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


class Lite(Process):
    """A Lite server in a folder of the demo's own."""

    def __init__(self, processes: Processes, endpoint: Endpoint) -> None:
        folder = processes.folder.path
        super().__init__(processes, folder / "server.log")
        self.data = folder / "data"
        self.config = folder / "dexaflow.yaml"
        self.config.write_text(
            "# What `make demo` runs with.\n"
            "execution:\n  admission:\n    webhook:\n"
            f"      url: {endpoint.url}\n      ca_file: {endpoint.folder / 'ca.pem'}\n"
            f"      token_file: {endpoint.token}\n"
            "    timeout: 2s\n    recheck: 2s\n"
            "tenants:\n"
            f"  acme: {HERE / 'dags' / 'acme'}\n  globex: {HERE / 'dags' / 'globex'}\n"
        )

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.begin("lite", "--config", str(self.config), "--data", str(self.data), "--port", "0")
        until(self._ready, "Lite to be ready")

    def _ready(self) -> bool:
        self.alive()
        try:
            return self.request("GET", "/health/ready")[0] == 200
        except (OSError, ValueError, http.client.HTTPException):
            return False

    @property
    def url(self) -> str:
        return str(json.loads((self.data / "server.json").read_text())["url"])

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and decoded body."""
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
        try:
            headers = {"Authorization": f"Bearer {(self.data / 'token').read_text().strip()}"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            said = response.read()
            return response.status, json.loads(said) if b"{" in said[:1] else said.decode()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return the body of a GET that succeeds. Raises `DemoFailed`."""
        status, body = self.request("GET", path)
        if status != 200:
            raise DemoFailed(f"GET {path} answered {status}")
        return body

    def trigger(self, dag_id: str) -> str:
        """Trigger a run; return its id. Raises `DemoFailed`."""
        status, body = self.request("POST", f"/dexaflow/v1/dags/{dag_id}/runs", {})
        if status != 201:
            raise DemoFailed(f"triggering {dag_id} answered {status}: {body}")
        return str(body["run_id"])

    def tasks(self, run_id: str) -> dict[str, Any]:
        """Return a run's tasks by id."""
        return {t["task_id"]: t for t in self.get(f"/dexaflow/v1/runs/{run_id}/tasks")["tasks"]}
