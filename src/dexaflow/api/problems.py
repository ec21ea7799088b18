"""Every error of the API as an RFC 9457 problem: `application/problem+json`, one line for the person who asked."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from dexaflow.api.answers import encode
from dexaflow.base.errors import Conflict, DexaflowError, NotFound, StoreError, UsageError
from dexaflow.base.text import shown

__all__ = ["PROBLEM_SCHEMA", "Problem", "install", "problem", "problem_docs"]

MEDIA_TYPE = "application/problem+json"
_MAX_SHOWN = 200  # characters of what a person sent that a message repeats

PROBLEM_SCHEMA: Mapping[str, Any] = {
    "title": "Problem",
    "description": "RFC 9457. `type` is always `about:blank`: the status says what kind of problem it is.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, where, and what to do."},
        "errors": {
            "type": "array",
            "description": "For 422: what is wrong, field by field.",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


class Problem(Exception):  # noqa: N818 - RFC 9457's word
    """What a handler raises to answer with a problem."""

    def __init__(self, status: int, detail: str, errors: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)


def problem(
    status: int,
    detail: str,
    *,
    errors: Sequence[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the response that says `detail`."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": shown(detail),  # one line, whatever name it quotes
    }
    if errors:
        body["errors"] = [{"field": shown(field), "message": shown(message)} for field, message in errors]
    return Response(encode(body), status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


def problem_docs(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what a route says in OpenAPI about the problems it answers with."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": HTTPStatus(status).phrase, "content": content} for status in statuses}


def install(app: FastAPI) -> None:
    """Have `app` answer every error with a problem."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DexaflowError, _ours)
    app.add_exception_handler(Exception, _unexpected)


async def _problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem(error.status, error.detail, errors=error.errors)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [(_field(e["loc"]), str(e["msg"]).removeprefix("Value error, ")) for e in error.errors()[:20]]
    detail = "; ".join(f"{field}: {message}" for field, message in found[:3]) or "the request is not valid"
    return problem(422, detail, errors=found)


def _field(location: Sequence[object]) -> str:
    return ".".join(str(part)[:_MAX_SHOWN] for part in location)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 404:
        detail = "there is nothing at this address; /openapi.json lists what there is"
    elif error.status_code == 405:
        # The framework names the methods of the first route at an address alone.
        headers["Allow"] = request.app.methods_at(request.scope["path"]) or headers.get("Allow", "")
        detail = f"this address does not take this method; it takes {headers['Allow']}"
    return problem(error.status_code, detail, headers=headers)


def status_of(error: DexaflowError) -> int:
    """Return the HTTP status that fits one of our own errors."""
    match error:
        case NotFound():
            return 404
        case Conflict():
            return 409
        case UsageError():
            return 422
        case StoreError():
            return 503
        case _:
            return 500


async def _ours(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DexaflowError)
    status = status_of(error)
    headers = {"Retry-After": "2"} if status == 503 else None
    return problem(status, str(error), headers=headers)


async def _unexpected(_request: Request, _error: Exception) -> Response:
    # Starlette raises the error again after this answer, so the server logs it.
    return problem(500, "something went wrong on our side; the server's log says what")
