"""Whatever is sent, the answer is a problem that says what to do (RFC 9457), never a 500; no token, no entry."""

import json
import re
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dexaflow.api.answers import encode, kept_json
from dexaflow.api.bodies import MAX_BODY_BYTES
from dexaflow.api.front import OPEN_PATHS
from dexaflow.base.errors import StoreError
from dexaflow.model.states import State
from tests.api.builders import Database, StoreCommands, at
from tests.api.conftest import TOKEN, Operations

JSON = {"Content-Type": "application/json"}
TRIGGER = "/api/v2/dags/nightly_etl/dagRuns"


def is_problem(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["type"], body["status"]) == ("about:blank", status)
    assert body["title"]
    assert "\n" not in body["detail"]
    assert "Value error" not in answer.text  # pydantic's word, not ours
    return str(body["detail"])


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer \xff\xfe"],
)
async def test_without_the_token_nothing_is_told(api: httpx.AsyncClient, authorization: str) -> None:
    headers = [("Authorization", authorization.encode("latin-1"))]
    for path in ("/api/v2/dags", "/dexaflow/v1/holds", "/openapi.json", "/no/such/path", "/", "/metrics/", "/healthx"):
        answer = await api.get(path, headers=headers)  # type: ignore[arg-type]  # bytes, as they come over the wire
        is_problem(answer, 401)
        assert answer.headers["www-authenticate"] == 'Bearer realm="dexaflow"'
        assert TOKEN not in answer.text


async def test_every_operation_besides_the_open_ones_needs_the_token(
    operations: Operations, api: httpx.AsyncClient
) -> None:
    open_paths = {
        "/health", "/health/live", "/health/ready", "/metrics", "/api/v2/monitor/health", "/api/v2/version",
    }  # fmt: skip
    closed = [(method, path) for method, path in operations.all if path not in open_paths]
    assert len(closed) > 40
    for method, path in closed:
        is_problem(await api.request(method, path, headers={"Authorization": "Bearer wrong"}), 401)


async def test_agents_bring_their_own_tokens(api: httpx.AsyncClient) -> None:
    """The people's token opens nothing there, and theirs opens nothing here."""
    answer = await api.post("/agent/v1/report", content=b"x", headers={"Authorization": "Bearer agents-own"})
    assert answer.json() == {"authorization": "Bearer agents-own"}
    is_problem(await api.get("/agent/v1/report"), 405)
    is_problem(await api.get("/agent/v1/other"), 404)
    assert "marker" not in is_problem(await api.post("/agent/v1/report", content=b"explode"), 500)


async def test_unknown_addresses_and_methods(api: httpx.AsyncClient) -> None:
    assert "openapi.json" in is_problem(await api.get("/api/v2/nothing"), 404)
    answer = await api.delete("/api/v2/dags")
    is_problem(answer, 405)
    assert "GET" in answer.headers["allow"]
    is_problem(await api.get("/api/v2/dags/"), 404)


async def test_a_method_that_an_address_does_not_take_is_answered_with_all_that_it_takes(
    api: httpx.AsyncClient, operations: Operations
) -> None:
    """Also where each method has a handler of its own."""
    taken: dict[str, set[str]] = {}
    for method, path in operations.all:
        taken.setdefault(path, set()).add(method.upper())
    assert {"GET", "PATCH"} in taken.values()
    for path, methods in taken.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - methods:
            answer = await api.request(method, path)
            detail = is_problem(answer, 405)
            assert answer.headers["allow"] == ", ".join(sorted(methods)), path
            assert answer.headers["allow"] in detail


