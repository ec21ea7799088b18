"""Printing a task's log: as it is into a pipe, as text on a terminal."""

import codecs
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dexaflow.base.text import shown
from dexaflow.cli.client import ApiProblem, Client, NoServer, own
from dexaflow.cli.moments import local_now
from dexaflow.cli.output import print_error, print_json, print_text
from dexaflow.cli.task_rows import why

if TYPE_CHECKING:
    from dexaflow.api.own import shapes

__all__ = ["ShownLines", "print_log"]

LOOK_SECONDS = 0.5  # between two looks at a log that is followed
GIVE_UP_SECONDS = 600.0  # without any server, while following
MAX_LINE = 65_536  # characters without a line end before they are shown all the same

_LINE_END = re.compile(r"\r\n|\n|\r(?!$)")  # a progress bar's returns are lines; one at the end may be half an end


class ShownLines:
    """Bytes in, lines out: what a terminal may be shown of a log, in which no escape does anything."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, last: bool = False) -> list[str]:
        """Return the lines that are whole now; with `last` also what is left without a line end."""
        text = self._rest + self._decoder.decode(data, final=last)
        *lines, self._rest = _LINE_END.split(text)
        if self._rest and (last or len(self._rest) > MAX_LINE):
            lines.append(self._rest.removesuffix("\r"))
            self._rest = ""
        return [shown(line.expandtabs(8)) for line in lines]


def print_log(
    client: Client,
    run_id: str,
    task_id: str,
    try_number: int | None,
    *,
    follow: bool,
    as_json: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Print the log of one try, with `follow` until it has ended; across restarts of the server.

    As JSON it is one document; with `follow` one a line, each with the text that has come since.

    Raises:
        ApiProblem: no such run, task or try.
        NoServer: none could be asked; while following, for ten minutes.
    """
    path = own("runs", run_id, "tasks", task_id)
    task: shapes.TaskOut = client.get(path, {"try_number": try_number})
    query: dict[str, Any] = {"try_number": task["try_number"]}  # named from here on: a retry has a log of its own
    terminal = sys.stdout.isatty()
    lines = ShownLines()
    pieces = _Pieces(task) if as_json else None
    offset = 0
    heard_at = monotonic()
    told = False
    while True:
        try:
            data, headers = client.raw(f"{path}/logs", {**query, "offset": offset})
        except (NoServer, ApiProblem) as error:
            passing = isinstance(error, NoServer) or error.status >= 500
            if not follow or not passing or monotonic() - heard_at > GIVE_UP_SECONDS:
                raise
            sleep(LOOK_SECONDS)
            continue
        heard_at = monotonic()
        offset += len(data)
        complete = headers.get("X-Dexaflow-Log-Complete") == "true"
        if pieces is not None:
            if pieces.feed(data, complete=complete) and follow:
                pieces.write()
        elif terminal:
            for line in lines.feed(data, last=complete or not (data or follow)):
                print_text(line)
        elif data:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        if not offset and not told and pieces is None and (task["state"] != "running" or not follow):
            told = True
            _say_why_empty(task, follow=follow and not complete)
        if complete or (not follow and not data):
            if pieces is not None and not follow:
                pieces.write()
            return
        if not data:
            sleep(LOOK_SECONDS)


class _Pieces:
    """A log as JSON: `text` from byte `offset` on, and whether the log ends there. What is not UTF-8 is U+FFFD."""

    def __init__(self, task: "shapes.TaskOut") -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._said: dict[str, object] = {name: task[name] for name in ("run_id", "task_id", "try_number")}
        self._offset = self._begun = 0
        self._texts: list[str] = []
        self._complete = False

    def feed(self, data: bytes, *, complete: bool) -> bool:
        """Take in bytes; return whether there is something to tell."""
        self._texts.append(self._decoder.decode(data, final=complete))
        self._offset += len(data)
        self._complete = complete
        return bool(data) or complete

    def write(self) -> None:
        """Write what has come since the last time."""
        text, self._texts = "".join(self._texts), []
        print_json({**self._said, "offset": self._begun, "text": text, "complete": self._complete})
        self._begun = self._offset


def _say_why_empty(task: "shapes.TaskOut", *, follow: bool) -> None:
    reason = why(task["state"], task["hook"], task["reason"], task["next_ask_at"], task["retry_at"], local_now())
    state = f"try {task['try_number']} of {task['task_id']} "
    state += "has not begun" if task["state"] == "none" else f"is {task['state']}"
    print_error(f"the log is empty{'; waiting for it' if follow else ''}: {state}" + (f": {reason}" if reason else ""))
