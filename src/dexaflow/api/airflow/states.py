"""Our states in Airflow's words, and back: only Airflow's states appear in bodies shaped like Airflow's."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from dexaflow.api.problems import Problem
from dexaflow.model.states import RunState, State

__all__ = ["AIRFLOW_STATES", "STATE_WORDS", "AirflowState", "in_airflows_words", "in_our_words", "run_states"]


class AirflowState(StrEnum):
    """The states of a task instance that Airflow's client knows; null is one more."""

    REMOVED = "removed"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    RESTARTING = "restarting"
    FAILED = "failed"
    UP_FOR_RETRY = "up_for_retry"
    UP_FOR_RESCHEDULE = "up_for_reschedule"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    DEFERRED = "deferred"
    AWAITING_INPUT = "awaiting_input"


AIRFLOW_STATES: Mapping[State, AirflowState | None] = {
    State.NONE: None,
    State.SCHEDULED: AirflowState.SCHEDULED,
    State.QUEUED: AirflowState.QUEUED,
    State.HELD: AirflowState.UP_FOR_RESCHEDULE,  # waits without slots and is looked at again: the nearest there is
    State.LAUNCHING: AirflowState.QUEUED,  # handed to the executor, not heard yet
    State.RUNNING: AirflowState.RUNNING,
    State.SUCCESS: AirflowState.SUCCESS,
    State.FAILED: AirflowState.FAILED,
    State.UP_FOR_RETRY: AirflowState.UP_FOR_RETRY,
    State.UPSTREAM_FAILED: AirflowState.UPSTREAM_FAILED,
    State.SKIPPED: AirflowState.SKIPPED,
}
_NULLS = ("none", "no_status", "null")  # how Airflow's filters spell the state null
STATE_WORDS = (*map(str, AirflowState), *_NULLS)


def in_airflows_words(state: str) -> str | None:
    """Return Airflow's word for one of our task instance states."""
    found = AIRFLOW_STATES[State(state)]
    return None if found is None else str(found)


def in_our_words(asked: Sequence[str | None] | None) -> tuple[str, ...] | None:
    """Return the states of ours that a filter in Airflow's words means; None when nothing was asked.

    A state that Airflow has and we never reach matches nothing.

    Raises:
        Problem: 422, a word that is not a state of Airflow's.
    """
    if not asked:
        return None
    wanted: set[AirflowState | None] = set()
    for word in asked:
        if word is None or word in _NULLS:
            wanted.add(None)
            continue
        try:
            wanted.add(AirflowState(word))
        except ValueError:
            known = ", ".join([*AirflowState, "none"])
            raise Problem(
                422, f"state: {word[:100]!r} is not a state; use {known}", [("state", "not a state")]
            ) from None
    return tuple(str(ours) for ours, theirs in AIRFLOW_STATES.items() if theirs in wanted)


def run_states(asked: Sequence[str | None] | None) -> tuple[str, ...] | None:
    """Return the run states a filter means, ours and Airflow's alike; None when nothing was asked. Raises `Problem`."""
    if not asked:
        return None
    for word in asked:
        if word not in set(RunState):
            raise Problem(
                422, f"state: {str(word)[:100]!r} is not a run state; use {', '.join(RunState)}", [("state", "unknown")]
            )
    return tuple(str(word) for word in asked)
