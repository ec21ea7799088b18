"""What a clearing is about (R6.3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.errors import NotFound
from dexaflow.model.clearing import tasks_to_clear
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import State
from tests.scheduling.builders import a_dag

DAG = a_dag({"first": (), "from": (), "between": ("from", "first"), "to": ("between",), "other": ()})
ENDED = dict.fromkeys(("first", "from", "between", "to", "other"), State.FAILED)


def test_what_leads_to_a_task_is_all_there_also_where_it_lies_below_another() -> None:
    """The one between both is chosen from above already; what else it depends on is not."""
    chosen = tasks_to_clear(DAG, ENDED, ["from", "to"], downstream=True, upstream=True)
    assert chosen == ("between", "first", "from", "to")


def test_without_names_it_is_about_all_and_with_a_name_about_that_task_alone() -> None:
    assert tasks_to_clear(DAG, ENDED, None) == tuple(sorted(ENDED))
    assert tasks_to_clear(DAG, ENDED, ["between"]) == ("between",)


def test_only_what_is_in_the_states_asked_for_and_has_begun_is_cleared() -> None:
    states = {"first": "success", "from": "failed", "between": "upstream_failed", "to": "none", "other": "running"}
    assert tasks_to_clear(DAG, states, None) == ("between", "first", "from", "other")
    assert tasks_to_clear(DAG, states, None, only_failed=True) == ("between", "from")
    assert tasks_to_clear(DAG, states, None, only_running=True) == ("other",)


def test_a_task_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NotFound, match="DAG 'nightly' has no task 'nope'; its tasks are between, first, from"):
        tasks_to_clear(DAG, ENDED, ["nope"])


@st.composite
def dags(draw: st.DrawFn) -> DagSpec:
    names = [f"t{number}" for number in range(draw(st.integers(1, 7)))]
    return a_dag({name: draw(st.sets(st.sampled_from(names[:at]))) if at else () for at, name in enumerate(names)})


@given(dags(), st.data())
def test_what_is_chosen_is_what_a_path_leads_to(dag: DagSpec, data: st.DataObject) -> None:
    states = {task.task_id: State.SUCCESS for task in dag.tasks}
    above = {task.task_id: set(task.upstream) for task in dag.tasks}
    named = data.draw(st.sets(st.sampled_from(sorted(above)), min_size=1))
    leads: dict[str, set[str]] = {}  # to a task, from which; each task stands behind those before it
    for task_id, others in above.items():
        leads[task_id] = others.union(*(leads[other] for other in others))

    down = tasks_to_clear(dag, states, sorted(named), downstream=True)
    up = tasks_to_clear(dag, states, sorted(named), upstream=True)

    assert set(down) == {task_id for task_id in above if task_id in named or leads[task_id] & named}
    assert set(up) == named.union(*(leads[task_id] for task_id in named))
    assert set(tasks_to_clear(dag, states, sorted(named), downstream=True, upstream=True)) == {*down, *up}
