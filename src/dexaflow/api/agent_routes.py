"""What agents say to the server: four routes, plain Starlette since each attempt goes through two of them.

The wire is described in `dexaflow.agent`. A bearer token opens its own launch and nothing else; whether that launch
still counts is for `Reports` to say. Bodies are read no further than their cap, and errors are RFC 9457 problems.
"""

import base64
import binascii
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from dexaflow.api.problems import Problem, problem
from dexaflow.authoring.results import MAX_RESULT_BYTES
from dexaflow.base.errors import StoreError
from dexaflow.base.text import clean_reason
from dexaflow.observe.troubles import Troubles
from dexaflow.tokens.token import Claims
from dexaflow.tokens.verify import TokenRejected, Verifier

__all__ = ["Beat", "Finish", "Gone", "Reports", "Started", "agent_routes"]

MAX_LOG_PART_BYTES = 262_144  # the log as a whole is bounded by the agent
MAX_TAIL_BYTES = 65_536
_MAX_JSON_BYTES = 524_288  # a result and a tail, encoded, with room
_MAX_REASON_CHARACTERS = 4096
_MAX_OFFSET = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Gone:
    """The launch does not count (any more); `why` is one line for the agent's log."""

    why: str = "this launch does not count any more"


@dataclass(frozen=True, slots=True)
class Started:
    """The launch is accepted: what to do (see `dexaflow.agent` for its keys), and how often to report."""

    work: Mapping[str, Any]
    heartbeat_seconds: float


@dataclass(frozen=True, slots=True)
class Beat:
    """The launch counts. `token` is to be used from now on; `stop` says that it is to end, and why."""

    token: str
    stop: str | None

    def __repr__(self) -> str:
        return f"Beat(stop={self.stop!r}, token hidden)"


@dataclass(frozen=True, slots=True)
class Finish:
    """How an attempt ended, as its agent says.

    `result` is JSON text, at most 65,536 bytes, known to parse; None: there is none. `log_tail` are the last bytes of
    the log, from `log_offset`.
    """

    succeeded: bool
    exit_code: int | None
    reason: str
    timed_out: bool
    result: bytes | None
    log_offset: int
    log_tail: bytes


class Reports(Protocol):
    """Takes what agents say. Each may be said again when an answer was lost, and then changes nothing.

    A `StoreError` from any of them is told to the agent as 503: it says the same again.
    """

    async def started(self, claims: Claims, launch_id: str, pid: int, host: str) -> Started | Gone:
        """An agent is there. Accepted again from the same pid and host, never from another (R1.7)."""
        ...

    async def heartbeat(self, claims: Claims) -> Beat | Gone:
        """An agent lives."""
        ...

    async def log(self, claims: Claims, offset: int, data: bytes) -> int | Gone:
        """Part of the log, from `offset`. Returns how much of the log is kept now; a gap is not taken."""
        ...

    async def finished(self, claims: Claims, finish: Finish) -> Gone | None:
        """The attempt ended; its processes are dead."""
        ...


def _bad(detail: str) -> Problem:
    return Problem(400, detail)


