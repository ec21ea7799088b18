"""The user's Python process: runs one task's function and hands its result to the agent.

It knows no token and no address. What it says goes over one descriptor, and begins with a letter: ``R`` and the result
as JSON text, or ``E`` and one line that says what went wrong; the traceback goes to the log.
"""

import json
import os
import sys
import traceback
from io import TextIOWrapper
from types import TracebackType
from typing import Any

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the task described in the file of the first descriptor; say what came of it on the second.

    Returns the exit status: 0 when the function returned something that can be passed on.
    """
    job_fd, result_fd = (int(argument) for argument in arguments)
    os.set_inheritable(result_fd, False)  # not for what the task starts
    with open(job_fd, "rb") as file:
        job = json.loads(file.read())
    sys.argv = [job["file"]]
    for stream in (sys.stdout, sys.stderr):
        # Text that cannot be written is no reason to fail; and what was printed before a crash is what one looks for.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    kind, said, status = _run(job)
    _flush()
    with open(result_fd, "wb") as pipe:
        pipe.write(kind + said.encode("utf-8", "backslashreplace"))
    return status


def _run(job: dict[str, Any]) -> tuple[bytes, str, int]:
    from dexaflow.authoring.running import run_task  # late: an import that fails is told like the task's own

    try:
        result = run_task(job["file"], job["root"], job["dag_id"], job["task_id"], job["inputs"], job["context"])
        return b"R", json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":")), 0
    except SystemExit as ending:
        return _exited(ending.code)
    except BaseException as problem:  # noqa: BLE001 - the user's code: whatever it raises is its outcome
        _print_traceback(problem)
        return b"E", _summary(problem), 1


def _exited(code: object) -> tuple[bytes, str, int]:
    """As the interpreter would take it, and as Airflow does: leaving without a complaint is a success."""
    if code is None or code == 0:
        return b"R", "null", 0
    if isinstance(code, int):
        status = code & 0xFF or 1
        return b"E", f"exit code {status}", status
    print(code, file=sys.stderr)
    return b"E", f"SystemExit: {code}", 1


def _summary(problem: BaseException) -> str:
    try:
        text = str(problem)
    except Exception:  # noqa: BLE001 - a user's __str__
        text = "(its text cannot be had)"
    name = type(problem).__name__
    return f"{name}: {text}" if text else name


def _print_traceback(problem: BaseException) -> None:
    """Print the traceback without our own frames."""
    trace: TracebackType | None = problem.__traceback__
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(ours):
        trace = trace.tb_next
    try:
        traceback.print_exception(type(problem), problem, trace)
    except Exception:  # noqa: BLE001 - a user's __str__ or __repr__
        print(f"{_summary(problem)} (its traceback cannot be printed)", file=sys.stderr)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
