"""Logs in the forms that Airflow's client asks for: one JSON document, or a JSON line for each line."""

import re
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response

from dexaflow.api.airflow import shapes
from dexaflow.api.airflow.runs import run_of_dag
from dexaflow.api.answers import answer, encode
from dexaflow.api.asking import MAX_INT
from dexaflow.api.logs import LogPiece, read_piece, whole_lines
from dexaflow.api.problems import Problem, problem_docs
from dexaflow.api.services import Services
from dexaflow.base.errors import NotFound

__all__ = ["log_routes"]

PIECE_BYTES = 256 * 1024
FULL_BYTES = 4 * 1024 * 1024  # with full_content; more comes with the token
_LINE_END = re.compile("\r\n|\n|\r")  # not splitlines(): U+2028 and its like are text
_TOKEN = "[0-9]{1,15}"
NDJSON = "application/x-ndjson"


def _lines(piece: LogPiece) -> list[shapes.LogLine]:
    text = piece.data.decode("utf-8", "replace")
    lines = _LINE_END.split(text)
    if lines and not lines[-1]:
        lines.pop()
    return [{"event": line, "timestamp": None} for line in lines]


def _offset(token: str | None) -> int:
    if not token:
        return 0
    if not re.fullmatch(_TOKEN, token):
        raise Problem(422, "token: use the continuation_token of the piece before", [("token", "not one of ours")])
    return int(token)


def log_routes(services: Services) -> APIRouter:
    """Return the route under /api/v2 about logs."""
    router = APIRouter(tags=["Airflow: task instances"], responses=problem_docs(404))

    @router.get(
        "/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}/logs/{try_number}",
        response_model=shapes.TaskLog,
        responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
    )
    async def get_log(
        dag_id: str,
        dag_run_id: str,
        task_id: str,
        try_number: Annotated[int, Path(ge=0, le=MAX_INT)],
        full_content: bool = False,
        map_index: Annotated[int, Query(ge=-1, le=MAX_INT)] = -1,
        token: Annotated[str | None, Query(max_length=100, json_schema_extra={"pattern": f"^({_TOKEN})?$"})] = None,
        accept: Annotated[str, Header()] = "application/json",
    ) -> Response:
        """A piece of a try's log; go on with `continuation_token` until it is null.

        With `Accept: application/x-ndjson` each line is a JSON object, and the token is in the header
        `Airflow-Continuation-Token`. While a try runs there is always a token.
        """
        await run_of_dag(services, dag_id, dag_run_id)
        if map_index != -1:
            raise NotFound(f"task '{task_id}' is not mapped; leave map_index out")
        row = await services.read(services.reader.attempt, dag_run_id, task_id, try_number)
        offset = _offset(token)
        piece = await read_piece(services, row, offset, FULL_BYTES if full_content else PIECE_BYTES)
        piece = whole_lines(piece, offset)
        following = None if piece.complete else str(piece.next_offset)
        if NDJSON in accept and not accept.strip().startswith("application/json"):
            body = b"".join(encode(line) + b"\n" for line in _lines(piece))
            headers = {} if following is None else {"Airflow-Continuation-Token": following}
            return Response(body, media_type=NDJSON, headers=headers)
        return answer({"content": _lines(piece), "continuation_token": following})

    return router
