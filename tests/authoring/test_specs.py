"""The serialised form of DAGs: what is written is read back the same, and nothing else is read."""

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.kube.tolerations import Toleration
from dexaflow.model.dag_rules import PRESETS, TriggerRule, find_cycle
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.execution import Execution, Resources

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)
LINE = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8)
IDS = st.from_regex(r"[A-Za-z0-9_\-][A-Za-z0-9_.\-]{0,8}", fullmatch=True)
MAPS = st.dictionaries(TEXT, TEXT, max_size=3).map(MappingProxyType)
ENV = st.dictionaries(st.from_regex(r"[A-CE-Z_]{1,8}", fullmatch=True), TEXT, max_size=3).map(MappingProxyType)
SECONDS = st.floats(min_value=0.001, max_value=1e6)
QUANTITIES = st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), TEXT).map(MappingProxyType)
TIMES = st.datetimes(
    min_value=datetime(1970, 1, 2),  # noqa: DTZ001 - Hypothesis wants it naive
    max_value=datetime(2199, 12, 30),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]),
)
EXECUTIONS = st.builds(
    Execution,
    service_account=TEXT,
    node_selector=MAPS,
    tolerations=st.lists(st.builds(Toleration, TEXT, TEXT, TEXT, TEXT), max_size=2).map(tuple),
    labels=MAPS,
    annotations=MAPS,
    priority_class_name=TEXT,
)


@st.composite
def tasks(draw: st.DrawFn, task_id: str, before: list[str]) -> TaskSpec:
    upstream = sorted(draw(st.sets(st.sampled_from(before)))) if before else []
    results = sorted(draw(st.sets(st.sampled_from(upstream)))) if upstream else []
    operator = draw(st.sampled_from(["python", "bash"]))
    env_from = draw(st.dictionaries(st.just("ROWS"), st.sampled_from(results))) if results else {}
    return TaskSpec(
        task_id=task_id,
        operator=operator,
        upstream=tuple(upstream),
        results_from=tuple(results),
        trigger_rule=draw(st.sampled_from([str(rule) for rule in TriggerRule])),
        retries=draw(st.integers(0, 9)),
        retry_delay=draw(SECONDS),
        execution_timeout=draw(st.none() | SECONDS),
        pool=draw(LINE.filter(bool)),
        pool_slots=draw(st.integers(1, 9)),
        image=draw(LINE),
        env=draw(ENV),
        env_from=MappingProxyType(env_from if operator == "bash" else {}),
        bash_command=draw(TEXT.filter(bool)) if operator == "bash" else "",
        resources=draw(st.none() | st.builds(Resources, QUANTITIES, QUANTITIES)),
        execution=draw(EXECUTIONS),
        line=draw(st.integers(0, 10_000)),
    )


@st.composite
def dags(draw: st.DrawFn) -> DagSpec:
    ids = draw(st.lists(IDS, unique=True, max_size=4))
    return DagSpec(
        dag_id=draw(IDS),
        tasks=tuple(draw(tasks(task_id, ids[:index])) for index, task_id in enumerate(ids)),
        schedule=draw(st.none() | st.sampled_from([*PRESETS, "30 6 * * 1-5"])),
        timezone=draw(LINE.filter(bool)),
        start_date=draw(st.none() | TIMES),
        catchup=draw(st.booleans()),
        max_active_runs=draw(st.integers(1, 99)),
        dagrun_timeout=draw(st.none() | SECONDS),
        description=draw(TEXT),
        tags=tuple(draw(st.lists(LINE.filter(bool), unique=True, max_size=3))),
        image=draw(LINE),
        line=draw(st.integers(0, 10_000)),
    )


@given(dags())
def test_a_dag_that_is_written_is_read_back_the_same(spec: DagSpec) -> None:
    wire = json.dumps(spec.to_json())

    assert DagSpec.from_json(json.loads(wire)) == spec
    assert json.dumps(DagSpec.from_json(json.loads(wire)).to_json()) == wire


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


@given(dags(), st.data())
def test_a_record_with_anything_in_it_is_read_or_refused_with_a_value_error(spec: DagSpec, data: st.DataObject) -> None:
    """Whatever is put in whatever place, what is read back is sound enough to be written again."""
    document: Any = copy.deepcopy(spec.to_json())
    place: Any = document
    if document["tasks"] and data.draw(st.booleans()):
        place = document["tasks"][0]
    place[data.draw(st.sampled_from(sorted(place)) | st.text(max_size=5))] = data.draw(JSON)
    try:
        read = DagSpec.from_json(document)
    except ValueError:
        return
    assert DagSpec.from_json(json.loads(json.dumps(read.to_json(), allow_nan=False))) == read


def two_tasks() -> Any:
    first = TaskSpec("a", "python")
    return DagSpec("etl", (first, TaskSpec("b", "bash", ("a",), ("a",), bash_command="x"))).to_json()


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("tasks", 0, "upstream"), ["zz"], "'a' is downstream of 'zz', which is not there"),
        (("tasks", 1, "task_id"), "a", "upstream tasks"),
        (("tasks", 0, "upstream"), ["b"], "cycle"),
        (("tasks", 1, "upstream"), ["a", "a"], "sorted, none twice"),
        (("tasks", 1, "results_from"), ["c"], "results_from"),
        (("tasks", 1, "bash_command"), "", "bash_command"),
        (("tasks", 0, "env_from"), {"A": "b"}, "env_from"),
        (("tasks", 0, "operator"), "spark", "operator"),
        (("tasks", 0, "retries"), True, "task.retries: must be a whole number"),
        (("tasks", 0, "color"), "red", "task: unknown field 'color'"),
        (("start_date",), "2024-01-01T00:00:00", "a moment with an offset"),
        (("start_date",), "0001-01-01T00:00:00+14:00", "from 1970 to 2199"),
        (("dag_id",), "a\n", "dag.dag_id"),
        (("dag_id",), "..", "dag.dag_id"),
        (("schedule",), "* * * *", "dag.schedule"),
        (("tasks",), {}, "must be a list"),
    ],
)
def test_a_record_that_does_not_hold_together_is_refused(path: tuple[Any, ...], value: Any, said: str) -> None:
    document = two_tasks()
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    with pytest.raises(ValueError, match=said):
        DagSpec.from_json(document)


def test_a_task_twice_is_refused() -> None:
    document = two_tasks()
    document["tasks"].append(document["tasks"][0])

    with pytest.raises(ValueError, match="'a' is there twice"):
        DagSpec.from_json(document)


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef")), max_size=6))
def test_a_cycle_that_is_found_is_one_and_none_is_missed(graph: dict[str, list[str]]) -> None:
    cycle = find_cycle(graph)

    if cycle:
        for before, after in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
            assert before in graph.get(after, [])
    else:
        left = dict(graph)
        while free := [node for node in left if not any(up in left for up in left[node])]:
            for node in free:
                del left[node]
        assert not left
