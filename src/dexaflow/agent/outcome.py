"""What came of an attempt, in words for its author."""

import errno
import json
from dataclasses import dataclass

from dexaflow.agent.processes import signal_name
from dexaflow.agent.user_process import Ended
from dexaflow.agent.work import Work
from dexaflow.authoring.results import MAX_RESULT_BYTES
from dexaflow.base.text import cut

__all__ = ["Outcome", "not_started", "one_line", "outcome_of"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended. `reason` is one line, empty for a success; `exit_code` as in `Ended`, None: never ran."""

    succeeded: bool
    reason: str
    exit_code: int | None
    result: str | None = None  # JSON text
    timed_out: bool = False


def outcome_of(ended: Ended, work: Work) -> Outcome:
    """Return what came of a process that ended."""
    code, stop = ended.exit_code, ended.stop
    if stop is not None:
        return Outcome(False, one_line(stop.reason), code, timed_out=stop.timed_out)
    kind, said = ended.result[:1], ended.result[1:]
    if code < 0:
        return Outcome(False, f"killed by {signal_name(-code)}", code)
    if code > 0:
        # The runner says which exception it was; a task that called os._exit says nothing.
        why = one_line(said.decode("utf-8", "replace")) if kind == b"E" else ""
        return Outcome(False, why or f"exit code {code}", code)
    if work.operator == "bash":
        return Outcome(True, "", code)
    if kind != b"R":
        return Outcome(False, "the process ended with exit code 0, but before the task's function had returned", code)
    return _with_result(said, code)


def _with_result(said: bytes, code: int) -> Outcome:
    if len(said) > MAX_RESULT_BYTES:
        return Outcome(False, f"its result is larger than {MAX_RESULT_BYTES} bytes of JSON; store it elsewhere", code)
    try:
        text = said.decode("utf-8")
        json.loads(text)
    except (ValueError, RecursionError):
        return Outcome(False, "its result is not JSON", code)
    return Outcome(True, "", code, result=text)


def not_started(problem: Exception) -> Outcome:
    """Return the outcome of work that could not be begun."""
    if isinstance(problem, OSError) and problem.errno == errno.E2BIG:
        why = "its command and env are larger than this machine takes; pass less in env, or the place of it"
    elif isinstance(problem, OSError) and problem.strerror:
        why = problem.strerror
    else:
        why = str(problem) or type(problem).__name__
    return Outcome(False, one_line(f"could not start: {why}"), None)


def one_line(text: str, max_bytes: int = 512) -> str:
    """Return `text` as one line of printable characters, cut to `max_bytes` of UTF-8 without splitting one."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return cut(line, max_bytes)
