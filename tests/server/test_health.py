"""`/health` believes what was seen lately, part by part; what it saw long ago it calls unwell."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dexaflow.server.health import READY_AFTER_SECONDS, HealthOf
from tests.admission.builders import StandingClock

PASSED = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
LOOKED = datetime(2026, 11, 29, 12, 1, tzinfo=UTC)


class Parts:
    """A scheduler and DAG folders, both seen at work this moment."""

    def __init__(self) -> None:
        self.clock = StandingClock()
        self.loaded = True
        self.scheduler = SimpleNamespace(passed_at=None)
        self.folders = SimpleNamespace(looked_at=None, ready=SimpleNamespace(is_set=lambda: self.loaded))
        self.health = HealthOf(cast(Any, self.scheduler), self.clock, cast(Any, self.folders))
        self.passes()
        self.looks()

    def passes(self) -> None:
        self.scheduler.passed_at = self.clock.monotonic(), PASSED

    def looks(self) -> None:
        self.folders.looked_at = self.clock.monotonic(), LOOKED


def test_all_parts_seen_lately_are_well_and_say_when() -> None:
    parts = Parts()
    health = parts.health.read()

    assert (health.live, health.ready, health.database, health.scheduler, health.loader) == (True,) * 5
    assert (health.scheduler_heartbeat, health.loader_heartbeat) == (PASSED, LOOKED)
    assert health.why == ""


@pytest.mark.parametrize(
    ("silent", "why"),
    [
        ("database", "the database takes no writes; the server's log says why"),
        ("scheduler", "the scheduler makes no passes; the server's log says why"),
    ],
)
def test_without_a_part_of_the_line_it_is_not_ready_and_says_which(silent: str, why: str) -> None:
    parts = Parts()
    parts.clock.seconds += READY_AFTER_SECONDS
    for part, seen in {"database": parts.health.written, "scheduler": parts.passes, "loader": parts.looks}.items():
        if part != silent:
            seen()
    health = parts.health.read()

    assert {part: getattr(health, part) for part in ("database", "scheduler", "loader")} == {
        part: part != silent for part in ("database", "scheduler", "loader")
    }
    assert (health.live, health.ready, health.why) == (True, False, why)


def test_a_folder_that_does_not_answer_is_told_and_holds_up_nothing_that_runs() -> None:
    """A network file system that hangs keeps new DAGs away; those that are known go on."""
    parts = Parts()
    parts.clock.seconds += READY_AFTER_SECONDS
    parts.health.written()
    parts.passes()
    health = parts.health.read()

    assert (health.ready, health.loader, health.loader_heartbeat) == (True, False, LOOKED)


def test_before_the_first_look_is_published_it_is_not_ready() -> None:
    parts = Parts()
    parts.loaded = False
    health = parts.health.read()

    assert (health.ready, health.loader, health.why) == (False, False, "DAG files are being loaded")
