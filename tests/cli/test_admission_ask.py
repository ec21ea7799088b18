"""`dexaflow admission ask`: one sample question, the whole exchange, secrets left out."""

import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import pytest
import trustme

from dexaflow.admission.decisions import Decision, Request, admit, hold
from dexaflow.admission.envelope import answer, question, read_question
from dexaflow.model.execution import Execution, Resources

MAIN = "import sys; from dexaflow.cli.admission_commands import app; app(prog_name='dexaflow admission')"
TOKEN = "s3cret-token-0123456789"


class Endpoint:
    """An HTTPS endpoint that is not ours; `reply` makes the body of each answer, `status` goes with it."""

    def __init__(self, folder: Path) -> None:
        ca = trustme.CA()
        ca.cert_pem.write_to_path(folder / "ca.crt")
        endpoint = self
        self.status = 200
        self.headers: list[dict[str, str]] = []
        self.decision: Decision = admit()
        self.raw: bytes | None = None
        self.hangs_up = False  # once it has the question

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
                if endpoint.hangs_up:
                    self.close_connection = True
                    return
                content = endpoint.raw
                if content is None:
                    content = answer(read_question(body).uid, endpoint.decision)
                self.send_response(endpoint.status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert("127.0.0.1").configure_cert(context)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    """Serve an endpoint, and write a configuration that names it."""
    endpoint = Endpoint(tmp_path)
    thread = threading.Thread(target=endpoint.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    (tmp_path / "token").write_text(TOKEN + "\n")
    configure(tmp_path, endpoint.port)
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()
    thread.join()


def configure(folder: Path, port: int, query: str = "", more: str = "", host: str = "127.0.0.1") -> None:
    (folder / "dexaflow.yaml").write_text(
        f"""
execution:
  admission:
    timeout: 5s
    webhook:
      url: https://{host}:{port}/admit{query}
      ca_file: ca.crt
      token_file: token
{more}
"""
    )


def ask(folder: Path, *arguments: str, stdin: IO[str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", MAIN, "ask", "--config", "dexaflow.yaml", *arguments],
        cwd=folder,
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def ask_json(folder: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    ended = ask(folder, "--output", "json", *arguments)
    assert ended.stderr == ""
    result: list[dict[str, Any]] = json.loads(ended.stdout)
    return ended.returncode, result


def test_the_exchange_is_shown_and_the_token_is_not(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.decision = admit(node_selector={"tenant": "acme"})

    ended = ask(tmp_path)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert endpoint.headers[0]["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in ended.stdout
    for line in ("> POST /admit HTTP/1.1", "> Authorization: Bearer (hidden)", "< status 200"):
        assert line in ended.stdout.splitlines()
    assert '"dag_id":"sample_dag"' in ended.stdout
    assert "tenant=acme" in ended.stdout


def test_the_head_that_is_shown_is_the_head_that_was_sent(endpoint: Endpoint, tmp_path: Path) -> None:
    _, (exchange,) = ask_json(tmp_path)

    shown = dict(line.split(": ", 1) for line in exchange["http"]["head"][1:])
    sent = endpoint.headers[0]
    assert {name.lower(): value for name, value in shown.items()} == {**sent, "authorization": "Bearer (hidden)"}


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_secret_that_the_endpoint_echoes_is_hidden(endpoint: Endpoint, tmp_path: Path, output: str) -> None:
    """Also the query of the URL, which may be a key."""
    configure(tmp_path, endpoint.port, query="?key=s3cret-query")
    endpoint.raw = f"<html>Bearer {TOKEN} at /admit?key=s3cret-query</html>".encode()

    ended = ask(tmp_path, "--output", output)

    assert ended.returncode == 1
    assert TOKEN not in ended.stdout + ended.stderr
    assert "s3cret-query" not in ended.stdout + ended.stderr
    assert "<html>Bearer (hidden)" in ended.stdout


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    "raw", ['{"token": "s3cret\\/token+0123456789=="}', '{"Bearer s3cret/token+0123456789==' + 80 * "x" + '": 1}']
)
def test_an_echoed_secret_is_hidden_as_json_spells_it_and_where_a_message_cuts_it_off(
    endpoint: Endpoint, tmp_path: Path, output: str, raw: str
) -> None:
    (tmp_path / "token").write_text("s3cret/token+0123456789==" + ("x" * 80 if "xxx" in raw else ""))
    endpoint.raw = raw.encode()

    ended = ask(tmp_path, "--output", output)

    assert ended.returncode == 1
    assert "s3cret" not in ended.stdout + ended.stderr
    assert "(hidden)" in ended.stdout


def test_an_echoed_secret_is_hidden_in_a_reason_too(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.decision = hold(f"who is {TOKEN}?")

    _, (exchange,) = ask_json(tmp_path)

    assert exchange["reason"] == "who is (hidden)?"
    assert TOKEN not in str(exchange)


def test_a_hold_without_a_reason_is_shown_so(endpoint: Endpoint, tmp_path: Path) -> None:
    """R4.3."""
    endpoint.decision = hold("")
    told = [line.split(None, 1) for line in ask(tmp_path).stdout.splitlines() if line]
    assert ["verdict", "hold"] in told
    assert ["reason", "no reason given"] in told


def test_a_hold_is_a_decision(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.decision = hold("frozen\x1b[31m until 06:00")

    code, (exchange,) = ask_json(tmp_path)

    assert code == 0
    assert (exchange["verdict"], exchange["reason"]) == ("hold", "frozen[31m until 06:00")
    assert exchange["http"]["status"] == 200
    assert exchange["seconds"] > 0


@pytest.mark.parametrize(
    ("status", "raw", "said"),
    [
        (503, b"busy", "status 503"),
        (302, b"", "status 302, not 200; redirects are not followed"),
        (401, b"", "status 401, not 200; does it take the token of execution.admission.webhook.token_file?"),
        (404, b"", "status 404, not 200; is the path of execution.admission.webhook.url"),
        (200, b"<html>", "cannot be read"),
        (200, b"\xff\x00\x1b[31m", "cannot be read"),
        (200, b"x" * 70_000, "65536"),
    ],
)
def test_a_broken_endpoint_ends_with_1_and_says_why(
    endpoint: Endpoint, tmp_path: Path, status: int, raw: bytes, said: str
) -> None:
    endpoint.status, endpoint.raw = status, raw

    code, (exchange,) = ask_json(tmp_path)

    assert (code, exchange["verdict"]) == (1, "broken")
    assert said in exchange["problem"]
    printed = ask(tmp_path).stdout
    assert "\x1b" not in printed
    assert ("< (no body came along with it" in printed) == (raw == b"")


def test_an_endpoint_that_is_gone_ends_with_1_and_says_why(tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text(TOKEN)
    configure(tmp_path, 1)

    code, (exchange,) = ask_json(tmp_path)

    assert (code, exchange["verdict"], exchange["http"]["status"]) == (1, "broken", None)
    assert "127.0.0.1:1" in exchange["problem"]
    assert "< (no answer)" in ask(tmp_path).stdout


def test_what_was_never_sent_is_not_shown_as_sent(endpoint: Endpoint, tmp_path: Path) -> None:
    """There was no connection: nobody there, no such name, a certificate that is not trusted."""
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")  # not the endpoint's
    for host, port, said in (
        ("127.0.0.1", 1, "connect"),
        ("nowhere.invalid", 443, "nowhere.invalid"),
        ("127.0.0.1", endpoint.port, "certificate"),
    ):
        configure(tmp_path, port, host=host)

        code, (exchange,) = ask_json(tmp_path)

        assert code == 1
        assert said in exchange["problem"].lower()
        http = exchange["http"]
        assert (http["head"], http["question"], http["status"], http["answer"]) == ([], "", None, "")
        lines = ask(tmp_path).stdout.splitlines()
        assert [line for line in lines if line.startswith((">", "<"))] == ["> (nothing was sent)", "< (no answer)"]
    assert endpoint.headers == []


def test_what_was_sent_is_shown_also_when_no_answer_came(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.hangs_up = True

    code, (exchange,) = ask_json(tmp_path)

    assert (code, exchange["http"]["status"]) == (1, None)
    assert exchange["http"]["head"][0] == "POST /admit HTTP/1.1"
    assert exchange["http"]["question"]
    assert len(endpoint.headers) == 1


def test_a_change_that_may_not_be_made_is_told(endpoint: Endpoint, tmp_path: Path) -> None:
    """A webhook may change the service account only when the list is set."""
    endpoint.decision = admit(service_account="loader")

    code, (exchange,) = ask_json(tmp_path)

    assert (code, exchange["verdict"]) == (0, "change_refused")
    assert "service_account" in exchange["problem"]


def test_a_question_of_ones_own_can_be_put(endpoint: Endpoint, tmp_path: Path) -> None:
    request = Request("u-7", "globex", "d", "r", "t", 3, "bash", "", False, Resources(), Execution(), False)
    (tmp_path / "question.json").write_bytes(question(request))

    _, (exchange,) = ask_json(tmp_path, "--request", "question.json")

    assert exchange["uid"] == "u-7"
    assert json.loads(exchange["http"]["question"])["request"]["tenant_id"] == "globex"
    with open(tmp_path / "question.json") as standard_input:
        assert "u-7" in ask(tmp_path, "--request", "-", stdin=standard_input).stdout


def test_the_sample_says_nothing_that_no_question_says(tmp_path: Path) -> None:
    """A Python task without an image runs from its DAG's source."""
    (tmp_path / "policy.py").write_text(
        "from dexaflow.admission import hold\n"
        "def policy(request):\n"
        "    return hold(f'{request.operator} {request.image!r} {request.source_mode}')\n"
    )
    hooks = "execution:\n  admission: {hooks: ['policy:policy']}\n"
    for more, said in (("", "python '' True"), ("  defaults: {image: 'x:1'}\n", "python 'x:1' False")):
        (tmp_path / "dexaflow.yaml").write_text(hooks + more)
        assert said in ask(tmp_path).stdout


def test_hooks_in_process_are_asked_first_and_later_ones_see_their_changes(endpoint: Endpoint, tmp_path: Path) -> None:
    """R8.2."""
    (tmp_path / "policies.py").write_text(
        "from dexaflow.admission.decisions import admit, hold\n"
        "def label(request):\n"
        "    return admit(labels={'team': 'data'})\n"
        "async def freeze(request):\n"
        "    return hold('frozen')\n"
    )
    configure(tmp_path, endpoint.port, more="    hooks: ['policies:label']")

    code, exchanges = ask_json(tmp_path)

    assert code == 0
    assert [exchange["hook"] for exchange in exchanges] == ["policies:label", "webhook"]
    assert exchanges[0]["http"] is None
    execution = json.loads(exchanges[1]["http"]["question"])["request"]["execution"]
    assert execution["labels"] == {"team": "data"}
    assert exchanges[0]["uid"] != exchanges[1]["uid"]

    configure(tmp_path, endpoint.port, more="    hooks: ['policies:freeze']")
    code, exchanges = ask_json(tmp_path)
    assert [(exchange["hook"], exchange["verdict"]) for exchange in exchanges] == [("policies:freeze", "hold")]


def test_a_hook_in_process_that_raises_ends_with_1(tmp_path: Path) -> None:
    (tmp_path / "policies.py").write_text("def broken(request):\n    raise SystemExit(3)\n")
    (tmp_path / "dexaflow.yaml").write_text("execution: {admission: {hooks: ['policies:broken']}}")

    code, (exchange,) = ask_json(tmp_path)

    assert (code, exchange["verdict"]) == (1, "broken")
    assert "SystemExit" in exchange["problem"]


@pytest.mark.parametrize(
    ("config", "arguments", "said"),
    [
        ("{}", [], "has no hook to ask"),
        ("execution: {admission: {timeout: 5}}", [], "has no unit"),
        ("execution: {admission: {hooks: ['nowhere:hook']}}", [], "nowhere"),
        ("execution: {admission: {hooks: ['os:path']}}", [], "not a hook"),
        ("execution: {admission: {hooks: ['os:fspath']}}", ["--request", "none.json"], "cannot be read"),
        ("execution: {admission: {hooks: ['os:fspath']}}", ["--request", "dexaflow.yaml"], "question"),
    ],
)
def test_what_cannot_be_asked_is_one_line_and_exit_code_2(
    tmp_path: Path, config: str, arguments: list[str], said: str
) -> None:
    (tmp_path / "dexaflow.yaml").write_text(config)

    ended = ask(tmp_path, *arguments)

    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert said in ended.stderr