BAD_BODIES: list[tuple[bytes, int]] = [
    (b"", 422),
    (b"{", 400),
    (b"nonsense", 400),
    (b"\xff\xfe{\x00}\x00", 400),
    (b'{"conf": {"a": NaN}}', 400),
    (b'{"conf": {"a": "\\ud800"}}', 422),
    (b'{"conf": {"a": 1e999}}', 400),
    (b'{"conf": {"a": ' + b"9" * 30 + b"}}", 422),
    (b'{"conf": {"a": ' + b"9" * 6000 + b"}}", 400),
    (b'{"conf": ' + b'{"a":' * 100 + b"1" + b"}" * 101, 422),
    (b"[" * 200_000, 422),
    (b'{"conf": {"a": "\\u0000"}}', 422),
    (b'{"conf": {"\\u0000": 1}}', 422),
    (b'{"conf": {}, "conf": {}}', 422),
    (b'{"conf": {"a": [{"b": 1, "\\u0062": 2}]}}', 422),
    (b'{"conf": []}', 422),
    (b'{"conf": "x"}', 422),
    (b'{"conf": 1}', 422),
    (b"null", 422),
    (b"[]", 422),
    (b'"text"', 422),
    (b'{"unknown": 1}', 422),
    (b'{"dag_run_id": 7}', 422),
    (b'{"dag_run_id": ""}', 422),
    (b'{"dag_run_id": "has space"}', 422),
    (b'{"dag_run_id": "line\\n"}', 422),
    (b'{"dag_run_id": "../../etc"}', 422),
    (b'{"dag_run_id": "."}', 422),
    (b'{"dag_run_id": ".."}', 422),
    (b'{"dag_run_id": "~"}', 422),
    ('{"dag_run_id": "ümlaut"}'.encode(), 422),
    (json.dumps({"dag_run_id": "x" * 251}).encode(), 422),
    (b'{"logical_date": "yesterday"}', 422),
    (b'{"logical_date": "2026-11-29T12:00:00"}', 422),
    (b'{"logical_date": 99999999999999999999}', 422),
    (b'{"logical_date": 2.225073858507e-311}', 422),
    (b'{"logical_date": 1764417600}', 422),
    (b'{"logical_date": "1764417600"}', 422),
    (b'{"logical_date": true}', 422),
    (b'{"logical_date": {}}', 422),
    (b'{"logical_date": "0001-01-01T00:00:00+14:00"}', 422),
    (json.dumps({"note": "x" * 1001}).encode(), 422),
    (json.dumps({"conf": {"a": "x" * 65_536}}).encode(), 422),
    (json.dumps({"data_interval_start": "2026-11-29T12:00:00Z"}).encode(), 422),
    (b'{"conf": {"a": "' + b"x" * MAX_BODY_BYTES + b'"}}', 413),
]


@pytest.mark.parametrize(("body", "status"), BAD_BODIES, ids=range(len(BAD_BODIES)))
async def test_a_bad_body_is_a_problem_and_makes_no_run(
    api: httpx.AsyncClient, database: Database, commands: StoreCommands, body: bytes, status: int
) -> None:
    database.dag()
    is_problem(await api.post(TRIGGER, content=body, headers=JSON), status)
    assert commands.by == []


async def test_a_conf_of_64_kib_is_kept_whole(api: httpx.AsyncClient, database: Database) -> None:
    database.dag()
    conf = {"a": "ü" * 32_764}  # two bytes each, and eight around them
    assert len(json.dumps(conf, ensure_ascii=False, separators=(",", ":")).encode()) == 65_536
    made = await api.post(TRIGGER, json={"conf": conf})
    assert made.status_code == 200
    assert made.json()["conf"] == conf


async def test_only_json_is_taken(api: httpx.AsyncClient, database: Database) -> None:
    database.dag()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        is_problem(await api.post(TRIGGER, content=b"{}", headers={"Content-Type": kind}), 415)
    is_problem(await api.post(TRIGGER, content=b"{}"), 415)
    good = await api.post(TRIGGER, content=b"{}", headers={"Content-Type": "application/json; charset=utf-8"})
    assert good.status_code == 200


async def test_a_body_of_unknown_length_is_cut_off_at_the_cap(api: httpx.AsyncClient, database: Database) -> None:
    database.dag()
    sent = 0

    async def endless() -> Any:
        nonlocal sent
        while sent < 100 * MAX_BODY_BYTES:
            sent += 65_536
            yield b" " * 65_536

    answer = await api.post(TRIGGER, content=endless(), headers=JSON)
    is_problem(answer, 413)
    assert sent < 2 * MAX_BODY_BYTES


