"""Which state follows which, for task instances and runs: the only place that says so.

What is absent is forbidden. Names are Airflow's, besides ``held`` and ``launching``; ``none`` is Airflow's null.
"""

from collections.abc import Mapping
from enum import StrEnum

__all__ = [
    "ENDED",
    "HOLDS_SLOTS",
    "RUN_ENDED",
    "TRANSITIONS",
    "Event",
    "RunState",
    "State",
    "next_state",
    "sources",
]


class State(StrEnum):
    """Where a task instance's present try stands."""

    NONE = "none"  # its upstream tasks have not ended
    SCHEDULED = "scheduled"  # due; waits for pool slots
    QUEUED = "queued"  # holds its slots; own checks and hooks are being asked
    HELD = "held"  # a hook said hold, or is broken; no slots, no token, no process
    LAUNCHING = "launching"  # admitted; its launch is written; the agent has not been heard
    RUNNING = "running"  # the agent's `started` was accepted
    SUCCESS = "success"
    FAILED = "failed"
    UP_FOR_RETRY = "up_for_retry"  # failed; the next try is due at `retry_at`
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"


class Event(StrEnum):
    """What can happen to a task instance."""

    DUE = "due"  # its trigger rule is met
    UPSTREAM_SKIPPED = "upstream_skipped"  # its trigger rule cannot be met: skip
    UPSTREAM_FAILED = "upstream_failed"  # its trigger rule cannot be met: upstream failed
    SLOTS_TAKEN = "slots_taken"
    REJECTED = "rejected"  # an own check said no
    REFUSED = "refused"  # a hook said no, or asked for a change it may not make
    HELD = "held"
    ADMITTED = "admitted"
    ADMITTED_POOL_FULL = "admitted_pool_full"
    DISPATCH_FAILED = "dispatch_failed"  # waited 15 minutes on a broken hook
    REQUEUED = "requeued"  # found after a crash, or its admit grew too old: asked anew
    LOST = "lost"  # launched, but nothing came of it
    START_FAILED = "start_failed"  # the executor could not start it
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the task failed, timed out or its agent died; no try left
    FAILED_RETRY = "failed_retry"  # the same, and a try is left
    RETRY_DUE = "retry_due"
    CANCELLED = "cancelled"
    CLEARED = "cleared"  # a person cleared it: a new try, nothing carried over


_S, _E = State, Event

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (_S.NONE, _E.DUE): _S.SCHEDULED,
    (_S.NONE, _E.UPSTREAM_SKIPPED): _S.SKIPPED,
    (_S.NONE, _E.UPSTREAM_FAILED): _S.UPSTREAM_FAILED,
    (_S.NONE, _E.CANCELLED): _S.SKIPPED,
    (_S.SCHEDULED, _E.SLOTS_TAKEN): _S.QUEUED,
    (_S.SCHEDULED, _E.CANCELLED): _S.SKIPPED,
    (_S.SCHEDULED, _E.CLEARED): _S.NONE,
    (_S.QUEUED, _E.REJECTED): _S.FAILED,
    (_S.QUEUED, _E.REFUSED): _S.FAILED,
    (_S.QUEUED, _E.HELD): _S.HELD,  # gives its slots back
    (_S.QUEUED, _E.ADMITTED): _S.LAUNCHING,
    (_S.QUEUED, _E.REQUEUED): _S.SCHEDULED,
    (_S.QUEUED, _E.CANCELLED): _S.SKIPPED,
    (_S.QUEUED, _E.CLEARED): _S.NONE,
    (_S.HELD, _E.HELD): _S.HELD,  # asked again, without slots
    (_S.HELD, _E.ADMITTED): _S.LAUNCHING,  # takes its slots in the same write
    (_S.HELD, _E.ADMITTED_POOL_FULL): _S.SCHEDULED,  # is asked anew when it has slots
    (_S.HELD, _E.REJECTED): _S.FAILED,  # the policy changed while it waited
    (_S.HELD, _E.REFUSED): _S.FAILED,
    (_S.HELD, _E.DISPATCH_FAILED): _S.FAILED,
    (_S.HELD, _E.FAILED_RETRY): _S.UP_FOR_RETRY,  # dispatch_failed with a try left
    (_S.HELD, _E.CANCELLED): _S.SKIPPED,
    (_S.HELD, _E.CLEARED): _S.NONE,
    (_S.LAUNCHING, _E.STARTED): _S.RUNNING,
    (_S.LAUNCHING, _E.LOST): _S.SCHEDULED,  # asked anew, under a new launch id
    (_S.LAUNCHING, _E.START_FAILED): _S.FAILED,
    (_S.LAUNCHING, _E.FAILED_RETRY): _S.UP_FOR_RETRY,
    (_S.LAUNCHING, _E.CANCELLED): _S.SKIPPED,
    (_S.LAUNCHING, _E.CLEARED): _S.NONE,
    (_S.RUNNING, _E.SUCCEEDED): _S.SUCCESS,
    (_S.RUNNING, _E.FAILED): _S.FAILED,
    (_S.RUNNING, _E.FAILED_RETRY): _S.UP_FOR_RETRY,
    (_S.RUNNING, _E.CANCELLED): _S.FAILED,  # once its process group is dead
    (_S.RUNNING, _E.CLEARED): _S.NONE,  # once its process group is dead
    (_S.UP_FOR_RETRY, _E.RETRY_DUE): _S.SCHEDULED,  # with the next try number
    (_S.UP_FOR_RETRY, _E.CANCELLED): _S.SKIPPED,
    (_S.UP_FOR_RETRY, _E.CLEARED): _S.NONE,
    (_S.SUCCESS, _E.CLEARED): _S.NONE,
    (_S.FAILED, _E.CLEARED): _S.NONE,
    (_S.UPSTREAM_FAILED, _E.CLEARED): _S.NONE,
    (_S.SKIPPED, _E.CLEARED): _S.NONE,
}

ENDED = frozenset({State.SUCCESS, State.FAILED, State.UPSTREAM_FAILED, State.SKIPPED})
HOLDS_SLOTS = frozenset({State.QUEUED, State.LAUNCHING, State.RUNNING})


class RunState(StrEnum):
    """Where a DAG run stands; Airflow's words."""

    QUEUED = "queued"  # waits for max_active_runs
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"


RUN_ENDED = frozenset({RunState.SUCCESS, RunState.FAILED})


def next_state(state: State, event: Event) -> State | None:
    """Return the state after `event`, or None when the table forbids it."""
    return TRANSITIONS.get((state, event))


def sources(event: Event) -> frozenset[State]:
    """Return the states in which `event` may happen."""
    return frozenset(state for state, ev in TRANSITIONS if ev is event)
