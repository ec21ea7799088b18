"""The agents' doors under schemathesis, by a document of the wire that `dexaflow.agent` describes.

Asked of a real server with every kind of token: none, one that is forged, one of a launch that has ended, and one of a
launch that counts. No 500, every error one line, and nothing changes but what the token is for.
"""

import copy
import sqlite3
from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis import GenerationMode

from dexaflow.store.schema import metadata
from dexaflow.tokens.keys import SigningKey, generate, load_or_create
from dexaflow.tokens.launch import Launched
from dexaflow.tokens.mint import Minter
from tests.executors.proofs import admitted
from tests.fuzz.api import Asked, ask
from tests.fuzz.world import busy_server
from tests.system.lite import Lite

__all__ = ["ask_the_doors"]

_PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "about:blank"},
        "title": {"type": "string", "minLength": 1},
        "status": {"type": "integer"},
        "detail": {"type": "string", "pattern": r"^[^\r\n]+$"},
    },
}
_WHOLE = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_BODIES: Mapping[str, Mapping[str, Any]] = {
    "started": {
        "launch_id": {"type": "string"},
        "pid": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
        "host": {"type": "string"},
    },
    "heartbeat": {},
    "finished": {
        "state": {"enum": ["success", "failed"]},
        "exit_code": {"type": ["integer", "null"], "minimum": -(2**31), "maximum": 2**31 - 1},
        "reason": {"type": "string"},
        "timed_out": {"type": "boolean"},
        "result": {"type": ["string", "null"]},
        "log_offset": _WHOLE,
        "log_tail": {"type": "string"},
    },
}
_ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "started": {"work": {"type": "object"}, "heartbeat_seconds": {"type": "number"}},
    "heartbeat": {"token": {"type": "string"}, "stop": {"type": ["string", "null"]}},
    "log": {"offset": _WHOLE},
    "finished": {"finished": {"type": "string"}},
}
_REFUSALS = {"started": (400, 401, 403, 410), "heartbeat": (400, 401, 410)}


def _object(properties: Mapping[str, Any], *, closed: bool = False) -> dict[str, Any]:
    return {
        "type": "object", "required": list(properties), "properties": dict(properties),
        **({"additionalProperties": False} if closed else {}),
    }  # fmt: skip