def agent_routes(reports: Reports, verifier: Verifier) -> list[Route]:
    """Return the routes for agents, to be added to the API's router as they are."""
    troubles = Troubles(__name__)

    def route(name: str, answer: Callable[[Request, Claims], Awaitable[object]]) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                said = await answer(request, _claims(request, verifier))
            except TokenRejected as rejected:
                # The agent ends its task for it: a whole night's tasks, when the signing key was replaced.
                troubles.warning("agent_token_rejected", cause=str(rejected))
                return problem(401, str(rejected), headers={"WWW-Authenticate": "Bearer"})
            except Problem as error:
                headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
                return problem(error.status, error.detail, headers=headers)
            except StoreError:
                return problem(503, "the report could not be kept; say it again")
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it
            if isinstance(said, Gone):
                return problem(410, said.why)
            return Response(json.dumps(said), media_type="application/json")

        return Route(f"/agent/v1/{name}", endpoint, methods=["POST"], name=f"agent_{name}", include_in_schema=False)

    async def started(request: Request, claims: Claims) -> object:
        said = await _object(request)
        launch_id, pid, host = said.get("launch_id"), said.get("pid"), said.get("host")
        if not isinstance(launch_id, str) or not _is_whole(pid, 1, 2**31 - 1) or not isinstance(host, str):
            raise _bad("started takes launch_id, pid and host")
        if launch_id != claims.launch_id:
            raise Problem(403, "the token is for another launch")
        answer = await reports.started(claims, launch_id, pid, clean_reason(host[:250]))  # nothing databases choke on
        if isinstance(answer, Gone):
            return answer
        return {"work": dict(answer.work), "heartbeat_seconds": answer.heartbeat_seconds}

    async def heartbeat(request: Request, claims: Claims) -> object:
        await _object(request)
        answer = await reports.heartbeat(claims)
        return answer if isinstance(answer, Gone) else {"token": answer.token, "stop": answer.stop}

    async def log(request: Request, claims: Claims) -> object:
        text = request.query_params.get("offset", "")
        if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= _MAX_OFFSET):
            raise _bad("log takes ?offset=, a whole number")
        data = await _body(request, MAX_LOG_PART_BYTES)
        answer = await reports.log(claims, int(text), data)
        return answer if isinstance(answer, Gone) else {"offset": answer}

    async def finished(request: Request, claims: Claims) -> object:
        answer = await reports.finished(claims, _finish(await _object(request)))
        return {"finished": claims.launch_id} if answer is None else answer

    return [
        route("started", started),
        route("heartbeat", heartbeat),
        route("log", log),
        route("finished", finished),
    ]


def _claims(request: Request, verifier: Verifier) -> Claims:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Problem(401, "send the agent token as a bearer")
    return verifier.verify(token.strip())


async def _body(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise Problem(413, f"at most {max_bytes} bytes are taken")
    return bytes(body)


async def _object(request: Request) -> dict[str, Any]:
    body = await _body(request, _MAX_JSON_BYTES)
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise _bad("the body is not JSON") from None
    if not isinstance(said, dict):
        raise _bad("the body is not a JSON object")
    return said


def _is_whole(value: object, lowest: int, highest: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


_OF_FINISHED = ("state", "exit_code", "reason", "timed_out", "result", "log_offset", "log_tail")


def _finish(said: Mapping[str, Any]) -> Finish:
    for name in _OF_FINISHED:
        if name not in said:  # also what may be null: half a report would lose a result
            raise _bad(f"finished has no {name}")
    state, code, reason, tail = (said.get(name) for name in ("state", "exit_code", "reason", "log_tail"))
    if state not in ("success", "failed"):
        raise _bad('state is "success" or "failed"')
    if code is not None and not _is_whole(code, -(2**31), 2**31 - 1):
        raise _bad("exit_code is a whole number or null")
    if not isinstance(reason, str) or not isinstance(said.get("timed_out"), bool) or not isinstance(tail, str):
        raise _bad("finished takes reason and log_tail, text, and timed_out, a boolean")
    if not _is_whole(said.get("log_offset"), 0, _MAX_OFFSET):
        raise _bad("log_offset is a whole number")
    try:
        log_tail = base64.b64decode(tail, validate=True)
    except (binascii.Error, ValueError):
        raise _bad("log_tail is not base64") from None
    if len(log_tail) > MAX_TAIL_BYTES:
        raise Problem(413, f"log_tail has at most {MAX_TAIL_BYTES} bytes")
    return Finish(
        succeeded=state == "success",
        exit_code=code,
        reason=reason[:_MAX_REASON_CHARACTERS].encode("utf-8", "replace").decode(),  # lone surrogates cannot be kept
        timed_out=said["timed_out"],
        result=_result(said.get("result")),
        log_offset=said["log_offset"],
        log_tail=log_tail,
    )


def _result(text: object) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise _bad("result is JSON text or null")
    try:
        result = text.encode()
        if len(result) > MAX_RESULT_BYTES:
            raise Problem(413, f"a result has at most {MAX_RESULT_BYTES} bytes")
        json.loads(result, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _bad("the result is not JSON") from None
    return result


def _no_constant(name: str) -> object:
    raise ValueError(name)