@pytest.mark.parametrize(
    "query",
    [
        "limit=-1", "limit=x", "limit=1.5", "limit=" + "9" * 5000, "offset=-1", "offset=99999999999999999999",
        "offset=2147483648", "state=", "state=held", "state=%00", "order_by=nothing", "order_by=", "unknown=1",
        "run_after_gte=never", "run_after_gte=2026-01-01", "run_after_gte=0001-01-01T00:00:00%2B14:00",
        "dag_version=-1", "dag_id_pattern=" + "x" * 251, "order_by=id&" * 6, "cursor=x",
    ],
)  # fmt: skip
async def test_a_bad_query_is_a_problem(api: httpx.AsyncClient, database: Database, query: str) -> None:
    database.dag()
    answer = await api.get(f"{TRIGGER}?{query}")
    assert answer.status_code in (400, 422)
    is_problem(answer, answer.status_code)


async def test_a_limit_above_the_cap_gets_what_fits(api: httpx.AsyncClient, database: Database) -> None:
    """As Airflow does: its clients ask for thousands and read `total_entries`."""
    database.dag()
    for i in range(3):
        database.run(f"run-{i}")
    assert len((await api.get(f"{TRIGGER}?limit=100000")).json()["dag_runs"]) == 3
    none = (await api.get(f"{TRIGGER}?limit=0")).json()
    assert (none["dag_runs"], none["total_entries"]) == ([], 3)
    assert (await api.get(f"{TRIGGER}?offset=2147483647")).json()["total_entries"] == 3


@pytest.mark.parametrize("name", ["%00", "a%00b", "%2e%2e", "%ff", "x" * 5000, "%F0%9F%90%8D", "'%20OR%201=1", "%0a"])
async def test_odd_names_in_the_path_are_just_not_there(api: httpx.AsyncClient, name: str) -> None:
    for path in (
        f"/api/v2/dags/{name}",
        f"/api/v2/dags/{name}/dagRuns/{name}",
        f"/api/v2/dags/~/dagRuns/{name}/taskInstances/{name}",
        f"/dexaflow/v1/runs/{name}/tasks/{name}/explain",
        f"/dexaflow/v1/runs/{name}/events",
        f"/api/v2/pools/{name}",
    ):
        answer = await api.get(path)
        is_problem(answer, 400 if "%00" in name else 404)


@pytest.mark.parametrize("number", ["-1", "x", "2147483648", "9" * 5000, "1.5", "1e9"])
async def test_numbers_in_the_path_are_numbers(api: httpx.AsyncClient, database: Database, number: str) -> None:
    database.dag()
    database.run()
    database.task()
    task = "/api/v2/dags/nightly_etl/dagRuns/run-1/taskInstances/extract"
    for path in (f"{task}/logs/{number}", f"{task}/tries/{number}", f"/api/v2/importErrors/{number}"):
        is_problem(await api.get(path), 422)


