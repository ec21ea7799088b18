"""Watching a run: its events as the server sends them, across restarts of the server, and what is shown of them."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dexaflow.base.errors import DexaflowError
from dexaflow.base.text import shown
from dexaflow.cli.client import ApiProblem, Client, NoServer, own
from dexaflow.cli.moments import local_now
from dexaflow.cli.output import json_text, print_error, print_text
from dexaflow.cli.task_rows import why
from dexaflow.model.states import RUN_ENDED

__all__ = ["Event", "Progress", "events_of", "parse_events", "watch_run"]

GIVE_UP_SECONDS = 600.0  # without any server
_PAUSES = (0.2, 0.5, 1.0, 2.0)  # seconds before each new attempt; the last one from then on
MAX_EVENT_BYTES = 4 * 1024 * 1024

Task = dict[str, Any]  # Any: as the event `task` has it


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream: `run`, `task`, `end`, or `error`; of our own `lost` and `back`, without data."""

    name: str
    data: dict[str, Any] = field(default_factory=dict)  # Any: JSON


def parse_events(pieces: Callable[[], bytes]) -> Iterator[Event]:
    """Yield the server-sent events in a stream; comments are passed over.

    Args:
        pieces: Returns the next bytes, none at the end.

    Raises:
        NoServer: it is no stream of ours.
    """
    waiting = b""
    name, data = "", b""
    while piece := pieces():
        waiting += piece
        if len(waiting) > MAX_EVENT_BYTES:
            raise NoServer("the server sent an event that is too large")
        *lines, waiting = waiting.split(b"\n")
        for line in lines:
            if line.startswith(b"event: "):
                name = line[7:].decode("utf-8", "replace").strip()
            elif line.startswith(b"data: "):
                data = line[6:]
            elif not line.strip() and data:
                try:
                    found = json.loads(data)
                except (ValueError, RecursionError):
                    raise NoServer("the server sent an event that cannot be read") from None
                if isinstance(found, dict):
                    yield Event(name, found)
                name, data = "", b""


def events_of(
    client: Client,
    run_id: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Event]:
    """Yield the events of a run until `end`, from as many connections as it takes.

    After each new connection the server tells everything once more. `lost` comes when a connection broke, `back` when
    there is one again.

    Raises:
        ApiProblem: the server will not have it: no such run, wrong token.
        NoServer: none could be asked at first, or for ten minutes since.
    """
    path = own("runs", run_id, "events")
    met = lost = False
    heard_at = monotonic()
    misses = 0
    while True:
        why_lost: DexaflowError = NoServer("the server ended the stream")
        try:
            with client.stream(path) as pieces:
                for event in parse_events(pieces):
                    if event.name == "error":
                        break
                    if lost:
                        yield Event("back")
                    met, lost, misses, heard_at = True, False, 0, monotonic()
                    yield event
                    if event.name == "end":
                        return
        except NoServer as error:
            why_lost = error
        except ApiProblem as error:
            if error.status not in (408, 429) and error.status < 500:
                raise
            why_lost = error
        if not met or monotonic() - heard_at > GIVE_UP_SECONDS:
            raise why_lost
        if not lost and misses:
            lost = True
            yield Event("lost")
        sleep(_PAUSES[min(misses, len(_PAUSES) - 1)])
        misses += 1


@dataclass(slots=True)
class Progress:
    """What is known of a run, and what of an event is news."""

    run: dict[str, Any] = field(default_factory=dict)  # Any: as the event `run` has it
    tasks: dict[str, Task] = field(default_factory=dict)

    def take(self, event: Event) -> bool:
        """Take in a `run` or `task` and return whether a person would call it a change.

        That a held task was asked once more and got the same answer is none.
        """
        if event.name == "run":
            before, self.run = self.run, event.data
            return any(before.get(key) != event.data.get(key) for key in ("state", "stop", "waits_because"))
        if event.name == "task":
            before = self.tasks.get(str(event.data.get("task_id")), {})
            self.tasks = {**self.tasks, str(event.data.get("task_id")): event.data}  # drawn from another thread
            return any(before.get(key) != event.data.get(key) for key in ("state", "try_number", "reason", "hook"))
        return False

    def counts(self) -> str:
        """Return how many tasks are in which state."""
        states: dict[str, int] = {}
        for task in self.tasks.values():
            states[str(task.get("state"))] = states.get(str(task.get("state")), 0) + 1
        return ", ".join(f"{count} {state}" for state, count in states.items())


def watch_run(client: Client, run_id: str, *, as_json: bool = False) -> str:
    """Show a run until it ends and return its last state: `success`, `failed`, or `removed`.

    Raises `ApiProblem` and `NoServer` like `events_of`.
    """
    if as_json:
        return _watch_as_json(client, run_id)
    live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    return _watch_live(client, run_id) if live else _watch_as_lines(client, run_id)


def _watch_live(client: Client, run_id: str) -> str:
    """Draw a table on the terminal, anew as the run goes on."""
    from dexaflow.cli.live_table import LiveTable

    with LiveTable() as table:
        for event in events_of(client, run_id):
            table.take(event)
            if event.name == "end":
                return str(event.data.get("state"))
    raise AssertionError("the events end with `end`")


def _watch_as_json(client: Client, run_id: str) -> str:
    """Write each event as it came, an object a line."""
    for event in events_of(client, run_id):
        if event.name not in ("lost", "back"):
            print_text(json_text({"event": event.name, "data": event.data}))
        if event.name == "end":
            return str(event.data.get("state"))
    raise AssertionError("the events end with `end`")


def _watch_as_lines(client: Client, run_id: str) -> str:
    """Write a line for each change; the run's end comes last."""
    progress = Progress()
    for event in events_of(client, run_id):
        news = progress.take(event)
        match event.name:
            case "lost":
                print_error("the server is gone; waiting for it to come back")
            case "back":
                print_error("the server is back")
            case "run" if news and event.data.get("state") not in RUN_ENDED:
                _print_line(_run_line(event.data))
            case "task" if news:
                _print_line(line_of(event.data))
            case "end":
                _print_line(_run_line({**progress.run, **event.data}))
                return str(event.data.get("state"))
    raise AssertionError("the events end with `end`")


def _print_line(line: str) -> None:
    print_text(shown(f"{local_now():%H:%M:%S}  {line}"))


def _run_line(run: dict[str, Any]) -> str:  # Any: as the event `run` has it
    return "  ".join(
        str(p)
        for p in (f"run {run['run_id']} of {run['dag_id']}", run["state"], run.get("stop"), run.get("waits_because"))
        if p
    )


def line_of(task: Task) -> str:
    """Return a task, its state and why it is there, in one line; not cleaned."""
    number = int(task.get("try_number") or 1)
    name = str(task.get("task_id")) + (f" (try {number})" if number > 1 else "")
    return "  ".join(part for part in (name, str(task.get("state")), why_of(task)) if part)


def why_of(task: Task) -> str:
    """Return why a watched task is where it is; not cleaned."""
    return why(
        str(task.get("state")),
        str(task.get("hook") or ""),
        str(task.get("reason") or ""),
        task.get("next_ask_at"),
        task.get("retry_at"),
        local_now(),
    )
