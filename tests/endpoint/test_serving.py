"""`dexaflow endpoint serve` as a real process, over real TLS."""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from structlog.testing import capture_logs

from dexaflow.admission.decisions import refuse
from dexaflow.admission.envelope import question, read_answer
from dexaflow.endpoint.files import Reloading, TokenFile, tls_context
from dexaflow.endpoint.serving import _listen
from tests.hooks.building import a_request

HOOKS = """
import asyncio
import time
from pathlib import Path
from dexaflow.admission.decisions import admit, hold, refuse

async def budget(request):
    return refuse(f"{request.tenant_id} is over budget")

def slow(request):
    Path("asked").touch()
    time.sleep(0.5)
    return admit()

def stuck(request):
    Path("asked").touch()
    time.sleep(600)

async def stuck_async(request):
    Path("asked").touch()
    await asyncio.sleep(600)

async def blocks_the_loop(request):
    stuck(request)

async def goes_on(request):
    Path("asked").touch()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

async def leaves_a_thread(request):
    await asyncio.to_thread(stuck, request)

def nothing_to_decide_on():
    return admit()

def forgets_its_reason(request):
    return hold(None)

class Policy:
    def __call__(self, request):
        return admit()

policy = Policy()
number = 7
"""

REQUEST = a_request(uid="u-1")

Start = Callable[..., tuple["subprocess.Popen[str]", str]]

MAIN = "import sys; from dexaflow.cli.endpoint_commands import app; app(prog_name='dexaflow endpoint')"


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", MAIN, "serve", *map(str, arguments)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policies.py").write_text(HOOKS)
    (tmp_path / "broken.py").write_text("raise ValueError('line one\\nline two')\n")
    (tmp_path / "interrupting.py").write_text("raise KeyboardInterrupt\n")
    (tmp_path / "leaving.py").write_text("import sys; sys.exit(3)\n")
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Start an endpoint in `folder`; gives its process and URL."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str | Path) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            command(*arguments, "--port", "0"), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            found = re.search(r"answers at (\S+)", line)
            if found:
                return process, found[1]
        raise AssertionError(process.communicate()[1])

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def ask(url: str, *, trust: ssl.SSLContext | None = None, token: str | None = None) -> tuple[int, bytes]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=30, context=trust)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("POST", parts.path, question(REQUEST), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def asked(url: str, folder: Path) -> http.client.HTTPConnection:
    """Put a question, and return once the hook has it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    connection.request("POST", parts.path, question(REQUEST))
    while not (folder / "asked").exists():
        time.sleep(0.01)
    return connection


def write_certificate(ca: trustme.CA, folder: Path) -> tuple[Path, Path]:
    certificate = ca.issue_cert("localhost", "127.0.0.1")
    chain, key = folder / "tls.crt", folder / "tls.key"
    chain.write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
    key.write_bytes(certificate.private_key_pem.bytes())
    return chain, key


def trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


def test_a_hook_of_the_current_directory_answers_over_tls_with_a_token(start: Start, folder: Path) -> None:
    ca = trustme.CA()
    chain, key = write_certificate(ca, folder)
    (folder / "token").write_text("s3cret\n")

    _, url = start("policies:budget", "--tls-cert", chain, "--tls-key", key, "--token-file", folder / "token")
    assert url.startswith("https://127.0.0.1:")
    assert url.endswith("/admit")

    status, body = ask(url, trust=trusting(ca), token="s3cret")
    assert status == 200
    assert read_answer(body, "u-1") == refuse("acme is over budget")
    assert ask(url, trust=trusting(ca))[0] == 401


def test_certificate_and_token_are_read_again_when_they_change(start: Start, folder: Path) -> None:
    """Rotation needs no restart; a token that cannot be used leaves the last good one."""
    old, new = trustme.CA(), trustme.CA()
    chain, key = write_certificate(old, folder)
    token = folder / "token"
    token.write_text("one")
    _, url = start("policies:policy", "--tls-cert", chain, "--tls-key", key, "--token-file", token)
    assert ask(url, trust=trusting(old), token="one")[0] == 200

    write_certificate(new, folder)
    (folder / "next").write_text("two")
    (folder / "next").replace(token)

    def changed() -> bool:
        try:
            return ask(url, trust=trusting(new), token="two")[0] == 200
        except ssl.SSLCertVerificationError:
            return False

    deadline = time.monotonic() + 30
    while not changed():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_sigterm_answers_what_is_asked_and_ends_with_0(start: Start, folder: Path) -> None:
    process, url = start("policies:slow")
    connection = asked(url, folder)

    process.send_signal(signal.SIGTERM)

    response = connection.getresponse()
    assert response.status == 200
    read_answer(response.read(), "u-1")
    connection.close()
    assert process.wait(30) == 0


def events_of(process: "subprocess.Popen[str]") -> list[str]:
    """Return the events that a process has logged, which has said nothing else."""
    assert process.stderr is not None
    return [json.loads(line)["event"] for line in process.stderr.read().splitlines()]


@pytest.mark.parametrize("hook", ["stuck", "stuck_async"])
@pytest.mark.parametrize("signals", [1, 2], ids=["one signal", "two signals"])
def test_questions_that_take_too_long_at_the_stop_get_503(start: Start, folder: Path, hook: str, signals: int) -> None:
    """In the endpoint's own time, and without a word of the server below."""
    process, url = start(f"policies:{hook}")
    connection = asked(url, folder)

    for _ in range(signals):
        process.send_signal(signal.SIGTERM)

    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["detail"]) == (503, "the endpoint is stopping")
    connection.close()
    assert process.wait(30) == 0
    assert events_of(process) == ["questions_given_up"]


