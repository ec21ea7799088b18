"""The walk of one try in words: what happened at each step, why it waits, and who set what (R9.2)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dexaflow.base.text import NO_REASON, shown
from dexaflow.cli.moments import full, short, span, until

if TYPE_CHECKING:
    from dexaflow.api.own import shapes

__all__ = ["POD_COLUMNS", "pod_rows", "pod_title", "walk"]

MOST_CHANGES_SAID = 20  # of one answer, in its line; an answer has room for thousands
MAX_CHANGE_CHARACTERS = 400  # the longest label's key and value have their place in it
POD_COLUMNS = ("field", "key", "value", "set by")
_NOT_YET = "not yet"
_ANSWERS = {
    "change_refused": "a change that is not allowed",
    "error": "broken: held",
    "breaker_open": "not asked, its breaker is open: held",
    "fail_open": "broken, and fail_open is set: admitted unchanged",
}


def walk(told: "shapes.Explanation", now: datetime) -> dict[str, object]:
    """Return the steps of the walk in their order, each with what happened. Texts are as they came, not cleaned."""
    over = _over(told)
    steps: dict[str, object] = {
        "attempt": f"task {told['task_id']}, try {told['try_number']} of {told['max_tries']}, of run {told['run_id']}",
        "dag": f"{told['dag_id']}, tenant {told['tenant_id']}",
        "state": _state(told),
        "trigger": _trigger(told["trigger"]),
        "scheduled": _scheduled(told, over=over),
        "slots": _slots(told, now, over=over),
        "own checks": _with(told["own_checks"]["outcome"], told["own_checks"]["reason"]),
    }
    for number, review in enumerate(told["admission"]["reviews"], 1):
        steps[f"hook answer {number}"] = _review(review, now)
    steps["admission"] = _admission(told["admission"], now, over=over)
    steps["asked next"] = _next(told["admission"], now)
    steps["launch"] = _launch(told["launch"], now, over=over)
    steps["agent"] = _agent(told["agent"], now, over=over)
    steps["end"] = _end(told, now)
    return steps


def _over(told: "shapes.Explanation") -> bool:
    return told["end"]["ended_at"] is not None or told["try_number"] != told["latest_try"]


def _with(outcome: str, reason: str) -> str:
    return f"{outcome}: {reason}" if reason else outcome


def _state(told: "shapes.Explanation") -> str:
    newer = told["latest_try"] != told["try_number"]
    return f"{told['state']} (an earlier try; the latest is {told['latest_try']})" if newer else told["state"]


def _trigger(trigger: "shapes.Trigger") -> str:
    by = f" by {trigger['triggered_by']}" if trigger["triggered_by"] else ""
    note = f"; note: {trigger['note']}" if trigger["note"] else ""
    return f"{trigger['run_type']}{by}, {full(trigger['queued_at'])}{note}"


def _scheduled(told: "shapes.Explanation", *, over: bool) -> str:
    if told["scheduled_at"] is not None:
        return full(told["scheduled_at"])
    return "never" if over else _with(_NOT_YET, told["slots"]["waits_because"])


def _slots(told: "shapes.Explanation", now: datetime, *, over: bool) -> str:
    slots, admission = told["slots"], told["admission"]
    count = f"{slots['pool_slots']} of pool {slots['pool']}"
    if admission["held_since"] is not None:
        return f"{count}, given back while it is held"  # R6.1
    if slots["taken_at"] is None and over:
        return f"{count}, given back when it was held" if admission["reviews"] else f"{count}, never taken"
    if slots["taken_at"] is None and told["scheduled_at"] is None:
        return f"{count}, {_NOT_YET} taken"
    if slots["taken_at"] is None:
        return _with(f"{count}, {_NOT_YET} taken", slots["waits_because"])
    has = "held now" if slots["holds_now"] else "given back"
    return _with(f"{count}, taken at {short(slots['taken_at'], now)}, {has}", slots["waits_because"])


def _review(review: "shapes.Review", now: datetime) -> str:
    answer = _ANSWERS.get(review["outcome"], review["outcome"])
    said = f"{review['hook']}: {answer}"
    if review["reason"]:
        said += f": {review['reason']}"
    elif review["outcome"] in ("hold", "refuse"):
        said += f": {NO_REASON}"
    parts = [said]
    if changes := changes_text(review["changes"]):
        parts.append(f"changes {changes}")
    when = f"at {short(review['first_at'], now)}"
    if review["count"] > 1:
        when = f"{review['count']} times from {short(review['first_at'], now)} to {short(review['last_at'], now)}"
    parts.append(f"{when}, took {span(review['seconds'])}")
    if review["incident"]:
        parts.append(f"the server's log has the cause under {review['incident']}")
    return "; ".join(parts)


def changes_text(changes: Mapping[str, Any]) -> str:
    """Return what a hook changed, key by key; "" for nothing. Of much, the beginning: JSON output has all of it."""
    parts: list[str] = []
    for field, value in changes.items():
        if isinstance(value, Mapping):
            parts += [f"{field}.{key}={item}" for key, item in value.items()]
        elif isinstance(value, list):
            parts += [f"{field}: {_toleration(item)}" for item in value]
        else:
            parts.append(f"{field}={value}")
    more = len(parts) - MOST_CHANGES_SAID
    said = [part if len(part) <= MAX_CHANGE_CHARACTERS else f"{part[:MAX_CHANGE_CHARACTERS]}..." for part in parts]
    return ", ".join(said) if more <= 0 else f"{', '.join(said[:MOST_CHANGES_SAID])} and {more:,} more"


def _toleration(item: object) -> str:
    """Return a toleration much as `kubectl` writes one."""
    if not isinstance(item, Mapping):
        return str(item)
    key, operator, value, effect = (str(item.get(name) or "") for name in ("key", "operator", "value", "effect"))
    said = f"{key}={value}" if operator != "Exists" else f"{key} exists" if key else "every taint"
    return f"{said}:{effect}" if effect else said


def _admission(admission: "shapes.Admission", now: datetime, *, over: bool) -> str:
    outcome, hook = admission["outcome"], admission["hook"]
    if over:  # it waits no longer
        outcome = {"held": "was held", "not yet": "none"}.get(outcome, outcome)
    said = f"{outcome} by {hook}" if hook else outcome
    if admission["held_since"] is not None:
        said += f" since {short(admission['held_since'], now)}"
    said = _with(said, admission["reason"])
    if (waited := admission["waited_on_broken_hook_seconds"]) >= 1:
        said += f"; waited {span(waited)} of 15 minutes on a broken hook"
    return said


def _next(admission: "shapes.Admission", now: datetime) -> str:
    if admission["next_ask_at"] is not None:
        return (
            f"the hooks in their order, at {short(admission['next_ask_at'], now)} "
            f"({until(admission['next_ask_at'], now)})"
        )
    waits = admission["outcome"] in ("held", "not yet") and admission["held_since"] is not None
    return "as soon as it can be" if waits else "nothing"


def _launch(launch: "shapes.Launch", now: datetime, *, over: bool) -> str:
    if launch["launched_at"] is None:
        return "never: no token was minted, nothing was started" if over else f"{_NOT_YET}: no token, no process"
    token = ", its token was minted" if launch["token_minted"] else ""
    return f"at {short(launch['launched_at'], now)}{token}, launch id {launch['launch_id'] or '-'}"


def _agent(agent: "shapes.Agent", now: datetime, *, over: bool) -> str:
    if agent["started_at"] is None:
        return "never started" if over else _NOT_YET
    parts = [f"started at {short(agent['started_at'], now)}"]
    if agent["host"]:
        parts.append(f"on {agent['host']}")
    if agent["pid"] is not None:
        parts.append(f"process {agent['pid']}")
    if agent["heartbeat_at"] is not None:
        parts.append(f"last heard at {short(agent['heartbeat_at'], now)}")
    if agent["asked_to_stop"]:
        parts.append(f"asked to stop: {agent['asked_to_stop']}")
    return ", ".join(parts)


def _end(told: "shapes.Explanation", now: datetime) -> str:
    end = told["end"]
    if end["ended_at"] is None:
        return _NOT_YET
    said = f"{told['state']} at {short(end['ended_at'], now)}"
    if end["seconds"] is not None:
        said += f" after {span(end['seconds'])}"
    if end["exit_code"] is not None and end["reason"] != f"exit code {end['exit_code']}":
        said += f", exit code {end['exit_code']}"
    said = _with(said, end["reason"])
    if end["retry_at"] is not None and told["try_number"] == told["latest_try"]:
        said += f"; next try at {short(end['retry_at'], now)} ({until(end['retry_at'], now)})"
    return said


def pod_title(told: "shapes.Explanation") -> str:
    """Return a line about the pod that the try would get or got, cleaned."""
    pod = told["pod"]
    if pod is None:
        return "What it would run with is not known: own checks have not passed it."
    kind = "a pod of its own" if pod["dedicated"] else "any pod, a warm worker's too"
    if told["launch"]["launched_at"] is not None:
        verb = "ran" if _over(told) else "runs"
    else:
        verb = "would have run" if _over(told) else "would run"
    return shown(f"What it {verb} with ({kind}; Lite has no pods and records it all the same):")


def pod_rows(told: "shapes.Explanation") -> Sequence[tuple[object, ...]]:
    """Return each key of the pod and who set it, under `POD_COLUMNS`; not cleaned."""
    pod = told["pod"]
    if pod is None:
        return ()
    return [(s["field"], s["key"] or None, s["value"], s["by"]) for s in pod["settings"]]
