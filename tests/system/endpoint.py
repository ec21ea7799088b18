"""A policy endpoint as users run it: `dexaflow endpoint serve` with TLS and a token, in a process of its own."""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme

from tests.system.lite import DEADLINE

__all__ = ["Endpoint", "endpoint"]

# Answers as a file says, read anew for each question, and writes down every question it gets and what it will answer.
POLICY = """
import json, os, time
from pathlib import Path
from dexaflow.admission import Request, admit, hold, refuse

HERE = Path(os.environ["POLICY_FOLDER"])
SEEN = {}

def hook(request: Request):
    rules = json.loads((HERE / "rules.json").read_text())
    rule = rules.get(request.task_id) or rules.get(request.dag_id) or rules.get("*") or {"decision": "admit"}
    attempt = {"tenant_id": request.tenant_id, "dag_id": request.dag_id, "run_id": request.run_id,
               "task_id": request.task_id, "try_number": request.try_number}
    before = SEEN[tuple(attempt.values())] = SEEN.get(tuple(attempt.values()), 0) + 1
    if before > rule.get("times", before):
        rule = {"decision": "admit"}
    with (HERE / "asked.jsonl").open("a") as file:
        file.write(json.dumps({"uid": request.uid, "decision": rule["decision"], **attempt}) + "\\n")
    time.sleep(rule.get("takes", 0))
    if rule["decision"] == "hold":
        return hold(rule.get("reason", ""))
    if rule["decision"] == "refuse":
        return refuse(rule.get("reason", ""))
    return admit(**rule.get("changes", {}))
"""


class Endpoint:
    """One address; the server behind it can be killed and started again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        authority.cert_pem.write_to_path(str(root / "ca.pem"))
        certificate.private_key_and_cert_chain_pem.write_to_path(str(root / "server.pem"))
        (root / "token").write_text("policy-secret\n")
        (root / "policy_under_test.py").write_text(POLICY)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.process: subprocess.Popen[bytes] | None = None
        self.rules({})

    def rules(self, rules: dict[str, Any]) -> None:
        """Say what is answered from now on, by task, DAG or `*`; with `times` only so often to one try, then admit."""
        beside = self.root / "rules.tmp"
        beside.write_text(json.dumps(rules))
        beside.rename(self.root / "rules.json")

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Every question so far."""
        try:
            lines = (self.root / "asked.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the server configuration that asks this endpoint."""
        webhook = {
            "url": f"https://localhost:{self.port}/admit",
            "ca_file": str(self.root / "ca.pem"),
            "token_file": str(self.root / "token"),
        }
        admission = {"webhook": webhook, "timeout": "5s", "recheck": "1s"} | more
        return {"execution": {"admission": admission}}

    def start(self) -> None:
        """Start it and wait until it answers."""
        environ = os.environ | {"POLICY_FOLDER": str(self.root)}
        with (self.root / "endpoint.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "dexaflow.cli.main", "endpoint", "serve", "policy_under_test:hook",
                    "--host", "127.0.0.1", "--port", str(self.port), "--tls-cert", str(self.root / "server.pem"),
                    "--tls-key", str(self.root / "server.pem"), "--token-file", str(self.root / "token"),
                    "--path", "/admit",
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environ, cwd=self.root,
            )  # fmt: skip
        context = ssl.create_default_context(cafile=str(self.root / "ca.pem"))
        deadline = time.monotonic() + DEADLINE
        while True:
            assert self.process.poll() is None, (self.root / "endpoint.log").read_text()
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as raw:
                    context.wrap_socket(raw, server_hostname="localhost").close()
                    return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextmanager
def endpoint(root: Path) -> Iterator[Endpoint]:
    """Give an endpoint that is up."""
    made = Endpoint(root)
    made.start()
    try:
        yield made
    finally:
        made.kill()
