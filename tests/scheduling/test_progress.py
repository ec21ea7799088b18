"""Issue, "The DAG author": dependencies and `trigger_rule`, with Airflow's meanings."""

from collections import Counter
from itertools import product
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexaflow.model.dag_rules import TriggerRule
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import ENDED, TRANSITIONS, Event, RunState, State, next_state
from dexaflow.scheduling.progress import Progress, advance, decide, reasons
from tests.scheduling.builders import a_dag

S, E = State, Event
LETTERS: Final = {
    "s": S.SUCCESS,
    "f": S.FAILED,
    "u": S.UPSTREAM_FAILED,
    "k": S.SKIPPED,
    ".": S.RUNNING,
}
NOT_ENDED = sorted(set(State) - ENDED)
ANSWERS: Final = {"due": E.DUE, "skip": E.UPSTREAM_SKIPPED, "upstream_failed": E.UPSTREAM_FAILED, "wait": None}

# What Airflow does, rule by rule: upstream states (s success, f failed, u upstream_failed, k skipped, . not ended).
TABLE: Final = {
    "all_success": {
        "due": "s ss sss",
        "upstream_failed": "f u f. u. sf sfk kf fu f..",
        "skip": "k k. sk kk k..",
        "wait": ". s. .. ss.",
    },
    "all_failed": {
        "due": "f u ff fu uu fuf",
        "skip": "s k s. k. sf fk su f.s",
        "wait": ". f. u. .. fu.",
    },
    "all_done": {
        "due": "s f u k sf su ku kk sfuk",
        "wait": ". s. f. k. u. sfu.",
    },
    "all_done_min_one_success": {
        "due": "s ss sf su sfu",
        "skip": "k k. sk fk kk sfk",
        "upstream_failed": "f u ff fu",
        "wait": ". s. f. u. sf. ..",
    },
    "all_skipped": {
        "due": "k kk kkk",
        "skip": "s f u s. f. u. ks kf ku k.s",
        "wait": ". k. .. kk.",
    },
    "one_success": {
        "due": "s s. sf sk su s.. fs.",
        "skip": "k kk kkk",
        "upstream_failed": "f u ff fk uk fu",
        "wait": ". f. k. u. fk. ..",
    },
    "one_failed": {
        "due": "f u f. u. fs fk f.. su.",
        "skip": "s k ss sk kk",
        "wait": ". s. k. sk. ..",
    },
    "one_done": {
        "due": "s f s. f. sk fk su f..",
        "skip": "k u kk uk uu",
        "wait": ". k. u. ku. ..",
    },
    "none_failed": {
        "due": "s k ss sk kk",
        "upstream_failed": "f u f. u. sf kf sku",
        "wait": ". s. k. sk. ..",
    },
    "none_failed_min_one_success": {
        "due": "s ss sk skk",
        "skip": "k kk kkk",
        "upstream_failed": "f u f. u. sf kf kku",
        "wait": ". s. k. kk. sk. ..",
    },
    "none_skipped": {
        "due": "s f u ss sf fu sfu",
        "skip": "k k. sk fk uk k..",
        "wait": ". s. f. u. sf. ..",
    },
    "always": {
        "due": "s f u k . s. .. sfuk.",
    },
}
CASES = [
    (rule, letters, ANSWERS[answer])
    for rule, answers in TABLE.items()
    for answer, rows in answers.items()
    for letters in rows.split()
]


def _states(letters: str) -> dict[str, State]:
    return {f"up{i}": LETTERS[letter] for i, letter in enumerate(letters)}


@pytest.mark.parametrize(("rule", "letters", "event"), CASES)
def test_a_trigger_rule_decides_as_airflows_does(rule: str, letters: str, event: Event | None) -> None:
    states = _states(letters)
    dag = a_dag({**dict.fromkeys(states, ()), "task": states}, {"task": rule})
    assert advance(dag, {**states, "task": S.NONE}).moves == (() if event is None else (("task", event),))


def test_the_table_has_every_trigger_rule() -> None:
    assert set(TABLE) == {str(rule) for rule in TriggerRule}


@pytest.mark.parametrize("rule", TriggerRule)
@pytest.mark.parametrize("state", NOT_ENDED)
def test_what_has_not_ended_counts_as_not_done_whatever_it_waits_for(rule: TriggerRule, state: State) -> None:
    """Held, launching and up_for_retry among them: their outcome is open."""
    assert decide(rule, {state: 1}) is (E.DUE if rule is TriggerRule.ALWAYS else None)
    assert decide(rule, {S.SUCCESS: 1, state: 1}) is decide(rule, {S.SUCCESS: 1, S.RUNNING: 1})


