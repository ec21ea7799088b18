"""The client: which server it asks with which token, and what it says when that goes wrong (R10.4)."""

import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.errors import DexaflowError, UsageError
from dexaflow.cli.address import NoServer, find_address
from dexaflow.cli.client import ApiProblem, Client, airflow, own
from tests.cli.conftest import Served
from tests.cli.program import Program

TOKEN = "s3cret-token-0123456789"
Answer = Callable[[BaseHTTPRequestHandler], None]


class Stand:
    """A server that is not ours: it answers with whatever `answer` does."""

    def __init__(self) -> None:
        self.answer: Answer = lambda handler: reply(handler, 200, {"hooks": []})
        self.requests: list[tuple[str, dict[str, str]]] = []
        stand = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stand.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                stand.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def reply(handler: BaseHTTPRequestHandler, status: int, body: object, kind: str = "application/json") -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("content-type", kind)
    handler.send_header("content-length", str(len(content)))
    handler.send_header("location", "http://127.0.0.1:1/elsewhere")
    handler.end_headers()
    handler.wfile.write(content)


@pytest.fixture
def stand() -> Iterator[Stand]:
    found = Stand()
    found.thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    found.thread.join()


@pytest.fixture
def alone(tmp_path: Path) -> Program:
    """The program where no server runs."""
    return Program(tmp_path / "data", tmp_path)


def at(url: str, token: str | None = TOKEN) -> dict[str, Any]:
    return {"DEXAFLOW_URL": url, "DEXAFLOW_TOKEN": token}


def test_without_a_server_it_says_what_to_do(alone: Program) -> None:
    ended = alone.run("runs", "list", code=2)
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert "`dexaflow lite`" in ended.stderr
    assert "DEXAFLOW_URL" in ended.stderr
    assert str(alone.data) in ended.stderr


def test_a_server_that_is_gone_is_named(alone: Program) -> None:
    alone.data.mkdir()
    (alone.data / "server.json").write_text('{"url": "http://127.0.0.1:1", "pid": 1}')
    (alone.data / "token").write_text(TOKEN)
    ended = alone.run("runs", "list", code=2)
    assert "nothing answers at http://127.0.0.1:1" in ended.stderr
    assert "`dexaflow lite`" in ended.stderr


def test_a_wrong_token_is_refused_and_printed_nowhere(served: Served) -> None:
    """R10.4."""
    ended = served.run("runs", "list", code=2, DEXAFLOW_TOKEN="wrong-token-0123456789")
    assert "does not accept the token of DEXAFLOW_TOKEN" in ended.stderr
    assert "wrong-token" not in ended.stderr + ended.stdout
    assert served.server.token not in ended.stderr + ended.stdout


@pytest.mark.parametrize("token", ["two\nlines", "two words", "\u202e", "esc\x1b[31m"])
def test_a_token_that_no_header_can_carry_is_not_printed(alone: Program, stand: Stand, token: str) -> None:
    ended = alone.run("runs", "list", code=2, **at(stand.url, token))
    assert "the token of DEXAFLOW_TOKEN" in ended.stderr
    assert token not in ended.stderr
    assert stand.requests == []


def test_environment_wins_over_the_folder_and_data_over_both(served: Served, stand: Stand) -> None:
    assert served.json("hooks", "list", **at(stand.url)) == {"hooks": []}
    data = str(served.server.data)
    assert served.json("hooks", "list", "--data", data, **at(stand.url))["hooks"] != []
    assert len(stand.requests) == 1
    named = served.json("hooks", "list", "--data", data, DEXAFLOW_DATA=None)
    assert named == served.json("hooks", "list", DEXAFLOW_URL=served.server.url)


def test_the_folders_token_goes_to_no_other_machine(served: Served) -> None:
    """R10.4: the token of a data folder is its server's."""
    ended = served.run("hooks", "list", code=2, DEXAFLOW_URL="http://dexaflow.invalid:8080")
    assert "DEXAFLOW_TOKEN is not" in ended.stderr


def test_token_and_user_go_along_and_proxies_are_ignored(alone: Program, stand: Stand) -> None:
    proxies: dict[str, Any] = dict.fromkeys(
        ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"), "http://127.0.0.1:1"
    )
    alone.run("hooks", "list", **at(stand.url + "/behind/"), **proxies)
    path, headers = stand.requests[0]
    assert path == "/behind/dexaflow/v1/hooks"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["x-dexaflow-user"]


