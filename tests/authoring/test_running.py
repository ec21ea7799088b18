"""Running one try of a task, as the agent's runner does."""

import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dexaflow.authoring.context import ContextError
from dexaflow.authoring.results import MAX_RESULT_BYTES, ResultError, checked_result
from dexaflow.authoring.running import bash_environment, run_task
from dexaflow.base.errors import NotFound

CONTEXT = {
    "tenant_id": "acme",
    "dag_id": "etl",
    "run_id": "r1",
    "task_id": "t",
    "try_number": 2,
    "logical_date": "2024-01-01T00:00:00+00:00",
    "data_interval_start": "2024-01-01T00:00:00+00:00",
    "data_interval_end": None,
    "conf": {"day": "mon"},
}


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def run(tmp_path: Path, body: str, task_id: str = "t", inputs: Any = None, context: Any = None) -> Any:
    head = "from dexaflow import DAG, bash, get_context, task\nwith DAG('etl', params={'day': 'sun', 'n': 1}):\n"
    (tmp_path / "etl.py").write_text(head + textwrap.indent(textwrap.dedent(body), "    "))
    return run_task("etl.py", str(tmp_path), "etl", task_id, inputs or {}, context or CONTEXT)


def test_a_task_gets_the_results_it_asked_for_where_it_asked(tmp_path: Path) -> None:
    body = """
        @task
        def first(): ...
        @task
        def second(): ...
        @task
        def t(*args, **kwargs): return [args, kwargs]
        t(first(), [1, {"deep": (second(), 2)}], other={"same": 3})
    """
    result = run(tmp_path, body, inputs={"first": {"n": 1}, "second": "two"})

    assert result == [[{"n": 1}, [1, {"deep": ["two", 2]}]], {"other": {"same": 3}}]


def test_the_result_of_a_task_that_left_none_is_none(tmp_path: Path) -> None:
    """A trigger rule may let a task run after one that was skipped."""
    body = """
        @task
        def gone(): ...
        @task
        def t(value): return [value]
        t(gone())
    """
    assert run(tmp_path, body) == [None]


def test_a_coroutine_is_run_to_its_end(tmp_path: Path) -> None:
    body = """
        import asyncio
        @task
        async def t():
            await asyncio.sleep(0)
            return 7
        t()
    """
    with ThreadPoolExecutor() as pool:  # pytest has a loop of its own in this thread
        assert pool.submit(run, tmp_path, body).result() == 7


def test_a_task_knows_its_context(tmp_path: Path) -> None:
    """Ids, try number, aware moments, conf, and params with conf over the DAG's."""
    body = """
        @task
        def t():
            c = get_context()
            assert c["run_id"] == c.run_id
            return [c.tenant_id, c.dag_id, c.run_id, c.task_id, c.try_number, c.logical_date.isoformat(),
                    c.logical_date.tzinfo is not None, c.data_interval_end, dict(c.conf), dict(c.params)]
        t()
    """
    assert run(tmp_path, body) == [
        "acme", "etl", "r1", "t", 2, "2024-01-01T00:00:00+00:00", True, None, {"day": "mon"}, {"day": "mon", "n": 1},
    ]  # fmt: skip


def test_local_modules_are_found_and_leave_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 5\n")
    body = """
        @task
        def t():
            from helper import VALUE
            return VALUE
        t()
    """
    assert run(tmp_path, body) == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["etl.py", "helper.py"]


def test_what_the_function_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, "@task\ndef t(): 1 / 0\nt()")


def test_a_file_that_makes_other_tasks_this_time_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="has no task 't' when it is executed for the task"):
        run(tmp_path, "pass")
    with pytest.raises(NotFound, match="runs bash, not a function"):
        run(tmp_path, "bash('t', 'true')")
    with pytest.raises(NotFound, match="makes no DAG 'other'"):
        run_task("etl.py", str(tmp_path), "other", "t", {}, CONTEXT)


def test_a_file_loaded_again_gives_its_present_tasks(tmp_path: Path) -> None:
    assert run(tmp_path, "@task\ndef t(): return 1\nt()") == 1
    assert run(tmp_path, "@task\ndef t(): return 2\nt()") == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"try_number": 0}, "try_number must be a whole number from 1"),
        ({"run_id": None}, "run_id must be text"),
        ({"logical_date": "2024-01-01"}, "logical_date must be a moment with an offset"),
        ({"logical_date": "yesterday"}, "logical_date must be ISO 8601"),
        ({"conf": []}, "conf must be an object"),
        ({"colour": "red"}, "unknown field 'colour'"),
    ],
)
def test_a_context_that_cannot_be_used_is_told_so(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ContextError, match=said):
        bash_environment({}, {}, {}, {**CONTEXT, **change})


def test_bash_gets_its_context_and_the_results_as_variables() -> None:
    env = bash_environment(
        {"A": "b"},
        {"TEXT": "a", "ROWS": "b", "NONE": "c", "GONE": "d"},
        {"a": 'it\'s "raw"', "b": [1, {"é": None}], "c": None},
        CONTEXT,
    )

    assert env == {
        "A": "b",
        "TEXT": 'it\'s "raw"',
        "ROWS": '[1,{"é":null}]',
        "NONE": "",
        "GONE": "",
        "DEXAFLOW_TENANT_ID": "acme",
        "DEXAFLOW_DAG_ID": "etl",
        "DEXAFLOW_RUN_ID": "r1",
        "DEXAFLOW_TASK_ID": "t",
        "DEXAFLOW_TRY_NUMBER": "2",
        "DEXAFLOW_LOGICAL_DATE": "2024-01-01T00:00:00+00:00",
        "DEXAFLOW_DATA_INTERVAL_START": "2024-01-01T00:00:00+00:00",
        "DEXAFLOW_DATA_INTERVAL_END": "",
        "DEXAFLOW_CONF": '{"day":"mon"}',
    }


def test_a_result_with_a_nul_cannot_be_a_variable() -> None:
    with pytest.raises(ResultError, match="holds a NUL"):
        bash_environment({}, {"A": "a"}, {"a": "x\0"}, CONTEXT)


def test_a_result_may_have_64_kib_of_json_and_not_a_byte_more() -> None:
    assert checked_result("é" * 32_767) == "é" * 32_767  # two bytes each, and the quotes

    with pytest.raises(ResultError, match="is 65538 bytes of JSON, at most 65536"):
        checked_result("é" * 32_768)
    assert MAX_RESULT_BYTES == 65_536


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_number_too_long_to_print_is_no_result() -> None:
    with pytest.raises(ResultError, match="Exceeds the limit"):
        checked_result(10**5000)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"rows": [1, object()]}, r"result\['rows'\]\[1\]: object is not JSON"),
        ({1: 2}, "the key 1 is int; keys must be text"),
        (float("nan"), "nan is not JSON"),
        ([float("-inf")], r"result\[0\]: -inf is not JSON"),
        (b"x", "bytes is not JSON"),
        ({1, 2}, "set is not JSON"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        (nested(5000), "nested deeper than 100"),
    ],
    ids=range(9),
)
def test_what_is_not_json_is_no_result(value: Any, said: str) -> None:
    with pytest.raises(ResultError, match=said) as caught:
        checked_result(value)

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