def test_a_question_that_is_still_on_its_way_does_not_hold_up_the_stop(start: Start) -> None:
    process, url = start("policies:policy")
    with socket.create_connection((str(urlsplit(url).hostname), int(urlsplit(url).port or 0))) as client:
        client.sendall(b"POST /admit HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100 ")

        process.send_signal(signal.SIGTERM)

        assert client.recv(100).startswith(b"HTTP/1.1 503 ")
        assert process.wait(30) == 0
    assert events_of(process) == ["questions_given_up"]


@pytest.mark.parametrize("hook", ["blocks_the_loop", "goes_on", "leaves_a_thread"])
def test_no_hook_can_hold_up_the_stop(start: Start, folder: Path, hook: str) -> None:
    process, url = start(f"policies:{hook}")
    connection = asked(url, folder)

    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 0
    assert events_of(process)[-1] == "stop_held_up"
    connection.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["policies"], "package.module:name"),
        (["policies:"], "package.module:name"),
        (["os.path;x:y"], "package.module:name"),
        (["nowhere:hook"], "there is no module nowhere"),
        (["policies.py:policy"], "a module has no .py: write policies:policy"),
        (["policies:nothing"], "has no 'nothing'"),
        (["policies:number"], "is not a hook"),
        (["policies:Policy"], "is a class"),
        (["broken:hook"], "cannot be imported: ValueError: line one"),
        (["broken:hook"], "/broken.py:1); mend the module"),
        (["leaving:hook"], "cannot be imported: SystemExit"),
        (["interrupting:hook"], "cannot be imported: KeyboardInterrupt"),
        (["policies:nothing_to_decide_on"], "takes no argument; have it take one argument, the request"),
        (["policies:policy", "--host", "0.0.0.0"], "--tls-cert"),
        (["policies:policy", "--tls-cert", "tls.crt"], "both"),
        (["policies:policy", "--tls-cert", "no.crt", "--tls-key", "no.key"], "cannot be read"),
        (["policies:policy", "--tls-cert", "policies.py", "--tls-key", "policies.py"], "cannot be used"),
        (["policies:policy", "--tls-cert", "rsa.crt", "--tls-key", "rsa2.key"], "--tls-key rsa2.key is not the key of"),
        (["policies:policy", "--tls-cert", "rsa.crt", "--tls-key", "ec.key"], "--tls-key ec.key is not the key of"),
        (["policies:policy", "--token-file", "none"], "--token-file cannot be read: No such file"),
        (["policies:policy", "--token-file", "."], "--token-file . cannot be read: Is a directory"),
        (["policies:policy", "--token-file", "empty"], "--token-file empty: the token is empty"),
        (["policies:policy", "--token-file", "two-lines"], "header"),
        (["policies:policy", "--timeout", "5"], "--timeout: '5' has no unit"),
        (["policies:policy", "--timeout", "31s"], "--timeout 31s is out of range; give 10ms to 30s"),
        (["policies:policy", "--path", "admit"], "slash"),
        (["policies:policy", "--path", "/healthz"], "--path: /healthz says whether the process lives; choose another"),
        (["policies:policy", "--path", "/admit?key=1"], "'/admit?key=1' holds what no path may"),
        (["policies:policy", "--path", "/a%64mit"], "holds what no path may"),
        (["policies:policy", "--path", "/a\n\x1b[31m"], "holds what no path may"),
        (["policies:policy", "--path", "/a/../admit"], "clients take its dots out"),
        (["policies:policy", "--host", "256.1.1.1", "--tls-cert", "x", "--tls-key", "y"], "cannot be read"),
    ],
)
def test_what_cannot_be_served_is_one_clear_line(folder: Path, arguments: list[str], said: str) -> None:
    (folder / "empty").write_text("\n")
    (folder / "two-lines").write_text("sec\nret\n")
    for name, kind in (("rsa", trustme.KeyType.RSA), ("rsa2", trustme.KeyType.RSA), ("ec", trustme.KeyType.ECDSA)):
        issued = trustme.CA().issue_cert("localhost", key_type=kind)
        issued.cert_chain_pems[0].write_to_path(folder / f"{name}.crt")
        issued.private_key_pem.write_to_path(folder / f"{name}.key")

    ended = subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, timeout=60)

    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert said in ended.stderr
    assert "ret" not in ended.stderr.replace("retry", "") or "two-lines" not in arguments