def _cut_off(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")


def _no_http(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"\x00\x01 SSH-2.0\r\n\r\n")


ANSWERS: dict[str, tuple[Answer, str]] = {
    "a redirect": (lambda h: reply(h, 302, b""), "answers with a redirect"),
    "a page": (lambda h: reply(h, 200, b"<html>", "text/html"), "is not Dexaflow"),
    "no JSON": (lambda h: reply(h, 200, b"{"), "is not Dexaflow"),
    "a proxy's error": (lambda h: reply(h, 502, b"<html>", "text/html"), "status 502 (Bad Gateway)"),
    "a problem": (
        lambda h: reply(h, 503, {"detail": "busy \x1b[31m\nnow"}, "application/problem+json"),
        "busy \\u001b[31m\\u000anow",
    ),
    "no HTTP": (_no_http, "broke off its answer"),
    "half an answer": (_cut_off, "broke off its answer"),
    "nothing": (lambda h: None, "broke off its answer"),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_that_is_not_ours_is_one_line(alone: Program, stand: Stand, kind: str) -> None:
    stand.answer, said = ANSWERS[kind]
    ended = alone.run("hooks", "list", code=2, **at(stand.url))
    assert len(ended.stderr.splitlines()) == 1
    assert said in ended.stderr
    assert TOKEN not in ended.stderr
    assert len(stand.requests) == 1


def test_https_is_checked_against_the_given_authority(alone: Program, stand: Stand, tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    stand.server.socket = context.wrap_socket(stand.server.socket, server_side=True)
    url = f"https://127.0.0.1:{stand.port}"
    assert alone.json("hooks", "list", **at(url), SSL_CERT_FILE=str(tmp_path / "ca.pem")) == {"hooks": []}
    ended = alone.run("hooks", "list", code=2, **at(url))
    assert f"the certificate of {url} is not accepted" in ended.stderr
    assert "SSL_CERT_FILE" in ended.stderr
    assert len(stand.requests) == 1


def test_tls_where_there_is_none_is_said(alone: Program, stand: Stand) -> None:
    ended = alone.run("hooks", "list", code=2, **at(f"https://127.0.0.1:{stand.port}"))
    assert "cannot be asked over TLS" in ended.stderr


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host", "host:8080", "http://", "http://host:99999", "http://host:x", "http://[::1", "http://a b",
        "http://host/?q=1", "http://host/#f", "http://host:0", "http://h\u00f6st", "http://user:hunter2@host",
    ],
)  # fmt: skip
def test_an_address_that_cannot_be_asked_is_refused_without_quoting_it(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        find_address(None, {"DEXAFLOW_URL": url, "DEXAFLOW_TOKEN": TOKEN})
    assert "DEXAFLOW_URL" in str(refused.value)
    assert "hunter2" not in str(refused.value)


@given(url=st.text(), token=st.text())
def test_whatever_the_environment_holds_is_an_address_or_an_error_of_ours(url: str, token: str) -> None:
    try:
        found = find_address(None, {"DEXAFLOW_URL": url, "DEXAFLOW_TOKEN": token, "DEXAFLOW_DATA": "/nowhere"})
    except DexaflowError as error:
        said = str(error)
    else:
        said = repr(found)
        assert found.token == token.strip()
    assert len(token) < 12 or token in url or token not in said


def test_a_list_is_fetched_page_by_page(stand: Stand) -> None:
    """Nothing is cut silently."""

    def page(handler: BaseHTTPRequestHandler) -> None:
        query = dict(part.split("=") for part in handler.path.partition("?")[2].split("&"))
        first = int(query["offset"])
        rows = list(range(first, min(first + int(query["limit"]), 620)))
        reply(handler, 200, {"runs": rows, "total_entries": 620})

    stand.answer = page
    client = Client(lambda: find_address(None, {"DEXAFLOW_URL": stand.url, "DEXAFLOW_TOKEN": TOKEN}))
    assert client.rows(own("runs"), "runs") == {"runs": list(range(620)), "total_entries": 620}
    assert client.rows(own("runs"), "runs", {"state": ["held", "none"]}, 300)["runs"] == list(range(300))
    assert "state=held&state=none" in stand.requests[-1][0]


def test_names_cannot_leave_their_place_in_a_path() -> None:
    assert own("runs", "a b?c#d%2f\u202e") == "/dexaflow/v1/runs/a%20b%3Fc%23d%252f%E2%80%AE"
    for part in ("", ".", "..", "a/b", "a\0b"):
        with pytest.raises(UsageError):
            airflow("pools", part)


def test_a_no_and_what_could_not_be_asked_end_differently() -> None:
    assert [ApiProblem(status, "").code for status in (404, 409, 401, 422, 503)] == [1, 1, 2, 2, 2]
    assert issubclass(NoServer, DexaflowError)


def test_a_reader_that_goes_away_is_no_error(served: Served) -> None:
    with served.program.started("dags", "list") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.wait(60)
        assert "Traceback" not in (errors := process.stderr.read())
        assert "BrokenPipe" not in errors


@pytest.mark.parametrize("name", ["data", "data/below"])
def test_a_data_folder_of_another_user_is_not_taken_for_one_without_a_server(tmp_path: Path, name: str) -> None:
    """An operator under his own name asks about the service's folder, which is 0700."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0)
    ours = os.geteuid()
    try:
        if ours == 0:  # who may look into everything
            os.seteuid(65_534)
        with pytest.raises(UsageError, match=f"the data folder {tmp_path / name} is closed to this user"):
            find_address(None, {"DEXAFLOW_DATA": str(tmp_path / name)})
    finally:
        os.seteuid(ours)
        folder.chmod(0o700)
