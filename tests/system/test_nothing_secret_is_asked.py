"""The request never carries environment, source, run conf, results of other tasks, secrets or a token (R3.4)."""

import base64
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from tests.system.lite import Lite

MARK = "mArK3r"


class Recorder:
    """A raw TLS endpoint that keeps every byte it is sent, and admits."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        try:
            with self._context.wrap_socket(raw, server_side=True) as peer:
                held = b""
                while piece := peer.recv(65536):
                    self.received += piece
                    held += piece
                    head, _, body = held.partition(b"\r\n\r\n")
                    length = re.search(rb"(?i)content-length: *(\d+)", head)
                    if length is None or len(body) < int(length.group(1)):
                        continue
                    uid = json.loads(body)["request"]["uid"]
                    answer = json.dumps(
                        {
                            "api_version": "dexaflow.io/admission/v1",
                            "kind": "AdmissionReview",
                            "response": {"uid": uid, "decision": "admit"},
                        }
                    ).encode()
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
                    held = b""
        except OSError:
            return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with closing(Recorder(tmp_path)) as made:
        yield made


def test_what_is_planted_everywhere_else_is_in_no_byte_of_the_question(server: Lite, recorder: Recorder) -> None:
    server.config = {
        "execution": {
            "admission": {
                "webhook": {
                    "url": f"https://localhost:{recorder.port}/admit",
                    "ca_file": str(server.root / "ca.pem"),
                },
                "timeout": "5s",
            }
        }
    }
    server.environ = {"SERVER_SECRET": f"{MARK}-server-environment"}
    server.write_dag(
        "marked",
        f"""
        # {MARK}-comment
        from dexaflow import DAG, bash, get_context, task

        with DAG("marked", description="{MARK}-description", default_args={{"env": {{"PLANTED": "{MARK}-env"}}}}):
            @task
            def first():
                return "{MARK}-result"

            @task
            def second(value):
                secret = "{MARK}-source"
                assert value == "{MARK}-result" and get_context().conf == {{"planted": "{MARK}-conf"}}
                return secret

            bash("third", "echo {MARK}-command $VALUE", env={{"VALUE": second(first())}})
        """,
    )
    server.start()
    run_id = server.trigger("marked", {"planted": f"{MARK}-conf"})
    assert server.ended(run_id) == "success"
    assert f"{MARK}-command {MARK}-source" in server.task_log(run_id, "third")

    sent = bytes(recorder.received)
    assert sent.count(b"POST /admit") == 3
    for form in (MARK.encode(), base64.b64encode(MARK.encode())[:6], MARK.encode().hex().encode()):
        assert form not in sent
    assert server.token.encode() not in sent
    assert b"eyJ" not in sent  # how every JWT begins
    assert (server.data / "signing.key").read_bytes()[40:80] not in sent
