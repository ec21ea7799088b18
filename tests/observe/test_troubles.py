"""A trouble that lasts does not flood the log, and is not forgotten either."""

import ast
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog
from structlog.testing import capture_logs

import dexaflow
from dexaflow.observe.troubles import FIRST_SECONDS, LONGEST_SECONDS, MOST_CAUSES, Troubles
from tests.virtual_time import run_virtually

SOURCES = Path(dexaflow.__file__).parent


def heard(test: Callable[[Troubles], Coroutine[Any, Any, None]]) -> list[tuple[float, dict[str, Any]]]:
    """Return what was said, with the second of it."""
    lines: list[tuple[float, dict[str, Any]]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def listen(_logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
            lines.append((loop.time() - began, {**event, "level": method}))
            raise structlog.DropEvent

        before = structlog.get_config()
        structlog.configure(processors=[listen])
        try:
            await test(Troubles("dexaflow.x"))
            await asyncio.sleep(1000)  # whatever is still to be said
        finally:
            structlog.configure(**before)

    run_virtually(run)
    return lines


def test_an_error_that_comes_back_is_said_at_once_and_then_at_growing_intervals() -> None:
    async def test(troubles: Troubles) -> None:
        for second in range(200):
            for number in range(300):  # hundreds of attempts, each tried once a second
                troubles.error("requeue_failed", cause="disk is full", task_id=f"t{second}.{number}")
            await asyncio.sleep(1)

    lines = heard(test)

    assert [at for at, _ in lines] == [0, 5, 15, 35, 75, 135, 195, 255]
    assert lines[0][1] == {"event": "requeue_failed", "cause": "disk is full", "task_id": "t0.0", "level": "error"}
    assert 1 + sum(line["times"] for _, line in lines[1:]) == 200 * 300  # none is left out
    assert lines[-1][1]["task_id"] == "t199.299"  # the latest


def test_an_error_that_has_not_come_back_is_news_again() -> None:
    async def test(troubles: Troubles) -> None:
        for _ in range(3):
            troubles.error("tick_failed", cause="busy")
            await asyncio.sleep(FIRST_SECONDS + 1)

    assert [(at, "times" in line) for at, line in heard(test)] == [(0, False), (6, False), (12, False)]


def test_another_cause_and_another_event_are_news() -> None:
    async def test(troubles: Troubles) -> None:
        for event in ("walk_failed", "tick_failed"):
            for cause in ("disk is full", "database is locked"):
                troubles.error(event, cause=cause)

    assert len(heard(test)) == 4


def test_causes_that_are_never_the_same_are_no_flood_either() -> None:
    async def test(troubles: Troubles) -> None:
        for number in range(1000):
            troubles.error("walk_failed", cause=f"KeyError: {number}")

    lines = heard(test)

    assert len(lines) <= MOST_CAUSES + 2
    assert sum(line.get("times", 1) for _, line in lines) == 1000
    assert lines[-1][0] <= LONGEST_SECONDS


def test_a_healthy_loop_has_no_timers_left() -> None:
    async def run() -> int:
        with capture_logs():
            troubles = Troubles("dexaflow.x")
            troubles.error("tick_failed", cause="busy")
            await asyncio.sleep(FIRST_SECONDS + 1)
        return len(troubles._going_on)

    assert run_virtually(run) == 0


def test_whatever_is_tried_again_says_its_failures_through_troubles() -> None:
    """No loop writes an error into the log itself, unless it says it once: those have their reason here."""
    once = {
        "file_watch_failed",  # until a look succeeds
    }
    found = set()
    for path in SOURCES.rglob("*.py"):
        for loop in ast.walk(ast.parse(path.read_text())):
            if not isinstance(loop, ast.While):
                continue
            for call in ast.walk(loop):
                if (
                    isinstance(call, ast.Call)
                    and ast.unparse(call.func).lstrip("_") in ("log.error", "log.exception")
                    and isinstance(call.args[0], ast.Constant)
                ):
                    found.add(call.args[0].value)

    assert found == once
