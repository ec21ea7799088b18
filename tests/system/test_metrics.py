"""What Prometheus sees of a running server (R9.1)."""

import re

import pytest

from tests.cli.program import Program
from tests.system.endpoint import Endpoint
from tests.system.lite import Lite, wait_for

TASKS = """
from dexaflow import DAG, bash

with DAG("mixed"):
    for name in ("admitted", "held", "refused", "changed", "badly_changed", "fails"):
        bash(name, "exit 1" if name == "fails" else "true")
    bash("never", "true", trigger_rule="all_success")
"""


def metric(server: Lite, name: str, **labels: str) -> float | None:
    """Return the value of one series, or None when there is no such series."""
    for line in str(server.get("/metrics")).splitlines():
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if match and match[1] == name and dict(re.findall(r'(\w+)="([^"]*)"', match[2] or "")) == labels:
            return float(match[3])
    return None


def reviews(server: Lite, outcome: str) -> float | None:
    return metric(server, "dexaflow_admission_reviews_total", hook="webhook", outcome=outcome)


@pytest.fixture
def mixed(server: Lite, policy: Endpoint) -> Lite:
    server.config = policy.config(recheck="1h")
    server.write_dag("mixed", TASKS)
    policy.rules(
        {
            "held": {"decision": "hold", "reason": "frozen"},
            "refused": {"decision": "refuse", "reason": "no budget"},
            "changed": {"decision": "admit", "changes": {"labels": {"team": "data"}}},
            "badly_changed": {"decision": "admit", "changes": {"labels": {"dexaflow.io/x": "y"}}},
        }
    )
    return server


def test_each_outcome_is_counted_exactly_once_and_each_state_an_attempt_comes_into(mixed: Lite) -> None:
    mixed.start()
    for outcome in ("admit", "hold", "refuse", "change_refused", "error", "breaker_open", "fail_open"):
        assert reviews(mixed, outcome) == 0
    run_id = mixed.trigger("mixed")
    wait_for(lambda: mixed.task(run_id, "fails")["state"] == "failed", what="the failing task")
    wait_for(lambda: mixed.task(run_id, "changed")["state"] == "success", what="the placed task")
    wait_for(lambda: mixed.task(run_id, "admitted")["state"] == "success", what="the admitted task")
    wait_for(lambda: mixed.task(run_id, "never")["state"] == "success", what="the last task")
    assert [reviews(mixed, o) for o in ("admit", "hold", "refuse", "change_refused")] == [4, 1, 1, 1]
    assert [reviews(mixed, o) for o in ("error", "breaker_open", "fail_open")] == [0, 0, 0]
    assert metric(mixed, "dexaflow_admission_review_duration_seconds_count", hook="webhook") == 7
    moved = {s: metric(mixed, "dexaflow_attempts_total", state=s) for s in ("queued", "launching", "running", "held")}
    assert moved == {"queued": 7, "launching": 4, "running": 4, "held": 1}
    assert metric(mixed, "dexaflow_attempts_total", state="success") == 3
    assert metric(mixed, "dexaflow_attempts_total", state="failed") == 3  # refused, change refused, and its own fault
    assert metric(mixed, "dexaflow_attempts_in_state", state="held") == 1
    assert metric(mixed, "dexaflow_attempts_in_state", state="running") == 0
    assert metric(mixed, "dexaflow_pool_slots_taken", pool="default_pool") == 0
    mixed.request("POST", f"/dexaflow/v1/runs/{run_id}/cancel", {})
    assert metric(mixed, "dexaflow_attempts_total", state="skipped") == 1
    assert metric(mixed, "dexaflow_attempts_in_state", state="held") == 0


def test_holds_show_after_a_restart_with_the_time_they_have_waited(mixed: Lite) -> None:
    """R6.4"""
    mixed.start()
    run_id = mixed.trigger("mixed")
    mixed.in_state(run_id, "held", "held")
    assert metric(mixed, "dexaflow_admission_held_attempts", hook="webhook") == 1
    before = metric(mixed, "dexaflow_admission_oldest_hold_seconds", hook="webhook")
    mixed.kill9()
    mixed.start()
    assert metric(mixed, "dexaflow_admission_held_attempts", hook="webhook") == 1
    after = metric(mixed, "dexaflow_admission_oldest_hold_seconds", hook="webhook")
    assert before is not None
    assert after is not None
    assert after > before
    mixed.request("POST", f"/dexaflow/v1/runs/{run_id}/cancel", {})
    assert metric(mixed, "dexaflow_admission_held_attempts", hook="webhook") == 0
    assert metric(mixed, "dexaflow_admission_oldest_hold_seconds", hook="webhook") == 0


def test_an_open_breaker_shows_also_when_nobody_asks(server: Lite, policy: Endpoint) -> None:
    server.config = policy.config(recheck="1h")
    server.write_dag(
        "six",
        "from dexaflow import DAG, bash\nwith DAG('six'):\n    for i in range(6):\n        bash(f't{i}', 'true')\n",
    )
    policy.kill()
    server.start()
    assert metric(server, "dexaflow_admission_breaker_open", hook="webhook") == 0
    run_id = server.trigger("six")
    wait_for(lambda: metric(server, "dexaflow_admission_held_attempts", hook="webhook") == 6, what="six holds")
    assert metric(server, "dexaflow_admission_breaker_open", hook="webhook") == 1
    errors, not_asked = reviews(server, "error"), reviews(server, "breaker_open")
    assert errors is not None
    assert not_asked is not None
    assert errors >= 5
    assert errors + not_asked == 6
    said = Program(server.data, server.root).run("holds", "ask-now", "--hook", "webhook")
    assert "6 held attempts are due, but the breaker of webhook is open: in " in said.stdout
    server.request("POST", f"/dexaflow/v1/runs/{run_id}/cancel", {})
    assert metric(server, "dexaflow_admission_breaker_open", hook="webhook") == 1


def test_no_tenant_dag_run_or_task_is_in_a_label(mixed: Lite) -> None:
    mixed.start()
    run_id = mixed.trigger("mixed")
    wait_for(lambda: mixed.task(run_id, "admitted")["state"] == "success", what="the admitted task")
    page = str(mixed.get("/metrics"))
    for name in ("mixed", "admitted", run_id, "tenant", "dag_id"):
        assert f'"{name}"' not in page
        assert f'{name}="' not in page
