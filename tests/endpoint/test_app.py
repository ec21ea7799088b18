"""The same hook function behind a URL."""

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from structlog.testing import capture_logs

from dexaflow.admission.decisions import Admit, Changes, Decision, Request, admit, hold, refuse, well_formed
from dexaflow.admission.envelope import question, read_answer
from dexaflow.endpoint import Hook, app, asgi_app
from dexaflow.endpoint.app import App
from tests.hooks.building import a_request

Serve = Callable[[App], contextlib.AbstractAsyncContextManager[str]]


REQUEST = a_request()


def plain(request: Request) -> Decision:
    return admit(node_selector={"tenant": request.tenant_id}, labels={"cost-center": "4711"})


async def coroutine(request: Request) -> Decision:
    await asyncio.sleep(0)
    return hold(f"{request.tenant_id} waits")


class WithCall:
    async def __call__(self, request: Request) -> Decision:
        return refuse("no budget")


class Reviewing:
    def review(self, request: Request) -> Decision:
        return refuse("no budget")


def hands_out_a_coroutine(request: Request) -> Awaitable[Decision]:
    return coroutine(request)


@pytest.mark.parametrize(
    ("hook", "decision"),
    [
        (plain, admit(node_selector={"tenant": "acme"}, labels={"cost-center": "4711"})),
        (coroutine, hold("acme waits")),
        (WithCall(), refuse("no budget")),
        (Reviewing(), refuse("no budget")),
        (hands_out_a_coroutine, hold("acme waits")),
    ],
)
async def test_a_hook_answers_behind_a_url_as_it_does_in_process(serve: Serve, hook: Hook, decision: Decision) -> None:
    """Plain and async functions and objects; the answer echoes the uid."""
    async with serve(asgi_app(hook)) as url, httpx.AsyncClient() as client:
        response = await client.post(f"{url}/admit", content=question(REQUEST))

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert read_answer(response.content, REQUEST.uid) == decision


async def test_the_hook_gets_the_question_with_a_deadline(serve: Serve) -> None:
    """The deadline is not on the wire: it is this side's own (R8.1)."""
    seen: list[Request] = []

    def hook(request: Request) -> Decision:
        seen.append(request)
        return admit()

    before = time.monotonic()
    async with serve(asgi_app(hook, timeout=20.0)) as url, httpx.AsyncClient() as client:
        await client.post(f"{url}/admit", content=question(REQUEST))

    assert replace(seen[0], deadline=0.0) == REQUEST
    assert before + 20 <= seen[0].deadline <= time.monotonic() + 20


async def raises(request: Request) -> Decision:
    raise RuntimeError("secret cause")


def exits(request: Request) -> Decision:
    raise SystemExit(3)


async def exits_async(request: Request) -> Decision:
    raise SystemExit(3)


async def cancels_itself(request: Request) -> Decision:
    raise asyncio.CancelledError


def stops(request: Request) -> Decision:
    raise StopIteration


def returns_nothing(request: Request) -> None:
    return None


def returns_text(request: Request) -> str:
    return "admit"


def too_much(request: Request) -> Decision:
    return admit(annotations={f"k{n}": "x" * 1000 for n in range(100)})


def wrong_inside(request: Request) -> Decision:
    return Admit(Changes(labels={"a": 1}))  # type: ignore[dict-item]


def own_timeout(request: Request) -> Decision:
    raise TimeoutError


@pytest.mark.parametrize(
    "hook",
    [
        raises,
        exits,
        exits_async,
        cancels_itself,
        stops,
        returns_nothing,
        returns_text,
        too_much,
        wrong_inside,
        own_timeout,
    ],
)
async def test_a_hook_that_gives_no_decision_is_an_http_error_that_names_the_question(serve: Serve, hook: Hook) -> None:
    """Never a decision, nothing of the exception on the wire; and the endpoint lives on."""
    async with serve(asgi_app(hook)) as url, httpx.AsyncClient() as client:
        for _ in range(2):
            response = await client.post(f"{url}/admit", content=question(REQUEST))

            assert response.status_code == 500
            assert response.headers["content-type"] == "application/problem+json"
            problem = response.json()
            assert problem["uid"] == REQUEST.uid
            assert problem["status"] == 500
            assert "secret" not in response.text
        assert (await client.get(f"{url}/healthz")).status_code == 200


async def test_what_is_no_decision_is_said_as_it_is_in_process(serve: Serve) -> None:
    with capture_logs() as logs:
        wrong: Any = returns_nothing  # what the types would tell its author
        async with serve(asgi_app(wrong)) as url, httpx.AsyncClient() as client:
            await client.post(f"{url}/admit", content=question(REQUEST))

    with pytest.raises(TypeError) as in_process:
        well_formed(None)
    assert [(line["event"], line["cause"]) for line in logs] == [("hook_failed", str(in_process.value))]
    assert "ends without `return`" in str(in_process.value)