async def test_a_run_is_only_found_under_its_own_dag(api: httpx.AsyncClient, database: Database) -> None:
    database.dag()
    database.run()
    database.task()
    assert (await api.get("/api/v2/dags/nightly_etl/dagRuns/run-1")).status_code == 200
    is_problem(await api.get("/api/v2/dags/other/dagRuns/run-1"), 404)
    is_problem(await api.get("/api/v2/dags/other/dagRuns/run-1/taskInstances/extract/logs/1"), 404)
    is_problem(await api.patch("/api/v2/dags/other/dagRuns/run-1", json={"state": "failed"}), 404)
    is_problem(await api.post("/api/v2/dags/other/clearTaskInstances", json={"dag_run_id": "run-1"}), 404)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PATCH", "/api/v2/dags/nightly_etl", {"is_paused": "yes"}, 422),
        ("PATCH", "/api/v2/dags/nightly_etl?update_mask=owners", {"is_paused": True}, 422),
        ("PATCH", "/api/v2/dags/none", {"is_paused": True}, 404),
        ("POST", "/api/v2/pools", {"name": "a/b", "slots": 1}, 422),
        ("POST", "/api/v2/pools", {"name": "..", "slots": 1}, 422),
        ("POST", "/api/v2/pools", {"name": "a", "slots": 2**31}, 422),
        ("POST", "/api/v2/pools", {"name": "a", "slots": 1.5}, 422),
        ("POST", "/api/v2/pools", {"name": "a", "slots": True}, 422),
        ("POST", "/api/v2/pools", {"name": "a", "slots": 1, "include_deferred": True}, 422),
        ("PATCH", "/api/v2/pools/default_pool", {"pool": "renamed", "slots": 1}, 409),
        ("DELETE", "/api/v2/pools/default_pool", None, 409),
        ("DELETE", "/api/v2/pools/none", None, 404),
        ("POST", "/api/v2/dags/nightly_etl/clearTaskInstances", {}, 422),
        ("POST", "/api/v2/dags/nightly_etl/clearTaskInstances", {"dag_run_id": "run-1", "task_ids": ["no"]}, 404),
        (
            "POST",
            "/api/v2/dags/nightly_etl/clearTaskInstances",
            {"dag_run_id": "run-1", "task_ids": [["extract", 2]]},
            422,
        ),
        ("POST", "/api/v2/dags/nightly_etl/clearTaskInstances", {"dag_run_id": "run-1", "include_past": True}, 422),
        ("POST", "/api/v2/dags/nightly_etl/dagRuns/run-1/clear", {"run_on_latest_version": True}, 422),
        ("PATCH", "/api/v2/dags/nightly_etl/dagRuns/run-1", {"state": "queued"}, 422),
        ("POST", "/dexaflow/v1/runs/run-1/clear", {"task_ids": ["no"]}, 404),
        ("POST", "/dexaflow/v1/runs/run-1/clear", {"task_ids": []}, 422),
        ("POST", "/dexaflow/v1/runs/none/cancel", None, 404),
        ("PUT", "/dexaflow/v1/pools/small", {"slots": -1}, 422),
    ],
)
async def test_what_cannot_be_done_is_refused_with_what_to_do(
    api: httpx.AsyncClient, database: Database, method: str, path: str, body: object, status: int
) -> None:
    database.dag()
    database.run()
    database.task()
    is_problem(await api.request(method, path, **({} if body is None else {"json": body})), status)  # type: ignore[arg-type]


async def test_a_cancelled_run_cannot_be_cancelled_again(api: httpx.AsyncClient, database: Database) -> None:
    database.dag()
    database.run(state="failed", ended_at=at(9))
    is_problem(await api.post("/dexaflow/v1/runs/run-1/cancel"), 409)
    airflows = "/api/v2/dags/nightly_etl/dagRuns/run-1"
    is_problem(await api.patch(airflows, json={"state": "failed", "note": "again"}), 409)
    assert (await api.get(airflows)).json()["note"] != "again"


async def test_a_field_list_says_what_is_wrong(api: httpx.AsyncClient, database: Database) -> None:
    database.dag()
    answer = await api.post(TRIGGER, json={"dag_run_id": "a b", "note": 7})
    fields = {e["field"] for e in answer.json()["errors"]}
    assert fields == {"body.dag_run_id", "body.note"}


async def test_a_database_that_is_away_is_503_not_500(api: httpx.AsyncClient, database: Database) -> None:
    with database.writer.begin() as conn:
        conn.exec_driver_sql("DROP TABLE attempt_history")
        conn.exec_driver_sql("DROP TABLE task_instances")
        conn.exec_driver_sql("DROP TABLE runs")
    answer = await api.get("/api/v2/dags/~/dagRuns")
    is_problem(answer, 503)
    assert answer.headers["retry-after"]


