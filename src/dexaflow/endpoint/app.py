"""The webhook endpoint as an ASGI application."""

import asyncio
import hmac
import json
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from dexaflow.admission.envelope import MAX_QUESTION_BYTES, QuestionError, answer, read_question, reading_question
from dexaflow.admission.hook_shape import Hook
from dexaflow.base.in_steps import Turns
from dexaflow.base.text import without_user_info
from dexaflow.endpoint.calling import HookCalls, HookFailed
from dexaflow.observe.logs import attempt_fields, get_logger
from dexaflow.observe.troubles import Troubles

__all__ = ["HOOK_SECONDS", "App", "Endpoint", "asgi_app", "usable_path"]

Scope = MutableMapping[str, Any]  # Any: ASGI's own types
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = get_logger("dexaflow.endpoint")

HOOK_SECONDS = 30.0  # for one call of the hook: the longest that `execution.admission.timeout` can be
BODY_SECONDS = 30.0  # for a question to arrive; no control plane waits longer for the answer (R7.1)

# An asker that waits no longer than its `execution.admission.timeout` may have gone when a hook has taken this long.
LOOKED_AFTER_SECONDS = 0.1

_READ_AT_ONCE: Final = 8_192  # bytes of a question; a longer one is read in steps, so that others do not wait for it

HEALTH_PATH: Final = "/healthz"

_NO_HEADERS: tuple[tuple[bytes, bytes], ...] = ()
_CLOSE = ((b"connection", b"close"),)

# What a path may be asked for by: RFC 3986's characters of one, less `%`, since it is compared unquoted.
_PATH = re.compile(r"/[A-Za-z0-9/._~!$&'()*+,;=:@-]*", re.ASCII)

_ASKED_WRONGLY: Final = frozenset({400, 401, 404, 408, 413, 415})