KEEPS_A_SECRET = """
import asyncio
from dexaflow.admission.decisions import Admit, Changes
from dexaflow.endpoint import asgi_app

def remembers(request):
    password = "hunter" + "2"
    raise KeyError(request.tenant_id)

def hand_made(request):
    password = "hunter" + "2"
    return Admit(Changes(labels={"a": 1}))

async def main():
    for hook in (remembers, hand_made):
        app = asgi_app(hook, token="s3cret" + "-token")
        headers = [(b"authorization", b"Bearer s3cret" + b"-token")]
        scope = {"type": "http", "method": "POST", "path": "/admit", "headers": headers}
        async def receive():
            return {"type": "http.request", "body": QUESTION}
        async def send(message):
            pass
        await app(scope, receive, send)
        app.calls = None  # a fault of ours
        await app(scope, receive, send)

asyncio.run(main())
"""


def test_in_a_program_that_has_set_up_no_log_no_value_gets_into_it() -> None:
    """structlog's own way is to print what every variable holds: the token, what the hook knows."""
    program = KEEPS_A_SECRET.replace("QUESTION", repr(question(REQUEST)))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    said = ended.stdout + ended.stderr
    for event in ("hook_failed", "answer_unwritable", "endpoint_failed"):
        assert event in said
    assert "KeyError" in said
    assert "hunter2" not in said
    assert "s3cret-token" not in said


async def test_the_log_has_what_a_hook_raised_without_the_user_info_of_a_url(serve: Serve) -> None:
    """Clients of databases say with which one they failed."""

    def asks_a_database(request: Request) -> Decision:
        raise OSError("no postgres://jo:s3cret@db/budgets")

    with capture_logs() as logs:
        async with serve(asgi_app(asks_a_database)) as url, httpx.AsyncClient() as client:
            await client.post(f"{url}/admit", content=question(REQUEST))

    (line,) = logs
    assert "OSError: no postgres://...@db/budgets" in line["cause"]
    assert "OSError: no postgres://...@db/budgets" in line["exception"]
    assert "s3cret" not in str(line)


async def test_the_log_says_which_questions_met_no_hook_and_not_each_time(serve: Serve) -> None:
    """A token that was changed on one side alone is found out on the other too; whoever knocks can fill no disk."""
    with capture_logs() as logs:
        async with serve(asgi_app(plain, token="one")) as url, httpx.AsyncClient() as client:
            headers = {"Authorization": "Bearer another"}
            for _ in range(50):
                await client.post(f"{url}/admit", content=question(REQUEST), headers=headers)
            await client.post(f"{url}/review", content=question(REQUEST), headers=headers)
            await client.post(f"{url}/admit", content=b"{", headers={"Authorization": "Bearer one"})
            for path in ("/healthz", "/", "/admit"):
                await client.get(f"{url}{path}")

    assert [(line["event"], line["log_level"], line["status"]) for line in logs] == [
        ("question_turned_away", "warning", 401),
        ("question_turned_away", "warning", 404),
        ("question_turned_away", "warning", 400),
    ]