def _document(known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the doors as OpenAPI has them; `known` narrows what properties of bodies may be."""
    paths = {}
    for door, answer in _ANSWERS.items():
        if door == "log":
            content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        else:
            body = {**_BODIES[door], **known.get(door, {})}
            content = {"application/json": {"schema": _object(body)}}
        problem = {"description": "no", "content": {"application/problem+json": {"schema": dict(_PROBLEM)}}}
        good = {"description": "yes", "content": {"application/json": {"schema": _object(answer, closed=True)}}}
        refusals = _REFUSALS.get(door, (400, 401, 410, 413))
        operation: dict[str, Any] = {
            "requestBody": {"required": True, "content": content},
            "responses": {"200": good, **{str(status): problem for status in refusals}},
        }
        if door == "log":
            operation["parameters"] = [{"name": "offset", "in": "query", "required": True, "schema": dict(_WHOLE)}]
        paths[f"/agent/v1/{door}"] = {"post": operation}
    return {"openapi": "3.1.0", "info": {"title": "agents", "version": "1"}, "paths": paths}


_Key = tuple[str, Any, int]  # table, attempt or run, and which of its rows
_BEATS = frozenset({"heartbeat_at", "log_bytes"})


@dataclass(frozen=True, slots=True)
class _Launch:
    attempt_id: str
    launch_id: str
    pid: int
    host: str


class _Doors:
    """A server's doors, what is in its database, and tokens for them."""

    def __init__(self, server: Lite) -> None:
        self._server = server
        self._key = load_or_create(server.data / "signing.key")

    def rows(self) -> dict[_Key, Any]:
        """Return all rows there are, without what a live agent changes all the time."""
        found = {}
        with closing(sqlite3.connect(self._server.data / "dexaflow.db")) as connection:
            connection.row_factory = sqlite3.Row
            for table in sorted(set(metadata.tables) - {"leader"}):
                for number, row in enumerate(connection.execute(f"SELECT * FROM {table} ORDER BY rowid")):
                    kept = {name: value for name, value in dict(row).items() if name not in _BEATS}
                    found[table, kept.get("attempt_id", kept.get("run_id", "")), number] = kept
        return found

    def launch(self, run_id: str, task_id: str) -> _Launch:
        with closing(sqlite3.connect(self._server.data / "dexaflow.db")) as connection:
            return _Launch(
                *connection.execute(
                    "SELECT attempt_id, launch_id, pid, host FROM task_instances WHERE run_id = ? AND task_id = ?",
                    (run_id, task_id),
                ).fetchone()
            )

    def token(self, launch: _Launch, *, key: SigningKey | None = None) -> str:
        """Return a token as the dispatcher would have minted it just now."""
        with closing(sqlite3.connect(self._server.data / "dexaflow.db")) as connection:
            (up,) = connection.execute("SELECT up_seconds FROM leader").fetchone()
        proof = admitted(launch.attempt_id)
        minter = Minter(key or self._key, lambda: float(up))
        return minter.mint(proof, Launched.written(proof, launch.launch_id, 1)).reveal()


def ask_the_doors(root: Path, examples: int) -> Asked:
    """Ask a server of its own at every door with every kind of token."""
    asked = Asked()
    with busy_server(root) as (server, names):
        doors = _Doors(server)
        ended, alive = doors.launch(str(names["run_id"][0]), "rows"), doors.launch(str(names["run_id"][2]), "sleeps")
        mixed = doors.token(alive).rpartition(".")[0] + "." + doors.token(ended).rpartition(".")[2]
        tokens = {
            "no token": "",
            "nonsense": "a.b.c",
            "the API's own token": server.token,
            "another's key": doors.token(alive, key=generate()),
            "another's signature": mixed,
            "an ended launch": doors.token(ended),
        }
        for tag, token in tokens.items():
            before = doors.rows()
            _ask_all(asked, tag, server, token, [alive, ended], examples)
            _changed(asked, tag, before, doors.rows(), but=set())
        heard = {label for label, status in asked.statuses if status == 200} - {"POST /agent/v1/finished"}
        if heard:  # said again, by whomever, that it is finished changes nothing
            asked.findings["a token that opens nothing", "200"] = str(sorted(heard))
        before = doors.rows()
        _ask_all(asked, "a launch that counts", server, doors.token(alive), [alive, ended], examples)
        # It has ended now, and so has its run.
        mine = {("task_instances", alive.attempt_id), ("runs", names["run_id"][2]), ("results", names["run_id"][2])}
        _changed(asked, "a launch that counts", before, doors.rows(), but=mine)
        if server.events("api_failed") or "Traceback" in server.log():
            asked.findings["the log", "api_failed"] = server.log()[-3000:]
    return asked


def _changed(
    asked: Asked, tag: str, before: Mapping[_Key, Any], after: Mapping[_Key, Any], *, but: Set[tuple[str, Any]]
) -> None:
    changed = {key[:2] for key in before.keys() | after.keys() if before.get(key) != after.get(key)} - but
    if changed:
        asked.findings[tag, "changed"] = str(sorted(changed))[:3000]


def _ask_all(asked: Asked, tag: str, server: Lite, token: str, launches: Sequence[_Launch], examples: int) -> None:
    known: Mapping[str, Mapping[str, Any]] = {
        "started": {
            "launch_id": {"enum": [*(launch.launch_id for launch in launches), ""]},
            "pid": {"enum": [*(launch.pid for launch in launches), 1]},
            "host": {"enum": [launches[0].host, "elsewhere"]},
        },
        "finished": {"result": {"enum": [None, "1", '{"a": [null]}', "{", "NaN"]}, "log_tail": {"enum": ["", "aGk="]}},
    }
    for kind, document, mode in (
        ("as described", _document(known), GenerationMode.POSITIVE),
        ("against it", _document({}), GenerationMode.NEGATIVE),
    ):
        schema: Any = schemathesis.openapi.from_dict(copy.deepcopy(document))
        for result in schema.get_all_operations():
            ask(asked, f"{tag}, {kind}", result.ok(), mode, server.url, token, examples)
