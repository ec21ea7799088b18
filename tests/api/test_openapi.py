"""What OpenAPI publishes is what is there."""

import re

import httpx

from tests.api.conftest import Operations


async def test_it_is_published_with_every_answer_and_who_may_ask(api: httpx.AsyncClient) -> None:
    document = (await api.get("/openapi.json")).json()
    assert document["security"] == [{"bearer": []}]
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    open_paths = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"]
            assert operation["summary"]
            assert operation["description"], (method, path)
            if operation.get("security") == []:
                open_paths.add(path)
                continue
            assert answers["401"]["content"] == problem
            for status in ("400", "422", "503"):
                assert answers[status]["content"] == problem, (method, path, status)
            if "{" in path and "/pools/{pool_name}" not in path:
                assert answers["404"]["content"] == problem, (method, path)
    assert len(open_paths) == 6
    assert "HTTPValidationError" not in document["components"]["schemas"]


async def test_every_reference_in_it_leads_somewhere(api: httpx.AsyncClient) -> None:
    answer = await api.get("/openapi.json")
    known = answer.json()["components"]["schemas"]
    found = {part.split('"')[0] for part in answer.text.split("#/components/schemas/")[1:]}
    assert found <= known.keys()


async def test_a_generated_client_gets_plain_names_and_texts_that_its_reader_can_follow(api: httpx.AsyncClient) -> None:
    """No paths in the names of functions, and nothing of ours between us in the texts."""
    answer = await api.get("/openapi.json")
    document = answer.json()
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names)) > 40
    for name in names:
        assert re.fullmatch(r"[a-z]+(_[a-z]+){0,4}", name), name
    assert {"trigger_run", "cancel_run", "clear_run", "explain_task", "trigger_dag_run"} <= set(names)
    assert re.findall(r"\bR\d+\.\d+", answer.text) == []
    assert '"binary"' not in answer.text  # generators make of a text that is said to be one what cannot be read
    assert "`/dexaflow/v1`" in document["info"]["description"]
    assert "Commands" not in document["info"]["description"]


def test_no_operation_of_the_agents_is_published(operations: Operations) -> None:
    assert not [path for _, path in operations.all if path.startswith("/agent")]