@pytest.mark.parametrize("option", ["--token-file", "--tls-cert", "--tls-key"])
@pytest.mark.parametrize("written", ["s3cret-token", "-----BEGIN PRIVATE KEY----- s3cret/" + 300 * "x"])
def test_a_secret_in_the_place_of_its_file_is_not_quoted(folder: Path, option: str, written: str) -> None:
    """People mix up the two; whoever reads the log of a start need not know it (R2.3)."""
    trustme.CA().cert_pem.write_to_path(folder / "tls.crt")
    of_tls = {"--tls-cert": "tls.crt", "--tls-key": "tls.crt"} if option.startswith("--tls") else {}
    arguments = [f"{name}={value}" for name, value in (of_tls | {option: written}).items()]

    ended = subprocess.run(
        command("policies:policy", *arguments), cwd=folder, capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 2
    assert ended.stderr.startswith(f"dexaflow: {option} cannot be read: ")
    assert "s3cret" not in ended.stderr


def test_an_address_that_is_taken_is_one_clear_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            command("policies:policy", "--port", str(port)), cwd=folder, capture_output=True, text=True, timeout=60
        )

    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        f"dexaflow: cannot listen on 127.0.0.1 port {port}: {os.strerror(98)}; choose another --port"
    ]


def test_an_answer_is_json_all_the_way(start: Start) -> None:
    _, url = start("policies:policy")

    status, body = ask(url)

    assert status == 200
    assert json.loads(body)["response"] == {"uid": "u-1", "decision": "admit"}


def test_a_hook_is_given_up_after_the_timeout_and_the_log_says_so(start: Start) -> None:
    """The question does not say how long its asker waits; whoever runs the endpoint does."""
    process, url = start("policies:stuck", "--timeout", "100ms")

    assert ask(url)[0] == 503

    process.terminate()
    assert process.stderr is not None
    assert "it did not return within 0.1s" in process.stderr.read()


def test_an_answer_does_not_wait_for_its_head_to_be_acknowledged() -> None:
    """It is sent in two parts; the second would be held back for 40 ms, each time."""
    with _listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_log_names_the_line_of_the_hook_that_failed_and_never_one_of_ours(start: Start, folder: Path) -> None:
    process, url = start("policies:forgets_its_reason")

    assert ask(url)[0] == 500

    process.terminate()
    assert process.wait(30) == 0
    assert process.stderr is not None
    (line,) = process.stderr.read().splitlines()
    number = HOOKS.split("\n").index("    return hold(None)") + 1
    said = json.loads(line)
    assert (said["event"], said["cause"]) == (
        "hook_failed", f"it raised TypeError: reason must be text, not None ({folder}/policies.py:{number})",
    )  # fmt: skip
    assert said["exception"].count("Traceback") == 1


def test_a_token_file_that_is_gone_is_said_once_and_the_last_good_token_stays(tmp_path: Path) -> None:
    """It is looked for every second."""
    path = tmp_path / "token"
    path.write_text("first\n")
    token = TokenFile(path)
    with capture_logs() as lines:
        for _ in range(2):
            path.unlink()
            for _ in range(10):
                token.refresh()
            assert token() == "first"
            path.write_text("first\n")
            token.refresh()
    assert [line["event"] for line in lines] == ["token_not_reloaded"] * 2


def test_a_certificate_that_is_gone_is_said_once_and_the_last_good_one_stays(tmp_path: Path) -> None:
    """It would be found out when it expires, at the other end."""
    chain, key = write_certificate(trustme.CA(), tmp_path)
    context = tls_context(chain, key)
    reloading = Reloading(context, chain, key, None)
    with capture_logs() as lines:
        for gone in (chain, key):
            content = gone.read_bytes()
            gone.unlink()
            for _ in range(10):
                reloading.refresh_certificate()
            gone.write_bytes(content)
            reloading.refresh_certificate()
    assert [line["event"] for line in lines] == ["certificate_not_reloaded", "certificate_reloaded"] * 2
    assert lines[0]["cause"] == f"{chain}: {os.strerror(2)}"
