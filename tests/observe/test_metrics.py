"""What Prometheus sees (R9.1)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dexaflow.admission.results import Outcome
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import TaskSpec
from dexaflow.model.states import State
from dexaflow.observe.metrics import Metrics, buckets_around
from tests.hooks.building import a_request

ATTEMPT = Attempt(
    "a1", "tenant-marker", "dag-marker", "run-marker", "task-marker", 1, TaskSpec("task-marker", "python")
)
REQUEST = a_request(tenant_id="tenant-marker", dag_id="dag-marker", run_id="run-marker", task_id="task-marker")


@dataclass(frozen=True)
class Holding:
    hook: str
    held: int
    oldest_seconds: float


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample on the page by name and labels."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, tuple(sorted(labels.items()))))


def test_without_hooks_no_admission_metric_has_a_sample() -> None:
    """Off by default: nothing is asked and no admission metric moves (R1.5)."""
    metrics = Metrics()
    metrics.read_breakers(dict)
    metrics.read_holds(tuple)
    metrics.read_stale_files(dict)
    metrics.read_abandoned_calls(dict)

    assert [name for name, _ in samples(metrics) if name.startswith("dexaflow_admission")] == []


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_ask_of_a_hook_counts_once_under_its_outcome(outcome: Outcome) -> None:
    """Exactly one outcome for each hook and ask (R9.1)."""
    metrics = Metrics(hooks=["webhook"])

    metrics.reviewed(ATTEMPT, "webhook", outcome, 0.1)

    counted = {
        other: value(metrics, "dexaflow_admission_reviews_total", hook="webhook", outcome=other) for other in Outcome
    }
    assert counted == {other: float(other is outcome) for other in Outcome}


def test_series_of_a_configured_hook_begin_at_zero() -> None:
    """Prometheus sees no increase in a series that is born with its first event: the alert would come too late."""
    metrics = Metrics(hooks=["webhook", "mod:freeze"])

    for hook in ("webhook", "mod:freeze"):
        assert value(metrics, "dexaflow_admission_reviews_total", hook=hook, outcome="error") == 0
        assert value(metrics, "dexaflow_admission_review_duration_seconds_count", hook=hook) == 0


def test_a_question_that_was_not_put_has_no_duration() -> None:
    """With an open breaker nothing is asked, so nothing took any time."""
    metrics = Metrics(hooks=["webhook"])

    metrics.reviewed(ATTEMPT, "webhook", Outcome.BREAKER_OPEN, None)
    metrics.reviewed(ATTEMPT, "webhook", Outcome.ADMIT, 0.2)

    assert value(metrics, "dexaflow_admission_review_duration_seconds_count", hook="webhook") == 1
    assert value(metrics, "dexaflow_admission_review_duration_seconds_sum", hook="webhook") == pytest.approx(0.2)


@pytest.mark.parametrize("timeout", [0.01, 0.05, 0.5, 1.0, 30.0])
def test_duration_buckets_lie_around_the_configured_timeout(timeout: float) -> None:
    """R9.1: an answer just in time and one just too late are told apart."""
    bounds = buckets_around(timeout)

    assert timeout in bounds
    assert list(bounds) == sorted(set(bounds))
    assert sum(0.5 * timeout <= bound < timeout for bound in bounds) >= 3
    assert any(timeout < bound <= 1.2 * timeout for bound in bounds)


def test_an_open_breaker_shows_also_when_nobody_asks() -> None:
    """The gauge is read at the scrape, not set at an ask (R9.1)."""
    breakers = {"webhook": False}
    metrics = Metrics(hooks=breakers)
    metrics.read_breakers(lambda: breakers)
    assert value(metrics, "dexaflow_admission_breaker_open", hook="webhook") == 0

    breakers["webhook"] = True

    assert value(metrics, "dexaflow_admission_breaker_open", hook="webhook") == 1


def test_held_attempts_and_the_oldest_hold_are_shown_for_every_hook() -> None:
    """Also zero for one that holds none, and for one that is no longer configured but still holds (R9.1)."""
    metrics = Metrics(hooks=["webhook"])
    metrics.read_breakers(lambda: {"webhook": False})
    metrics.read_holds(lambda: [Holding("mod:gone", 3, 61.5)])

    assert value(metrics, "dexaflow_admission_held_attempts", hook="webhook") == 0
    assert value(metrics, "dexaflow_admission_oldest_hold_seconds", hook="webhook") == 0
    assert value(metrics, "dexaflow_admission_held_attempts", hook="mod:gone") == 3
    assert value(metrics, "dexaflow_admission_oldest_hold_seconds", hook="mod:gone") == 61.5


def test_a_file_that_could_not_be_reloaded_shows() -> None:
    """At reload the last good one stays and a gauge says so (R2.3)."""
    metrics = Metrics()
    metrics.read_stale_files(lambda: {"ca_file": False, "token_file": True})

    assert value(metrics, "dexaflow_admission_webhook_files_stale", file="token_file") == 1
    assert value(metrics, "dexaflow_admission_webhook_files_stale", file="ca_file") == 0


def test_a_reading_that_fails_leaves_the_rest_of_the_page() -> None:
    """A store that is closing must not take the breakers from the page."""

    def closed() -> dict[str, int]:
        raise RuntimeError("the store is closed")

    metrics = Metrics()
    metrics.read_attempts(closed)
    metrics.read_breakers(lambda: {"webhook": True})
    metrics.read_slots(lambda: {"default_pool": (3, 16)})

    assert value(metrics, "dexaflow_admission_breaker_open", hook="webhook") == 1
    assert value(metrics, "dexaflow_pool_slots_taken", pool="default_pool") == 3
    assert value(metrics, "dexaflow_pool_slots", pool="default_pool") == 16


def filled() -> Metrics:
    """Return metrics in which everything has happened."""
    metrics = Metrics(hooks=["webhook"])
    for outcome in Outcome:
        metrics.reviewed(ATTEMPT, "webhook", outcome, 0.1)
    metrics.hook_failed(REQUEST, "webhook", "i1", "connection refused", bypassed=False)
    metrics.breaker_changed("webhook", is_open=True)
    metrics.attempts_moved({State.RUNNING: 2})
    metrics.read_breakers(lambda: {"webhook": True})
    metrics.read_holds(lambda: [Holding("webhook", 1, 2.0)])
    metrics.read_stale_files(lambda: {"ca_file": True})
    metrics.read_abandoned_calls(lambda: {"webhook": 1})
    metrics.read_attempts(lambda: {"held": 4})
    metrics.read_slots(lambda: {"default_pool": (1, 2)})
    return metrics


def test_no_label_tells_a_tenant_a_dag_or_a_run() -> None:
    """R9.1: labels are small closed sets."""
    metrics = filled()

    labels = {label for _, pairs in samples(metrics) for label, _ in pairs}
    assert labels <= {"hook", "outcome", "le", "state", "file", "pool"}
    page = metrics.render().decode()
    for field in fields(REQUEST):
        text = getattr(REQUEST, field.name)
        if isinstance(text, str) and text.endswith("-marker"):
            assert text not in page


def alert_rules() -> Iterator[dict[str, Any]]:
    content = resources.files("dexaflow.observe").joinpath("alerts.yaml").read_text()
    for group in yaml.safe_load(content)["groups"]:
        yield from group["rules"]


def test_alert_rules_ship_with_the_package_and_use_only_metrics_that_exist() -> None:
    """R9.1: a file of alert rules for `error`, `breaker_open` and `fail_open`."""
    known = {name for name, _ in samples(filled())}
    used: set[str] = set()
    for rule in alert_rules():
        names = set(re.findall(r"\bdexaflow_\w+", rule["expr"]))
        assert names, rule["alert"]
        assert names <= known, rule["alert"]
        used |= set(re.findall(r'outcome="(\w+)"', rule["expr"]))
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in ("warning", "critical")
    assert used == {"error", "breaker_open", "fail_open"}


def test_every_alert_has_its_entry_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text()

    for rule in alert_rules():
        assert f"## {rule['alert']}" in page