_TITLES: Mapping[int, str] = {
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def asgi_app(
    hook: Hook,
    *,
    token: str | Callable[[], str] | None = None,
    path: str = "/admit",
    timeout: float = HOOK_SECONDS,
) -> App:
    """Return an ASGI application that answers admission questions with `hook`.

    POST on `path` takes a question and gives the answer, `GET /healthz` says that the process lives; everything else
    is an HTTP error with an RFC 9457 body. Plain hooks run in threads, async ones on the server's event loop.

    Args:
        hook: Takes a `Request`, returns `admit(...)`, `hold(reason)` or `refuse(reason)`; a function, or an object
            with such a `__call__` or `review`. The same question, known by
            its `uid`, may arrive twice (R7.5).
        token: The bearer token that a question must carry, or a function that gives the present one; None asks for
            none. Compared in constant time.
        path: Where questions are answered.
        timeout: Seconds that one call of the hook may take, 30 by default, the longest that
            `execution.admission.timeout` can be. `Request.deadline` says when they end.

    Raises:
        TypeError: `hook` is not one.
        ValueError: `token` is empty, or `path` cannot be asked for, or is `/healthz`.
    """
    if token == "":
        raise ValueError("the token is empty; give one, or None to ask for none")
    return Endpoint(HookCalls(hook, timeout=timeout), token, usable_path(path))


def usable_path(path: str) -> str:
    """Return a path at which questions can be answered. Raises `ValueError`."""
    if not path.startswith("/"):
        raise ValueError(f"the path {path!r} does not begin with a slash")
    if path == HEALTH_PATH:
        raise ValueError(f"{HEALTH_PATH} says whether the process lives; choose another path")
    if not _PATH.fullmatch(path):
        raise ValueError(
            f"the path {path!r} holds what no path may; write letters, digits, and any of /._~!$&'()*+,;=:@-"
        )
    if any(part in (".", "..") for part in path.split("/")):
        raise ValueError(f"the path {path!r} is never asked for: clients take its dots out; write it without them")
    return path


class _Problem(Exception):  # noqa: N818 - RFC 9457's word
    """What goes out instead of an answer. `uid` is the question's, once it is known."""

    def __init__(self, status: int, detail: str, *, uid: str = "", headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.uid = uid
        self.headers = tuple(headers)


@dataclass(slots=True, eq=False)
class Endpoint:
    """The application. Whoever serves it may `end` it, so that it stops in a time of its own."""

    calls: HookCalls
    token: str | Callable[[], str] | None = field(repr=False)
    path: str
    body_seconds: float = BODY_SECONDS
    _long_questions: Turns = field(default_factory=Turns)  # read one at a time
    _troubles: Troubles = field(default_factory=lambda: Troubles("dexaflow.endpoint"))
    _open: set["asyncio.Task[Any]"] = field(default_factory=set)  # Any: what a server's task gives is its affair
    _ended: bool = False

    def end(self) -> None:
        """Give up every question that is not answered yet, and all that come later: they get status 503 at once."""
        self._ended = True
        if self._open:
            _log.warning("questions_given_up", questions=len(self._open))
        for task in self._open:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            status, content_type, headers = 200, b"application/json", _NO_HEADERS
            began = time.monotonic()
            try:
                body = await self._until_ended(scope, receive)
            except _Problem as problem:
                status, content_type, headers = problem.status, b"application/problem+json", problem.headers
                body = _problem_body(problem)
            except _Gone:
                return
            await self._note_unheard(time.monotonic() - began, receive)
            await _send(send, status, content_type, body, headers, head=scope["method"] == "HEAD")
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _until_ended(self, scope: Scope, receive: Receive) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        if self._ended:
            raise _ended()
        self._open.add(task)
        try:
            return await self._respond(scope, receive)
        except asyncio.CancelledError:
            if not self._ended:
                raise
            task.uncancel()  # it was `end`
            raise _ended() from None
        except _Problem as problem:
            # Told to its asker alone, it would never be found out here. What is no POST was no question: a probe, say.
            if scope["method"] == "POST" and problem.status in _ASKED_WRONGLY:
                self._troubles.warning("question_turned_away", cause=problem.detail, status=problem.status)
            raise
        except _Gone:
            raise
        except Exception as error:  # a fault of ours: whatever server runs this, it is in our log, and answered
            _log.error("endpoint_failed", exception=_traceback(error))
            raise _Problem(500, "the endpoint failed; its log says why") from error
        finally:
            self._open.discard(task)

    async def _respond(self, scope: Scope, receive: Receive) -> bytes:
        path = scope["path"]
        root = scope.get("root_path", "")
        if root and path.startswith(root + "/"):  # mounted below another application
            path = path[len(root) :]
        if path == HEALTH_PATH:
            _only(scope["method"], "GET", "HEAD")
            return b'{"status":"ok"}'
        if path != self.path:
            raise _Problem(404, f"questions are answered at {self.path}")
        _only(scope["method"], "POST")
        headers: list[tuple[bytes, bytes]] = list(scope["headers"])
        self._authorize(headers)
        try:
            async with asyncio.timeout(self.body_seconds):
                body = await _read_body(headers, receive)
        except TimeoutError:
            raise _Problem(408, "the question did not arrive in time", headers=_CLOSE) from None
        return await self._admit(body)

    async def _note_unheard(self, seconds: float, receive: Receive) -> None:
        """Say so when nobody waits for the answer any more: its asker holds the attempt, and this log is the hook's."""
        if seconds > LOOKED_AFTER_SECONDS and await _has_gone(receive):
            cause = "the asker did not wait so long; its timeout is execution.admission.timeout"
            self._troubles.warning("answer_unheard", cause=cause, seconds=round(seconds, 3))

    def _authorize(self, headers: list[tuple[bytes, bytes]]) -> None:
        if self.token is None:
            return
        try:
            token = self.token if isinstance(self.token, str) else self.token()
        except Exception as error:
            _log.error("token_unreadable", cause=type(error).__name__)
            raise _Problem(503, "the endpoint cannot read its token") from error
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, credentials = (given[0] if len(given) == 1 else b"").partition(b" ")
        matches = hmac.compare_digest(credentials.strip(b" "), token.encode())
        if not (matches and token and scheme.lower() == b"bearer"):
            raise _Problem(
                401,
                "a bearer token is needed, and none or another was sent",
                headers=[(b"www-authenticate", b"Bearer")],
            )

    async def _admit(self, body: bytes) -> bytes:
        try:
            if len(body) <= _READ_AT_ONCE:
                request = read_question(body)
            else:
                request = await self._long_questions.do(reading_question(body))
        except QuestionError as error:
            raise _Problem(400, str(error)) from error
        try:
            decision = await self.calls.decide(request)
            return answer(request.uid, decision)
        except HookFailed as failed:
            raised = failed.__cause__  # the hook's own, from the line where it went wrong; ours would only hide it
            trace = {} if raised is None else {"exception": _traceback(raised)}
            _log.error("hook_failed", cause=str(failed), uid=request.uid, **attempt_fields(request), **trace)
            status = 503 if failed.busy else 500
            raise _Problem(status, "the hook gave no decision", uid=request.uid) from failed
        except (TypeError, ValueError) as error:
            # admit(...) and its like check types; a decision built by hand may hold anything, and changes be too large.
            fields = attempt_fields(request)
            _log.error("answer_unwritable", uid=request.uid, **fields, exception=_traceback(error))
            raise _Problem(500, "the hook's decision cannot be written as an answer", uid=request.uid) from error


def _traceback(error: BaseException) -> str:
    """Return a traceback for the log: lines of code, and no values.

    Made here: in a program that has not set up structlog, it would print what every variable on the way holds, the
    token and the hook's own secrets among them.
    """
    return without_user_info("".join(traceback.format_exception(error)).rstrip())


class _Gone(Exception):  # noqa: N818 - ends the exchange, is no error
    """The client went away before its question was whole."""


def _only(method: str, *allowed: str) -> None:
    if method not in allowed:
        allow = ", ".join(allowed)
        raise _Problem(405, f"use {allow}", headers=[(b"allow", allow.encode())])


async def _has_gone(receive: Receive) -> bool:
    """Whether the asker of a question that was read to its end has closed the connection."""
    for _ in range(2):  # uvicorn may first say once more that the question has ended
        following = asyncio.ensure_future(receive())
        await asyncio.sleep(0)  # what is known already is told at once
        if not following.done():
            following.cancel()
            return False
        if following.exception() is not None:
            return False
        if following.result()["type"] == "http.disconnect":
            return True
    return False


async def _read_body(headers: list[tuple[bytes, bytes]], receive: Receive) -> bytes:
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise _Problem(415, "send the question uncompressed", headers=[(b"accept-encoding", b"identity")])
        if name == b"content-length" and value.isdigit() and len(value) < 20 and int(value) > MAX_QUESTION_BYTES:
            raise _too_large()
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        body += message.get("body", b"")
        if len(body) > MAX_QUESTION_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)


def _too_large() -> _Problem:
    return _Problem(413, f"a question has at most {MAX_QUESTION_BYTES} bytes", headers=_CLOSE)


def _ended() -> _Problem:
    return _Problem(503, "the endpoint is stopping", headers=_CLOSE)


def _problem_body(problem: _Problem) -> bytes:
    content: dict[str, object] = {
        "type": "about:blank",
        "title": _TITLES[problem.status],
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.uid:
        content["uid"] = problem.uid
    return json.dumps(content).encode()


async def _send(
    send: Send, status: int, content_type: bytes, body: bytes, headers: Iterable[tuple[bytes, bytes]], *, head: bool
) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", content_type),
                (b"content-length", str(len(body)).encode()),
                (b"cache-control", b"no-store"),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": b"" if head else body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
