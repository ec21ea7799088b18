"""Structured logs: every line can be found by its attempt, and none is forged."""

import io
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.observe.logs import attempt_fields, configure_logs, get_logger

HOSTILE = 'x\n{"event":"forged"}\r\x1b[31m\u2028\u2029\u202e\x00\x85<script>\ud800'


@dataclass(frozen=True)
class Ids:
    tenant_id: str = "acme"
    dag_id: str = "nightly"
    run_id: str = "0193"
    task_id: str = "extract"
    try_number: int = 2


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def logged(form: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logs(form=form, level=level, stream=stream)
    return stream


def test_a_json_line_is_one_object_with_its_fields_and_a_utc_time() -> None:
    stream = logged("json")

    get_logger("dexaflow.x").warning("hook_failed", hook="webhook", **attempt_fields(Ids()))

    line = json.loads(stream.getvalue())
    assert line["event"] == "hook_failed"
    assert line["level"] == "warning"
    assert {line[key] for key in ("tenant_id", "dag_id", "run_id", "task_id")} == {"acme", "nightly", "0193", "extract"}
    assert line["try_number"] == 2
    time = datetime.fromisoformat(line["timestamp"])
    assert time.utcoffset() == timedelta(0)


@pytest.mark.parametrize("form", ["json", "console"])
def test_text_from_outside_cannot_make_a_line_of_its_own(form: str) -> None:
    """R4.4: in a log line it is text: no escapes, no line of its own."""
    stream = logged(form)

    get_logger("dexaflow").info(HOSTILE, reason=HOSTILE, nested={HOSTILE: [HOSTILE]})

    output = stream.getvalue()
    assert len(output.splitlines()) == 1
    assert output.endswith("\n")
    assert not set(output[:-1]) & set("\n\r\x1b\u2028\u2029\u202e\x00\x85\ud800")
    output.encode()


@given(st.text(st.characters(), max_size=60))
def test_no_text_breaks_a_line(text: str) -> None:
    for form in ("json", "console"):
        stream = logged(form)
        get_logger("dexaflow").info("event", reason=text)
        assert len(stream.getvalue().splitlines()) == 1
        stream.getvalue().encode()


def test_json_gives_the_text_back_exactly() -> None:
    stream = logged("json")

    get_logger("dexaflow").info("event", reason=HOSTILE)

    assert json.loads(stream.getvalue())["reason"] == HOSTILE


def test_what_other_libraries_log_has_the_same_form() -> None:
    """Uvicorn logs through `logging`."""
    stream = logged("json")

    logging.getLogger("uvicorn.error").warning("worker %s\nforged", "w1")

    line = json.loads(stream.getvalue())
    assert line["event"] == "worker w1\nforged"
    assert line["logger"] == "uvicorn.error"
    assert line["level"] == "warning"


def test_a_traceback_on_the_console_stays_indented() -> None:
    """An exception's message may hold line ends: none of its lines begins like a line of the log."""
    stream = logged("console")

    try:
        raise ValueError("one\n2026-01-01T00:00:00Z error   forged")
    except ValueError:
        get_logger("dexaflow").error("failed", exc_info=True)

    first, *rest = stream.getvalue().splitlines()
    assert "failed" in first
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_lines_below_the_level_are_not_written() -> None:
    stream = logged("json", level="error")

    get_logger("dexaflow").warning("quiet")
    get_logger("dexaflow").error("loud")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_auto_is_json_where_nobody_watches() -> None:
    stream = logged("auto")

    get_logger("dexaflow").info("event")

    assert json.loads(stream.getvalue())["event"] == "event"
