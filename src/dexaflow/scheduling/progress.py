"""What follows from the states of a run's tasks: which are due, which can never be, and whether the run has ended.

The trigger rules are Airflow's, to the letter: which states count, what is skipped and what is `upstream_failed`, and
which rules are decided before every upstream task has ended.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from dexaflow.model.dag_rules import TriggerRule
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import ENDED, Event, RunState, State, next_state

__all__ = ["Progress", "advance", "decide", "reasons"]

_FAILED = frozenset({State.FAILED, State.UPSTREAM_FAILED})
_NAMED = 5  # tasks upstream that a reason names
# The states that decide against a rule by themselves; against the others all that has ended does.
_TELLING: Mapping[TriggerRule, frozenset[State]] = {
    TriggerRule.ALL_SUCCESS: frozenset({State.SKIPPED}),
    TriggerRule.ALL_FAILED: frozenset({State.SUCCESS, State.SKIPPED}),
    TriggerRule.ALL_DONE_MIN_ONE_SUCCESS: frozenset({State.SKIPPED}),
    TriggerRule.ALL_SKIPPED: frozenset({State.SUCCESS, *_FAILED}),
    TriggerRule.NONE_SKIPPED: frozenset({State.SKIPPED}),
}


@dataclass(frozen=True, slots=True)
class Progress:
    """The moves that follow, in an order in which they can be made, and how the run ends once they are made."""

    moves: tuple[tuple[str, Event], ...]  # task_id and what happens to it; all of them are in `State.NONE`
    end: RunState | None  # None: tasks are left


def advance(dag: DagSpec, states: Mapping[str, State]) -> Progress:
    """Return all that follows from `states`, to the end: after these moves, nothing more does.

    A task is looked at once all the tasks upstream of it have been, so one call settles a whole cascade of skips. The
    run has ended when every task has; its leaves decide how: it failed if one of them failed or is upstream_failed.

    Takes time in proportion to the tasks and edges. Raises `KeyError` when `states` lacks a task of the DAG.
    """
    after = {task.task_id: states[task.task_id] for task in dag.tasks}
    waiting = {task.task_id: task for task in dag.tasks if after[task.task_id] is State.NONE}
    unseen: dict[str, int] = {}
    downstream: dict[str, list[str]] = {}
    for task_id, task in waiting.items():
        above = [up for up in task.upstream if up in waiting]
        unseen[task_id] = len(above)
        for up in above:
            downstream.setdefault(up, []).append(task_id)
    ready = [task_id for task_id, count in unseen.items() if count == 0]
    moves: list[tuple[str, Event]] = []
    for task_id in ready:  # grows while it is walked
        task = waiting[task_id]
        event = decide(TriggerRule(task.trigger_rule), Counter(after[up] for up in task.upstream))
        moved = None if event is None else next_state(State.NONE, event)
        if event is not None and moved is not None:
            after[task_id] = moved
            moves.append((task_id, event))
        for down in downstream.get(task_id, ()):
            unseen[down] -= 1
            if unseen[down] == 0:
                ready.append(down)
    return Progress(tuple(moves), _end(dag, after))


def reasons(dag: DagSpec, states: Mapping[str, State], progress: Progress) -> dict[str, str]:
    """Return why each task that `progress` ends can never begin, naming the tasks upstream that decided it."""
    ended = {task_id: event for task_id, event in progress.moves if event is not Event.DUE}
    if not ended:
        return {}
    after = dict(states)
    for task_id, event in progress.moves:
        after[task_id] = next_state(State.NONE, event) or State.NONE
    found = {}
    for task in dag.tasks:
        if task.task_id in ended:
            rule = TriggerRule(task.trigger_rule)
            above = {up: after[up] for up in task.upstream if after[up] in ENDED}
            failed = {up: state for up, state in above.items() if state in _FAILED}
            if ended[task.task_id] is Event.UPSTREAM_FAILED and failed:
                found[task.task_id] = f"an upstream task failed: {_named(failed)}"
                continue
            telling = {up: state for up, state in above.items() if state in _TELLING.get(rule, ENDED)}
            found[task.task_id] = f"its trigger rule {rule} cannot be met: {_named(telling or above)}"
    return found


def _named(tasks: Mapping[str, State]) -> str:
    said = [f"{task_id} is {state}" for task_id, state in list(tasks.items())[:_NAMED]]
    return ", ".join(said) + (f" and {len(tasks) - _NAMED} more" if len(tasks) > _NAMED else "")


def _end(dag: DagSpec, states: Mapping[str, State]) -> RunState | None:
    if not all(state in ENDED for state in states.values()):
        return None
    inner = {up for task in dag.tasks for up in task.upstream}
    leaves = (task_id for task_id in states if task_id not in inner)
    return RunState.FAILED if any(states[leaf] in _FAILED for leaf in leaves) else RunState.SUCCESS


def decide(rule: TriggerRule, upstream: Mapping[State, int]) -> Event | None:
    """Return what becomes of a waiting task, or None while that is open.

    Args:
        rule: The task's trigger rule.
        upstream: How many of the tasks directly upstream are in each state.
    """
    total = sum(upstream.values())
    if total == 0 or rule is TriggerRule.ALWAYS:
        return Event.DUE
    success, skipped = upstream.get(State.SUCCESS, 0), upstream.get(State.SKIPPED, 0)
    failed, upstream_failed = upstream.get(State.FAILED, 0), upstream.get(State.UPSTREAM_FAILED, 0)
    bad = failed + upstream_failed
    done = success + skipped + bad == total
    match rule:
        case TriggerRule.ALL_SUCCESS:
            return _first((bad, _U), (skipped, _K), (done, _D))
        case TriggerRule.ALL_FAILED:
            return _first((success or skipped, _K), (done, _D))
        case TriggerRule.ALL_DONE:
            return _first((done, _D))
        case TriggerRule.ALL_DONE_MIN_ONE_SUCCESS:
            return _first((skipped, _K), (done and not success, _U), (done, _D))
        case TriggerRule.ALL_SKIPPED:
            return _first((success or bad, _K), (done, _D))
        case TriggerRule.ONE_SUCCESS:
            return _first((success, _D), (done and not bad, _K), (done, _U))
        case TriggerRule.ONE_FAILED:
            return _first((bad, _D), (done, _K))
        case TriggerRule.ONE_DONE:  # upstream_failed has not run, so it does not count as done
            return _first((success or failed, _D), (done, _K))
        case TriggerRule.NONE_FAILED:
            return _first((bad, _U), (done, _D))
        case TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS:
            return _first((bad, _U), (done and not success, _K), (done, _D))
        case TriggerRule.NONE_SKIPPED:
            return _first((skipped, _K), (done, _D))
    assert_never(rule)


_D, _K, _U = Event.DUE, Event.UPSTREAM_SKIPPED, Event.UPSTREAM_FAILED


def _first(*cases: tuple[int, Event]) -> Event | None:
    return next((event for holds, event in cases if holds), None)
