"""Structured logs: one event a line, with fields, as JSON or for a terminal.

Every line about an attempt carries `tenant_id`, `dag_id`, `run_id`, `task_id` and `try_number` (`attempt_fields`).
Text from outside cannot make a line of its own: JSON escapes it, and the console shows it through `base.text.shown`.
What other libraries log through `logging` comes out in the same form.
"""

import json
import logging
import sys
import threading
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol, TextIO

import structlog

from dexaflow.base.text import shown

__all__ = ["AttemptIds", "attempt_fields", "catch_strays", "configure_logs", "get_logger"]

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

EventDict = MutableMapping[str, Any]  # Any: structlog's own type for a line on its way

_FIRST = ("timestamp", "level", "event", "logger")
_LEVEL_STYLE: Mapping[str, str] = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}


class AttemptIds(Protocol):
    """Whatever is about one attempt: an `Attempt`, a `Request`, the store's `Work` and `Ended`."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def dag_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def task_id(self) -> str: ...
    @property
    def try_number(self) -> int: ...


def attempt_fields(attempt: AttemptIds) -> dict[str, str | int]:
    """Return the fields by which every line about `attempt` can be found."""
    return {
        "tenant_id": attempt.tenant_id,
        "dag_id": attempt.dag_id,
        "run_id": attempt.run_id,
        "task_id": attempt.task_id,
        "try_number": attempt.try_number,
    }


def get_logger(name: str) -> Any:  # Any: structlog's loggers take any field as a keyword
    """Return a logger; `name` is its module's."""
    return structlog.stdlib.get_logger(name)


def configure_logs(*, form: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Set up structlog and `logging` for the whole process; may be called again.

    Args:
        form: `json`, `console`, or `auto`: console on a terminal, else JSON.
        level: `debug`, `info`, `warning` or `error`.
        stream: Where lines go; standard error when None.
    """
    out = stream if stream is not None else sys.stderr
    terminal = out.isatty()
    console = form == "console" or (form == "auto" and terminal)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.stdlib.ExtraAdder(allow=()),
        structlog.processors.format_exc_info,
    ]
    render = _ConsoleLine(colour=terminal) if console else _json_line
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        foreign = logging.getLogger(name)
        foreign.handlers.clear()
        foreign.propagate = True
        # That it starts and stops we say in our own words, and the metrics tell of requests.
        foreign.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # tests and the library set up logs more than once
    )


def catch_strays() -> None:
    """Have the log take what Python would print by itself: errors of threads and finalizers, and warnings.

    Where foreign code runs beside ours, that is text from outside. For a process that serves; there is no way back.
    """
    log = get_logger("dexaflow")

    def thread_failed(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_type is not SystemExit:
            name = failed.thread.name if failed.thread is not None else ""
            log.error("thread_failed", thread=name, exc_info=failed.exc_value)

    def finalizer_failed(failed: Any) -> None:  # Any: `sys.UnraisableHookArgs` is there for type checkers alone
        log.error("finalizer_failed", exc_info=failed.exc_value)

    threading.excepthook = thread_failed
    sys.unraisablehook = finalizer_failed
    logging.captureWarnings(True)


def _ordered(event: EventDict) -> dict[str, Any]:
    """Return the line's fields, those that every line has first."""
    line = {key: event[key] for key in _FIRST if key in event}
    line.update((key, value) for key, value in event.items() if key not in line)
    return line


def _json_line(_logger: Any, _method: str, event: EventDict) -> str:
    """One JSON object; escapes everything outside ASCII, so no reader's idea of a line end splits it."""
    return json.dumps(_ordered(event), default=_plain, ensure_ascii=True)


def _plain(value: object) -> object:
    """Return something JSON has for `value`."""
    if isinstance(value, Mapping):
        return {str(k): v for k, v in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(v) for v in value)
    return str(value)


class _ConsoleLine:
    """One line for a person: time, level, event, then fields; a traceback follows, indented."""

    def __init__(self, *, colour: bool) -> None:
        self._colour = colour

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> str:
        line = _ordered(event)
        timestamp = str(line.pop("timestamp", ""))
        level = str(line.pop("level", ""))
        what = shown(str(line.pop("event", "")))
        line.pop("logger", None)
        trace = str(line.pop("exception", ""))
        stack = str(line.pop("stack", ""))
        fields = " ".join(f"{shown(str(key))}={_field(value)}" for key, value in line.items())
        word = f"{level:<7}"
        if self._colour and level in _LEVEL_STYLE:
            word = f"{_LEVEL_STYLE[level]}{word}\x1b[0m"
        text = f"{timestamp} {word} {what}" + (f"  {fields}" if fields else "")
        for block in (stack, trace):
            # A message inside a traceback may hold anything: each of its lines is cleaned and stays indented.
            text += "".join(f"\n    {shown(row)}" for row in block.split("\n") if row)
        return text


def _field(value: object) -> str:
    """Return a field's value; quoted when it would otherwise run into the next field."""
    text = shown(value if isinstance(value, str) else json.dumps(value, default=_plain, ensure_ascii=False))
    if text == "" or (isinstance(value, str) and any(c in text for c in ' "=')):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text
