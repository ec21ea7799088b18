"""The page of the documentation about states, drawn from the state table, so that it cannot say anything else."""

from collections.abc import Iterator, Mapping

from dexaflow.model.states import ENDED, HOLDS_SLOTS, TRANSITIONS, Event, RunState, State

__all__ = ["EVENT_MEANINGS", "RUN_MEANINGS", "STATE_MEANINGS", "states_page"]

STATE_MEANINGS: Mapping[State, str] = {
    State.NONE: "its upstream tasks do not let it start yet",
    State.SCHEDULED: "due; waits for pool slots",
    State.QUEUED: "has its pool slots; own checks and hooks are being asked",
    State.HELD: "a hook said hold, or is broken; no token and no process, asked again later",
    State.LAUNCHING: "admitted, its launch is written; its agent has not been heard yet",
    State.RUNNING: "its agent was heard and runs the task",
    State.SUCCESS: "the task succeeded",
    State.FAILED: "the task failed, or was rejected, refused or could not be started, and no try is left",
    State.UP_FOR_RETRY: "the try failed; the next one waits for its time",
    State.UPSTREAM_FAILED: "its trigger rule cannot be met, since an upstream task failed",
    State.SKIPPED: "its trigger rule cannot be met, or it was cancelled before it ran",
}

EVENT_MEANINGS: Mapping[Event, str] = {
    Event.DUE: "its trigger rule is met",
    Event.UPSTREAM_SKIPPED: "its trigger rule cannot be met: it is skipped",
    Event.UPSTREAM_FAILED: "its trigger rule cannot be met: upstream failed",
    Event.SLOTS_TAKEN: "its pool has room, and it took its slots",
    Event.REJECTED: "an own check said no",
    Event.REFUSED: "a hook said no, or asked for a change it may not make",
    Event.HELD: "a hook said hold, or is broken",
    Event.ADMITTED: "every hook let it through, and its launch was written",
    Event.ADMITTED_POOL_FULL: "every hook let it through, but its pool is full by now",
    Event.DISPATCH_FAILED: "it waited 15 minutes on a broken hook",
    Event.REQUEUED: "found after a crash, or its admit grew too old: it is asked anew",
    Event.LOST: "nothing came of its launch: it is asked anew",
    Event.START_FAILED: "it could not be started, and no try is left",
    Event.STARTED: "its agent reported that it starts, and was accepted",
    Event.SUCCEEDED: "its agent reported success",
    Event.FAILED: "the task failed, timed out or its agent died, and no try is left",
    Event.FAILED_RETRY: "the try failed, and another is left",
    Event.RETRY_DUE: "its retry delay is over: the next try begins",
    Event.CANCELLED: "its run was cancelled",
    Event.CLEARED: "a person cleared it: a new try begins, with nothing carried over",
}

RUN_MEANINGS: Mapping[RunState, str] = {
    RunState.QUEUED: "waits until fewer than `max_active_runs` of its DAG are running",
    RunState.RUNNING: "its tasks become due and run",
    RunState.SUCCESS: "every task has ended, and no leaf failed",
    RunState.FAILED: "every task has ended, and a leaf is failed or upstream_failed, or the run was cancelled",
}

_BY_PEOPLE = frozenset({Event.CANCELLED, Event.CLEARED})  # nearly every state has both: arrows that hide the others


def states_page() -> str:
    """Return the whole page as Markdown: what each state means, a diagram, and every move there is."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from (
        "# States",
        "",
        "Drawn from the state table of the program; a test keeps the two equal. To write it again:",
        "",
        "```sh",
        ".venv/bin/python -c 'from dexaflow.model.diagram import states_page; print(states_page(), end=\"\")'"
        " > docs/states.md",
        "```",
        "",
        "## Where a task instance can stand",
        "",
        "| state | meaning | holds pool slots | has ended |",
        "|---|---|---|---|",
    )
    for state in State:
        slots, ended = ("yes" if state in states else "" for states in (HOLDS_SLOTS, ENDED))
        yield f"| `{state}` | {STATE_MEANINGS[state]} | {slots} | {ended} |"
    yield from (
        "",
        "Cancelling and clearing are left out of the picture; the table below has them.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {State.NONE}",
    )
    for (source, event), target in TRANSITIONS.items():
        if event not in _BY_PEOPLE:
            yield f"    {source} --> {target}: {event}"
    for state in State:
        if state in ENDED:
            yield f"    {state} --> [*]"
    yield from (
        "```",
        "",
        "## What moves it",
        "",
        "What is not in this table cannot happen.",
        "",
        "| from | event | to | pool slots | when |",
        "|---|---|---|---|---|",
    )
    for (source, event), target in TRANSITIONS.items():
        yield f"| `{source}` | `{event}` | `{target}` | {_slots(source, target)} | {EVENT_MEANINGS[event]} |"
    yield from ("", "## Where a run can stand", "", "| state | meaning |", "|---|---|")
    for run_state in RunState:
        yield f"| `{run_state}` | {RUN_MEANINGS[run_state]} |"


def _slots(source: State, target: State) -> str:
    match source in HOLDS_SLOTS, target in HOLDS_SLOTS:
        case False, True:
            return "taken"
        case True, False:
            return "given back"
        case _:
            return ""