@pytest.mark.parametrize("rule", TriggerRule)
def test_a_task_without_upstream_tasks_is_due_whatever_its_rule(rule: TriggerRule) -> None:
    assert advance(a_dag({"task": ()}, {"task": rule}), {"task": S.NONE}).moves == (("task", E.DUE),)


upstreams = st.dictionaries(st.sampled_from(State), st.integers(1, 3), min_size=1, max_size=4)


@given(rule=st.sampled_from(TriggerRule), upstream=upstreams)
def test_every_rule_has_decided_once_everything_upstream_has_ended(
    rule: TriggerRule, upstream: dict[State, int]
) -> None:
    """No run waits for ever."""
    if all(state in ENDED for state in upstream):
        assert decide(rule, upstream) is not None


@given(rule=st.sampled_from(TriggerRule), upstream=upstreams, later=st.sampled_from(sorted(ENDED)))
def test_a_task_that_became_due_early_would_still_be_due_later(
    rule: TriggerRule, upstream: dict[State, int], later: State
) -> None:
    """What is due is never taken back by what ends after it, so it may be given slots at once."""
    if decide(rule, upstream) is E.DUE and rule is not TriggerRule.ALWAYS:
        ended: Counter[State] = Counter()
        for state, count in upstream.items():
            ended[state if state in ENDED else later] += count
        assert decide(rule, ended) is E.DUE


CHAIN = a_dag({"a": (), "b": ("a",), "c": ("b",), "d": ("c",)})


def test_a_failure_cascades_to_the_end_of_the_run_in_one_call() -> None:
    progress = advance(CHAIN, {"a": S.FAILED, "b": S.NONE, "c": S.NONE, "d": S.NONE})
    assert progress == Progress(
        (("b", E.UPSTREAM_FAILED), ("c", E.UPSTREAM_FAILED), ("d", E.UPSTREAM_FAILED)), RunState.FAILED
    )


def test_a_skip_cascades_until_a_rule_takes_it() -> None:
    dag = a_dag({"d": ("c",), "c": ("b",), "b": ("a",), "a": ()}, {"d": "all_done"})
    progress = advance(dag, {"a": S.SKIPPED, "b": S.NONE, "c": S.NONE, "d": S.NONE})
    assert progress == Progress((("b", E.UPSTREAM_SKIPPED), ("c", E.UPSTREAM_SKIPPED), ("d", E.DUE)), None)


def test_what_can_never_begin_names_the_tasks_that_decided_it() -> None:
    """The first of them, and how many more: in a cascade the one right above, whose own reason goes on."""
    many = {f"u{number}": () for number in range(8)}
    graph: dict[str, tuple[str, ...]] = {
        **many, "ok": (), "all": (*many, "ok"), "below": ("all",), "none": ("ok", "u0"), "one": ("ok", "below"),
    }  # fmt: skip
    dag = a_dag(graph, {"none": TriggerRule.ALL_FAILED, "one": TriggerRule.ALL_SKIPPED})
    states = {**dict.fromkeys(graph, S.NONE), **dict.fromkeys(many, S.FAILED), "ok": S.SUCCESS}
    first = ", ".join(f"u{number} is failed" for number in range(5))
    assert reasons(dag, states, advance(dag, states)) == {
        "all": f"an upstream task failed: {first} and 3 more",
        "below": "an upstream task failed: all is upstream_failed",
        "none": "its trigger rule all_failed cannot be met: ok is success",
        "one": "its trigger rule all_skipped cannot be met: below is upstream_failed, ok is success",
    }


@pytest.mark.parametrize("rule", TriggerRule)
def test_every_end_without_a_beginning_has_a_reason(rule: TriggerRule) -> None:
    dag = a_dag({"a": (), "b": (), "task": ("a", "b")}, {"task": rule})
    for a, b in product(ENDED, repeat=2):
        states = {"a": a, "b": b, "task": S.NONE}
        progress = advance(dag, states)
        said = reasons(dag, states, progress)
        assert set(said) == {task_id for task_id, event in progress.moves if event is not E.DUE}
        assert all(" is " in reason for reason in said.values())


def test_what_became_due_has_not_ended_for_the_tasks_after_it() -> None:
    assert advance(CHAIN, dict.fromkeys("abcd", S.NONE)) == Progress((("a", E.DUE),), None)


