"""The server's side of the wire: who may speak, what is taken, what a bad body gets."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from structlog.testing import capture_logs

from dexaflow.api.agent_routes import MAX_LOG_PART_BYTES, Finish, Gone, agent_routes
from dexaflow.base.errors import StoreError
from dexaflow.executors.ports import Launch
from dexaflow.tokens.keys import generate, public_keys
from dexaflow.tokens.token import Claims
from dexaflow.tokens.verify import Verifier
from tests.executors.proofs import Proofs
from tests.executors.reports import Ledger, bash

PROOFS = Proofs.fresh()
GOOD_FINISH = {
    "state": "success", "exit_code": 0, "reason": "", "timed_out": False, "result": '{"a":1}',
    "log_offset": 0, "log_tail": base64.b64encode(b"\xffhi").decode(),
}  # fmt: skip


def a_launch(ledger: Ledger) -> Launch:
    launch = PROOFS.launch()
    ledger.work[launch.launch_id] = bash("true")
    return launch


@asynccontextmanager
async def client_of(ledger: Ledger, launch: Launch | None = None) -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(routes=agent_routes(ledger, Verifier(public_keys(PROOFS.key), time.monotonic)))
    headers = {} if launch is None else {"Authorization": f"Bearer {launch.token.reveal()}"}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://x/agent/v1", headers=headers) as client:
        yield client


def is_problem(answer: httpx.Response, status: int) -> bool:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    return bool(said["status"] == status and said["title"] and said["detail"] and "\n" not in said["detail"])


async def test_an_attempt_is_two_requests() -> None:
    ledger = Ledger(PROOFS.minter)
    launch = a_launch(ledger)
    async with client_of(ledger, launch) as client:
        answer = await client.post("/started", json={"launch_id": launch.launch_id, "pid": 7, "host": "h"})
        assert (answer.status_code, answer.json()["work"]["bash_command"]) == (200, "true")
        assert (await client.post("/finished", json=GOOD_FINISH)).json() == {"finished": launch.launch_id}

    assert ledger.finishes[launch.launch_id] == Finish(True, 0, "", False, b'{"a":1}', 0, b"\xffhi")


async def test_started_is_accepted_again_from_the_same_agent_only() -> None:
    """Its answer may have been lost; a second agent of the launch runs nothing (R1.7)."""
    ledger = Ledger(PROOFS.minter)
    launch = a_launch(ledger)
    async with client_of(ledger, launch) as client:
        for pid, status in ((7, 200), (7, 200), (8, 410)):
            answer = await client.post("/started", json={"launch_id": launch.launch_id, "pid": pid, "host": "h"})
            assert answer.status_code == status


async def test_a_heartbeat_renews_the_token_and_carries_the_stop() -> None:
    ledger = Ledger(PROOFS.minter)
    launch = a_launch(ledger)
    ledger.stops[launch.launch_id] = "cancelled"
    async with client_of(ledger, launch) as client:
        said = (await client.post("/heartbeat", json={})).json()
        renewed = await client.post("/heartbeat", json={}, headers={"Authorization": f"bearer {said['token']}"})

    assert said["stop"] == "cancelled"
    assert renewed.status_code == 200


async def test_log_parts_are_taken_once_and_without_gaps() -> None:
    ledger = Ledger(PROOFS.minter)
    launch = a_launch(ledger)
    async with client_of(ledger, launch) as client:
        for offset, data, kept in ((0, b"abc", 3), (0, b"abc", 3), (2, b"cde", 5), (9, b"zz", 5), (5, b"\xff\0", 7)):
            assert (await client.post(f"/log?offset={offset}", content=data)).json() == {"offset": kept}

    assert ledger.logs[launch.launch_id] == b"abcde\xff\0"


@pytest.mark.parametrize("path", ["started", "heartbeat", "log?offset=0", "finished"])
@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic eDp5", "Bearer nonsense", "Bearer a.b.c", "Bearer " + "x" * 9000]
)
async def test_without_a_token_of_ours_nothing_is_taken(path: str, header: str | None) -> None:
    ledger = Ledger(PROOFS.minter)
    async with client_of(ledger) as client:
        answer = await client.post(f"/{path}", json={}, headers={} if header is None else {"Authorization": header})

    assert is_problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"
    assert ledger.said == []


async def test_a_token_signed_by_another_key_is_rejected() -> None:
    ledger = Ledger(PROOFS.minter)
    stranger = Proofs.fresh().launch()
    with capture_logs() as lines:
        async with client_of(ledger, stranger) as client:
            for _ in range(3):
                assert is_problem(await client.post("/heartbeat", json={}), 401)
    (said,) = lines  # once: they come by the hundred when the signing key was replaced
    assert (said["event"], said["log_level"]) == ("agent_token_rejected", "warning")
    assert said["cause"] == "the agent token is not accepted: it is signed with a key that is not known here"
    assert generate().kid != PROOFS.key.kid


async def test_a_token_does_not_open_another_launch() -> None:
    """Good for its own attempt and launch only."""
    ledger = Ledger(PROOFS.minter)
    mine, other = a_launch(ledger), a_launch(ledger)
    async with client_of(ledger, mine) as client:
        answer = await client.post("/started", json={"launch_id": other.launch_id, "pid": 7, "host": "h"})

    assert is_problem(answer, 403)
    assert ledger.accepted == {}


@pytest.mark.parametrize("host", ["half \ud800", "\x00", "\x1b[31m\n", "x" * 70_000, ""])
async def test_whatever_an_agent_calls_its_host_can_be_kept(host: str) -> None:
    """A task may have got hold of the token; what a database cannot hold would be a fault of ours."""
    ledger = Ledger(PROOFS.minter)
    launch = a_launch(ledger)
    async with client_of(ledger, launch) as client:
        body = json.dumps({"launch_id": launch.launch_id, "pid": 7, "host": host})
        assert (await client.post("/started", content=body)).status_code == 200
    ((_, kept),) = ledger.accepted.values()
    kept.encode()
    assert kept.isprintable()
    assert len(kept) <= 250


async def test_a_launch_that_does_not_count_is_gone() -> None:
    """It dies with the attempt."""
    ledger = Ledger(PROOFS.minter)
    launch = a_launch(ledger)
    ledger.gone.add(launch.launch_id)
    async with client_of(ledger, launch) as client:
        started = {"launch_id": launch.launch_id, "pid": 7, "host": "h"}
        for path, body in (("started", started), ("heartbeat", {}), ("finished", GOOD_FINISH)):
            assert is_problem(await client.post(f"/{path}", json=body), 410)
        assert is_problem(await client.post("/log?offset=0", content=b"x"), 410)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"state": "running"}, 400),
        ({"state": ["success"]}, 400),
        ({"exit_code": "0"}, 400),
        ({"exit_code": True}, 400),
        ({"exit_code": 2**40}, 400),
        ({"reason": None}, 400),
        ({"timed_out": "no"}, 400),
        ({"result": {"a": 1}}, 400),
        ({"result": "{"}, 400),
        ({"result": "NaN"}, 400),
        ({"result": "[" * 60_000}, 400),
        ({"result": '"\ud800"'}, 400),
        ({"result": json.dumps("x" * 65_536)}, 413),
        ({"log_offset": -1}, 400),
        ({"log_offset": 1.5}, 400),
        ({"log_tail": "*"}, 400),
        ({"log_tail": "ä"}, 400),
        ({"log_tail": base64.b64encode(b"x" * 65_537).decode()}, 413),
        ({"log_tail": "A" * 600_000}, 413),
    ],
)
async def test_a_bad_finish_is_refused_in_one_line(changes: dict[str, Any], status: int) -> None:
    ledger = Ledger(PROOFS.minter)
    async with client_of(ledger, a_launch(ledger)) as client:
        answer = await client.post("/finished", content=json.dumps({**GOOD_FINISH, **changes}))

    assert is_problem(answer, status)
    assert ledger.finishes == {}


@pytest.mark.parametrize("name", GOOD_FINISH)
async def test_half_a_finish_is_refused(name: str) -> None:
    """Also without what may be null: a result that got lost on the way is not one that is not there."""
    ledger = Ledger(PROOFS.minter)
    half = {key: value for key, value in GOOD_FINISH.items() if key != name}
    async with client_of(ledger, a_launch(ledger)) as client:
        answer = await client.post("/finished", content=json.dumps(half))

    assert is_problem(answer, 400)
    assert f"finished has no {name}" in answer.text
    assert ledger.finishes == {}


@pytest.mark.parametrize("offset", ["", "x", "-1", "1.5", "9" * 17, str(2**53), "٣", " 1"])
async def test_a_log_without_a_place_is_refused(offset: str) -> None:
    ledger = Ledger(PROOFS.minter)
    async with client_of(ledger, a_launch(ledger)) as client:
        assert is_problem(await client.post("/log", params={"offset": offset}, content=b"x"), 400)
        assert is_problem(await client.post("/log?offset=0", content=b"x" * (MAX_LOG_PART_BYTES + 1)), 413)


@given(st.one_of(st.binary(max_size=60), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from([*GOOD_FINISH, "launch_id", "pid", "host"]), inner)
).map(lambda v: json.dumps(v).encode())))  # fmt: skip
def test_no_body_makes_the_server_fail(body: bytes) -> None:
    async def post() -> None:
        ledger = Ledger(PROOFS.minter)
        async with client_of(ledger, a_launch(ledger)) as client:
            for path in ("started", "heartbeat", "finished"):
                answer = await client.post(f"/{path}", content=body)
                assert answer.status_code in (200, 400, 403, 413)

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:  # leaves the current loop alone
        runner.run(post())


async def test_a_store_that_fails_is_a_report_to_be_said_again() -> None:
    """5xx is tried again for ever."""

    class Failing(Ledger):
        async def finished(self, claims: Claims, finish: Finish) -> Gone | None:
            raise StoreError("database is locked: SELECT secrets")

    ledger = Failing(PROOFS.minter)
    async with client_of(ledger, a_launch(ledger)) as client:
        answer = await client.post("/finished", json=GOOD_FINISH)

    assert is_problem(answer, 503)
    assert "secrets" not in answer.text