@pytest.mark.parametrize("waits", [True, False])
async def test_the_log_says_when_nobody_waits_for_the_answer_any_more(
    serve: Serve, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook slower than the control plane's timeout would seem to work, seen from its own side."""
    monkeypatch.setattr(app, "LOOKED_AFTER_SECONDS", -1.0)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Decision:
        asked.set()
        await go_on.wait()
        return admit()

    with capture_logs() as logs:
        async with serve(asgi_app(slow)) as url, httpx.AsyncClient() as client:
            asking = asyncio.create_task(client.post(f"{url}/admit", content=question(REQUEST)))
            await asked.wait()
            if not waits:
                asking.cancel()
                await asyncio.wait([asking])
                await client.get(f"{url}/healthz")  # by now the server knows
            go_on.set()
            if waits:
                assert (await asking).status_code == 200

    assert [line["event"] for line in logs] == ([] if waits else ["answer_unheard"])


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_hook_past_its_deadline_is_given_up(serve: Serve, kind: str) -> None:
    """The endpoint says 503 and answers the next question."""
    release = threading.Event()

    def slow(request: Request) -> Decision:
        if request.uid == "slow":
            release.wait(30)
        return admit()

    async def slow_async(request: Request) -> Decision:
        if request.uid == "slow":
            await asyncio.sleep(30)
        return admit()

    hook: Hook = slow if kind == "plain" else slow_async
    async with serve(asgi_app(hook, timeout=0.05)) as url, httpx.AsyncClient() as client:
        given_up = await client.post(f"{url}/admit", content=question(a_request(uid="slow")))
        answered = await client.post(f"{url}/admit", content=question(a_request(uid="quick")))
    release.set()

    assert given_up.status_code == 503
    assert given_up.json()["uid"] == "slow"
    assert answered.status_code == 200


async def test_plain_hooks_run_beside_each_other(serve: Serve) -> None:
    """Each in a thread of its own: all of them must be in the hook for any to return."""
    together = threading.Barrier(8, timeout=20)

    def hook(request: Request) -> Decision:
        together.wait()
        return admit()

    async with serve(asgi_app(hook)) as url, httpx.AsyncClient() as client:
        questions = (client.post(f"{url}/admit", content=question(a_request(uid=f"u{n}"))) for n in range(8))
        responses = await asyncio.gather(*questions)

    assert [response.status_code for response in responses] == [200] * 8


async def test_a_question_needs_the_token(serve: Serve) -> None:
    """Another one, none, another scheme, or two headers are turned away before the body is read."""
    async with serve(asgi_app(plain, token="right-token")) as url, httpx.AsyncClient() as client:

        async def status(*headers: tuple[str, str]) -> int:
            response = await client.post(f"{url}/admit", content=question(REQUEST), headers=list(headers))
            if response.status_code == 401:
                assert response.headers["www-authenticate"] == "Bearer"
                assert "right-token" not in response.text
            return response.status_code

        assert await status(("authorization", "Bearer right-token")) == 200
        assert await status(("authorization", "bearer right-token")) == 200
        assert await status() == 401
        assert await status(("authorization", "Bearer wrong")) == 401
        assert await status(("authorization", "Bearer")) == 401
        assert await status(("authorization", "Basic right-token")) == 401
        assert await status(("authorization", "right-token")) == 401
        assert await status(("authorization", "Bearer right-token"), ("authorization", "Bearer x")) == 401
        assert (await client.get(f"{url}/healthz")).status_code == 200


async def test_a_token_that_changes_is_the_present_one(serve: Serve) -> None:
    """`token` may be a function: it is called for every question."""
    tokens = ["one"]
    async with serve(asgi_app(plain, token=lambda: tokens[0])) as url, httpx.AsyncClient() as client:

        async def status(token: str) -> int:
            headers = {"authorization": f"Bearer {token}"}
            return (await client.post(f"{url}/admit", content=question(REQUEST), headers=headers)).status_code

        assert await status("one") == 200
        tokens[0] = "two"
        assert (await status("one"), await status("two")) == (401, 200)
        tokens[0] = ""
        assert await status("two") == 401


@pytest.mark.parametrize("hook", [Reviewing, 7, None, object()])
def test_what_is_not_a_hook_is_an_error(hook: Hook) -> None:
    with pytest.raises(TypeError, match="is not a hook"):
        asgi_app(hook)


def test_the_application_shown_does_not_show_its_token() -> None:
    """Servers and frameworks name what they serve in their logs, and some tracebacks show every variable (R2.3)."""
    assert "s3cret" not in f"{asgi_app(lambda request: admit(), token='s3cret')!r}"


def test_an_empty_token_is_an_error_and_not_an_open_door() -> None:
    with pytest.raises(ValueError, match="empty"):
        asgi_app(plain, token="")


@pytest.mark.parametrize(
    "path", ["admit", "", "/healthz", "/admit?key=1", "/admit#now", "/a%20b", "/a b", "/a\n", "/ü", "/./a", "/a/.."]
)
def test_a_path_that_could_never_be_asked_for_is_an_error(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        asgi_app(plain, path=path)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/admit", {}, b"", 405),
        ("PUT", "/admit", {}, b"{}", 405),
        ("POST", "/healthz", {}, b"", 405),
        ("POST", "/", {}, b"{}", 404),
        ("POST", "/admit/", {}, b"{}", 404),
        ("POST", "/admit", {}, b"", 400),
        ("POST", "/admit", {}, b"{}", 400),
        ("POST", "/admit", {}, b"[" * 100_000, 400),
        ("POST", "/admit", {}, b"\xff\xfe\x00", 400),
        ("POST", "/admit", {}, b'{"request": NaN}', 400),
        ("POST", "/admit", {"content-encoding": "gzip"}, b"{}", 415),
        ("POST", "/admit", {}, b" " * 2_097_153, 413),
    ],
)
async def test_what_is_not_a_question_is_a_problem_document(
    serve: Serve, method: str, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    """RFC 9457."""
    async with serve(asgi_app(plain)) as url, httpx.AsyncClient() as client:
        response = await client.request(method, url + path, headers=headers, content=body)

    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    if status == 405:
        assert response.headers["allow"]


async def test_a_body_without_a_length_is_capped_too(serve: Serve) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(33):
            yield b" " * 65_536

    async with serve(asgi_app(plain)) as url, httpx.AsyncClient() as client:
        response = await client.post(f"{url}/admit", content=endless())

    assert response.status_code == 413


async def test_it_can_be_mounted_below_another_application(serve: Serve) -> None:
    app = Starlette(routes=[Mount("/policy", asgi_app(plain))])
    async with serve(app) as url, httpx.AsyncClient() as client:
        response = await client.post(f"{url}/policy/admit", content=question(REQUEST))

    assert response.status_code == 200


async def test_hostile_reasons_arrive_as_text(serve: Serve) -> None:
    """NUL, escapes, half a surrogate pair: the answer is JSON all the same."""
    hostile: Callable[[Request], Decision] = lambda request: hold("<b>\x1b[31m\n\ud800\u202e\x00" + "x" * 65_536)  # noqa: E731
    async with serve(asgi_app(hostile)) as url, httpx.AsyncClient() as client:
        response = await client.post(f"{url}/admit", content=question(REQUEST))

    assert response.status_code == 200
    assert json.loads(response.content)["response"]["decision"] == "hold"
    read_answer(response.content, REQUEST.uid)