def test_a_task_with_two_upstreams_is_judged_when_both_cascades_have_come() -> None:
    """The answer does not depend on the order in which tasks stand in the file."""
    graph = {"end": ("left", "right"), "right": ("bad",), "left": ("skipped",), "bad": (), "skipped": ()}
    states = {"bad": S.FAILED, "skipped": S.SKIPPED, "left": S.NONE, "right": S.NONE, "end": S.NONE}
    for names in (list(graph), sorted(graph), sorted(graph, reverse=True)):
        progress = advance(a_dag({name: graph[name] for name in names}), states)
        assert dict(progress.moves)["end"] is E.UPSTREAM_FAILED
        assert progress.end is RunState.FAILED


@pytest.mark.parametrize(
    ("leaf", "end"),
    [
        (S.SUCCESS, RunState.SUCCESS),
        (S.SKIPPED, RunState.SUCCESS),
        (S.FAILED, RunState.FAILED),
        (S.UPSTREAM_FAILED, RunState.FAILED),
    ],
)
@pytest.mark.parametrize("inner", sorted(ENDED))
def test_the_leaves_decide_how_a_run_ends(leaf: State, end: RunState, inner: State) -> None:
    """As in Airflow: a failure that a later task took care of does not fail the run."""
    dag = a_dag({"inner": (), "leaf": ("inner",), "other": ("inner",)})
    assert advance(dag, {"inner": inner, "leaf": leaf, "other": S.SUCCESS}).end is end


@pytest.mark.parametrize("state", NOT_ENDED)
def test_a_run_goes_on_while_anything_has_not_ended(state: State) -> None:
    dag = a_dag({"a": (), "b": ()})
    assert advance(dag, {"a": S.FAILED, "b": state}).end is None


def test_a_run_without_tasks_has_succeeded() -> None:
    assert advance(a_dag({}), {}) == Progress((), RunState.SUCCESS)


def test_only_waiting_tasks_are_moved() -> None:
    """A cleared upstream task does not take back what runs after it."""
    dag = a_dag({"a": (), "b": ("a",)})
    assert advance(dag, {"a": S.NONE, "b": S.RUNNING}).moves == (("a", E.DUE),)


def test_a_long_chain_cascades_without_recursion() -> None:
    names = [f"t{i:05}" for i in range(5000)]
    dag = a_dag({name: names[i - 1 : i] if i else () for i, name in reversed(list(enumerate(names)))})
    progress = advance(dag, {**dict.fromkeys(names, S.NONE), names[0]: S.SKIPPED})
    assert (len(progress.moves), progress.end) == (4999, RunState.SUCCESS)


@st.composite
def dags(draw: st.DrawFn) -> DagSpec:
    names = draw(st.permutations([f"t{i}" for i in range(draw(st.integers(1, 8)))]))
    graph = {name: draw(st.sets(st.sampled_from(names[:i]))) if i else set[str]() for i, name in enumerate(names)}
    order = draw(st.permutations(names))
    return a_dag({name: graph[name] for name in order}, {n: draw(st.sampled_from(TriggerRule)) for n in names})


def _apply(states: dict[str, State], progress: Progress) -> None:
    for task_id, event in progress.moves:
        moved = next_state(states[task_id], event)
        assert moved is not None, (task_id, states[task_id], event)  # the table allows it
        states[task_id] = moved


@settings(max_examples=300)
@given(dag=dags(), data=st.data())
def test_every_run_ends_whatever_becomes_of_its_tasks(dag: DagSpec, data: st.DataObject) -> None:
    """No deadlock: as long as a run has not ended, one of its tasks is under way; no move is forbidden by the table."""
    states = dict.fromkeys((task.task_id for task in dag.tasks), S.NONE)
    for _ in range(1000):
        progress = advance(dag, states)
        _apply(states, progress)
        again = advance(dag, states)
        assert again == Progress((), progress.end)  # one call says it all
        assert (progress.end is not None) is all(state in ENDED for state in states.values())
        if progress.end is not None:
            return
        under_way = sorted(t for t, state in states.items() if state not in ENDED and state is not S.NONE)
        assert under_way, states
        task_id = data.draw(st.sampled_from(under_way))
        ways = sorted(e for s, e in TRANSITIONS if s is states[task_id] and e is not E.CLEARED and e not in _ROUND)
        moved = next_state(states[task_id], data.draw(st.sampled_from(ways)))
        assert moved is not None
        states[task_id] = moved
    raise AssertionError("the run did not end")


_ROUND: Final = {E.HELD, E.LOST, E.REQUEUED, E.ADMITTED_POOL_FULL, E.FAILED_RETRY}  # may repeat for ever
