"""Why did this run there, or why does it not run: the walk of one try, told from what is kept about it (R9.2)."""

from collections.abc import Mapping, Sequence
from typing import Any

from dexaflow.admission.results import Outcome
from dexaflow.api.own import render, shapes
from dexaflow.base.text import NO_REASON
from dexaflow.model.states import ENDED, HOLDS_SLOTS, State
from dexaflow.store.reading_rows import AttemptRow, ReviewRow, RunRow

__all__ = ["explain"]

_UPSTREAM_NAMED = 10  # of those that a task waits for
_BROKEN = frozenset({Outcome.ERROR, Outcome.BREAKER_OPEN})
_REFUSED = frozenset({Outcome.REFUSE, Outcome.CHANGE_REFUSED})


def explain(
    run: RunRow, row: AttemptRow, reviews: Sequence[ReviewRow], latest_try: int, upstream: Mapping[str, str]
) -> shapes.Explanation:
    """Return the walk of one try.

    Args:
        row: The try, with its placement.
        reviews: What hooks answered about it, in order.
        latest_try: The number of the task's present try.
        upstream: The tasks directly upstream, with their states.
    """
    state = State(row.state)
    over = state in ENDED or state is State.UP_FOR_RETRY or row.try_number != latest_try
    return {
        "run_id": row.run_id,
        "dag_id": row.dag_id,
        "tenant_id": row.tenant_id,
        "task_id": row.task_id,
        "attempt_id": row.attempt_id,
        "try_number": row.try_number,
        "max_tries": row.max_tries,
        "latest_try": latest_try,
        "state": row.state,
        "trigger": {
            "run_type": run.run_type,
            "triggered_by": run.triggered_by,
            "queued_at": run.queued_at,
            "started_at": run.started_at,
            "note": run.note,
        },
        "scheduled_at": row.scheduled_at,
        "slots": {
            "pool": row.pool,
            "pool_slots": row.pool_slots,
            "taken_at": row.queued_at,
            "holds_now": state in HOLDS_SLOTS and not over,
            "waits_because": _waits_because(row, upstream) if not over else "",
        },
        "own_checks": _own_checks(row, reviews, state),
        "admission": _admission(row, reviews, state, over=over),
        "launch": {
            "launched_at": row.launched_at,
            "launch_id": row.launch_id,
            # Minted right after the launch is written, and never without one (R1.7).
            "token_minted": row.launch_id is not None,
        },
        "agent": {
            "started_at": row.started_at,
            "host": row.host,
            "pid": row.pid,
            "heartbeat_at": row.heartbeat_at,
            "asked_to_stop": row.stop or "",
        },
        "end": {
            "ended_at": row.ended_at,
            "seconds": row.seconds,
            "exit_code": row.exit_code,
            "reason": row.reason if over else "",
            "retry_at": row.retry_at,
            "log_bytes": row.log_bytes,
        },
        "pod": _pod(row.placement),
    }


def _waits_because(row: AttemptRow, upstream: Mapping[str, str]) -> str:
    """Why a try that has not come to its slots waits: its reason, what is upstream, or the slots themselves."""
    match State(row.state):
        case State.SCHEDULED:
            return row.reason or "there is room: it takes them in a moment"
        case State.NONE:
            left = [f"{task} ({state})" for task, state in upstream.items() if State(state) not in ENDED]
            more = f" and {len(left) - _UPSTREAM_NAMED} more" if len(left) > _UPSTREAM_NAMED else ""
            after = f"waits for {', '.join(left[:_UPSTREAM_NAMED])}{more}" if left else ""
            return "; ".join(part for part in (row.reason, after) if part)
        case _:
            return ""


def _passed(row: AttemptRow, reviews: Sequence[ReviewRow]) -> bool:
    """Whether own checks have passed: hooks were asked, it was launched, or what it would run with is known."""
    return bool(reviews) or row.launched_at is not None or row.placement is not None


def _rejected(row: AttemptRow, state: State) -> bool:
    """Whether an own check said no: it failed, nobody launched it, and no hook is named."""
    return state is State.FAILED and row.launched_at is None and not row.hook


def _own_checks(row: AttemptRow, reviews: Sequence[ReviewRow], state: State) -> shapes.OwnChecks:
    if _rejected(row, state):
        return {"outcome": "rejected", "reason": row.reason}
    return {"outcome": "passed" if _passed(row, reviews) else "not yet", "reason": ""}


def _admission(row: AttemptRow, reviews: Sequence[ReviewRow], state: State, *, over: bool) -> shapes.Admission:
    outcome, hook, reason = _verdict(row, reviews, state)
    held = state is State.HELD and not over
    return {
        "outcome": outcome,
        "hook": hook,
        "reason": reason,
        "reviews": [render.review(r) for r in reviews],
        "held_since": row.held_at if held else None,
        "next_ask_at": row.next_ask_at if held else None,
        "waited_on_broken_hook_seconds": row.broken_seconds,
    }


def _verdict(row: AttemptRow, reviews: Sequence[ReviewRow], state: State) -> tuple[str, str, str]:
    if _rejected(row, state):
        return "not asked", "", "an own check said no"
    if row.launched_at is not None:
        return "admitted", "", "" if reviews else "no hook is configured"
    last = reviews[-1] if reviews else None
    if state is State.HELD:
        return "held", row.hook, row.reason or NO_REASON
    if last is None:
        return "not yet", "", ""
    if last.outcome in _REFUSED:
        return "refused", last.hook, last.reason or NO_REASON
    if row.hook and state in (State.FAILED, State.UP_FOR_RETRY):  # no launch, no refusal: it waited too long (R7.2)
        return "dispatch_failed", row.hook, row.reason
    if state in ENDED and last.outcome == Outcome.HOLD:
        return "held", last.hook, last.reason or NO_REASON  # cancelled, or cleared, while it waited
    if state in ENDED and last.outcome in _BROKEN:
        return "held", last.hook, "the hook was broken"  # its words were about the next question: there is none now
    return "not yet", "", ""


def _pod(placement: str | None) -> shapes.Pod | None:
    if placement is None:
        return None
    kept: dict[str, Any] = render.json_object(placement)
    settings: list[shapes.Setting] = [
        {name: str(s.get(name, "")) for name in ("field", "key", "value", "by")}  # type: ignore[misc]  # the same four
        for s in kept.get("settings") or []
        if isinstance(s, dict)
    ]
    return {
        "image": str(kept.get("image") or ""),
        "dedicated": bool(kept.get("dedicated")),
        "resources": kept.get("resources") or {},
        "execution": kept.get("execution") or {},
        "settings": settings,
    }