async def test_an_error_nobody_thought_of_tells_nothing(
    api: httpx.AsyncClient, commands: StoreCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def explode() -> None:
        raise RuntimeError("a marker that must not be shown")

    monkeypatch.setattr(commands, "hooks_status", explode)
    assert "marker" not in is_problem(await api.get("/dexaflow/v1/hooks"), 500)

    async def away() -> None:
        raise StoreError("the database refused a write: disk full")

    monkeypatch.setattr(commands, "hooks_status", away)
    assert "disk full" in is_problem(await api.get("/dexaflow/v1/hooks"), 503)


HOSTILE = "<script>\"'&\u202e\u2028\x1b[2J\r\n\x7f\x85\ufeff" + "ü" * 30_000


async def test_hostile_text_from_outside_breaks_no_body(api: httpx.AsyncClient, database: Database) -> None:
    """A reason, label or note is text everywhere; JSON gives it as kept."""
    database.dag()
    database.run(note=HOSTILE, conf='{"a": "\\ud800", "b": NaN}')
    attempt = database.task("extract", State.HELD, reason=HOSTILE, hook=HOSTILE[:100], placement="not json")
    database.review(attempt, HOSTILE[:100], reason=HOSTILE, changes='{"labels": {"\\udfff": "x"}}')
    database.dag_error(cause=HOSTILE, file=HOSTILE[:50])
    run = (await api.get("/dexaflow/v1/runs/run-1")).json()
    assert run["note"] == HOSTILE
    assert run["conf"] == {"a": "\ufffd", "b": None}
    assert run["tasks"][0]["reason"] == HOSTILE
    told = (await api.get("/dexaflow/v1/runs/run-1/tasks/extract/explain")).json()
    assert told["admission"]["reviews"][0]["changes"] == {"labels": {"\ufffd": "x"}}
    note = (await api.get("/api/v2/dags/~/dagRuns/run-1/taskInstances/extract")).json()["note"]
    assert note.startswith(HOSTILE)
    assert (await api.get("/api/v2/importErrors")).status_code == 200
    assert (await api.get("/dexaflow/v1/holds")).json()["holds"][0]["hook"] == HOSTILE[:100]


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.text("\ud800\udc00ab\0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("\ud800x"), inner, max_size=3),
    max_leaves=10,
)


@given(JSON_LIKE)
def test_whatever_is_answered_is_json_in_utf8(value: object) -> None:
    json.loads(encode(value).decode("utf-8"), parse_constant=pytest.fail)


@given(JSON_LIKE)
def test_whatever_the_database_keeps_can_be_shown(value: object) -> None:
    shown = kept_json(json.dumps(value), None)
    json.loads(encode(shown).decode("utf-8"), parse_constant=pytest.fail)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=JSON_LIKE.map(lambda v: json.dumps(v).encode()) | st.binary(max_size=200))
async def test_no_body_is_answered_with_500(api: httpx.AsyncClient, body: bytes) -> None:
    for method, path in (("POST", TRIGGER), ("POST", "/dexaflow/v1/holds/ask-now"), ("PATCH", "/api/v2/dags/none")):
        answer = await api.request(method, path, content=body, headers=JSON)
        assert answer.status_code in (400, 404, 422)
        is_problem(answer, answer.status_code)


async def test_what_is_given_twice_or_unknown_is_named_and_not_ignored(
    api: httpx.AsyncClient, database: Database, operations: Operations
) -> None:
    """Of two values the last would count, and a filter that is ignored answers another question."""
    for method, path in operations.all:
        address = re.sub(r"{[^}]*}", "1", path)
        if path.startswith(("/api/", "/dexaflow/")) and path not in OPEN_PATHS:
            answer = await api.request(method, f"{address}?tenant_id=acme&tenant_id=globex")
            assert "'tenant_id' is given twice" in is_problem(answer, 422), (method, path)
            answer = await api.request(method, f"{address}?only_faild=true")
            assert "only_faild" in is_problem(answer, 422), (method, path)
    assert (await api.get("/dexaflow/v1/runs?state=success&state=failed")).status_code == 200
    assert (await api.get("/api/v2/dags?order_by=dag_id&order_by=-is_paused")).status_code in (200, 422)
    body = is_problem(await api.post(TRIGGER, content=b'{"note":"a","note":"b"}', headers=JSON), 422)
    assert "'note' twice" in body


@pytest.mark.parametrize(
    "name", ["%ff%fe", "%ed%a0%80", "%c0%80", "%1b[31m%0d%0a", "%e2%80%ae", "%2e%2e%2f", "x" * 5000]
)
async def test_no_address_upsets_any_operation(
    api: httpx.AsyncClient, database: Database, operations: Operations, name: str
) -> None:
    """Bytes that are no UTF-8, halves of pairs, escapes and ways out, wherever a name is taken."""
    database.dag()
    for method, path in operations.all:
        address = re.sub(r"{[^}]*}", name, path) + f"?dag_id={name}"
        answer = await api.request(method, address, content=b"{}", headers=JSON)
        assert answer.status_code < 500, (method, address, answer.text)
        assert answer.text.isprintable() or "metrics" in path, answer.text
