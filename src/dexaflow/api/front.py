"""What every request passes before a route sees it: who asks, how much they send, and that an answer comes back.

Plain ASGI, so that it costs little and covers what no route covers: unknown addresses, bodies too large, answers that
were never begun.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dexaflow.api.bodies import MAX_BODY_BYTES, check_body
from dexaflow.api.problems import Problem, problem

__all__ = ["OPEN_PATHS", "AgentDoor", "Front", "token_check"]

_log = logging.getLogger("dexaflow.api")

# Read by probes, by Prometheus and by Airflow's client without a token. They name no tenant, DAG or run.
OPEN_PATHS = frozenset(
    {"/health", "/health/live", "/health/ready", "/metrics", "/api/v2/monitor/health", "/api/v2/version"}
)
BODY_SECONDS = 30.0  # for a body to arrive, from the first byte to the last
_SAFE_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
]


def token_check(token: str) -> Callable[[str], bool]:
    """Return a check against `token` that takes as long for every wrong one (R2.3: it is printed nowhere)."""
    expected = token.encode()

    def is_right(found: str) -> bool:
        return hmac.compare_digest(found.encode(errors="surrogateescape"), expected)

    return is_right


def _bearer(scope: Scope) -> str | None:
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) != 1:
        return None
    scheme, _, token = found[0].partition(b" ")
    return token.strip().decode("utf-8", "surrogateescape") if scheme.lower() == b"bearer" else None


class AgentDoor:
    """The agents' own routes: they bring their own tokens, and nothing of the people's API stands in their way."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._router = Router(routes=list(routes), redirect_slashes=False, default=_nothing_here)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # so that a wrong method is raised, not answered in plain text
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            answer = problem(error.status_code, str(error.detail), headers=error.headers)
            await answer(scope, receive, send)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    await problem(404, "there is nothing at this address")(scope, receive, send)


class Front:
    """Stands before the API.

    Args:
        app: The API.
        agents: Where `/agent/...` goes, past everything here but the last resort.
        is_token: Whether a bearer token is the API's; constant time (see `token_check`).
        max_body_bytes: Above it: 413.
    """

    def __init__(
        self, app: ASGIApp, agents: ASGIApp, is_token: Callable[[str], bool], max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._app = app
        self._agents = agents
        self._is_token = is_token
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        begun = False
        # Load balancers and uptime monitors ask by HEAD, which is GET without the body (RFC 9110, 9.3.2).
        head_only = scope["method"] == "HEAD" and scope["path"] in OPEN_PATHS
        if head_only:
            scope = {**scope, "method": "GET"}

        async def sending(message: Message) -> None:
            nonlocal begun
            if head_only and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            if message["type"] == "http.response.start":
                begun = True
                message = {**message, "headers": [*message.get("headers", ()), *_SAFE_HEADERS]}
            await send(message)

        try:
            if scope["path"].startswith("/agent/"):
                await self._agents(scope, receive, sending)
            else:
                await self._people(scope, receive, sending)
        except Exception:  # noqa: BLE001 - the last resort: the caller gets an answer, the log the cause
            _log.exception("api_failed")
            if not begun:
                await problem(500, "something went wrong on our side; the server's log says what")(
                    scope, receive, sending
                )

    async def _people(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] not in OPEN_PATHS:
                token = _bearer(scope)
                if token is None or not self._is_token(token):
                    refusal = problem(
                        401,
                        "this needs the API's bearer token; the command line finds it in the data folder,"
                        " others in DEXAFLOW_TOKEN",
                        headers={"WWW-Authenticate": 'Bearer realm="dexaflow"'},
                    )
                    await refusal(scope, receive, send)
                    return
            if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                raise Problem(400, "an address cannot hold a NUL character")
            body = await self._body(scope, receive)
        except Problem as error:
            await problem(error.status, error.detail, headers={"Connection": "close"})(scope, receive, send)
            return
        await self._app(scope, receive if body is None else _again(body, receive), send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the whole checked body, or None where none is announced. Raises `Problem`."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if b"content-length" not in headers and b"transfer-encoding" not in headers:
            return None
        announced = headers.get(b"content-length", b"0")
        too_large = Problem(413, f"the body is larger than {self._max_body_bytes} bytes")
        if not announced.isdigit() or len(announced) > 18 or int(announced) > self._max_body_bytes:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the body ended before its end")
                    body += message.get("body", b"")
                    if len(body) > self._max_body_bytes:
                        raise too_large
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Problem(408, f"the body did not arrive within {BODY_SECONDS:.0f} seconds") from None
        if body:
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json" and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
                raise Problem(415, "send the body as application/json")
            check_body(bytes(body))
        return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body already read, then goes on as before."""
    given = False

    async def receiving() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receiving
