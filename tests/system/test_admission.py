"""Admission in a real server, asked of a real HTTPS endpoint."""

import pytest

from tests.system.endpoint import Endpoint
from tests.system.lite import Lite, wait_for

ONE_TASK = """
from dexaflow import DAG, bash

with DAG("one", default_args={"retries": 3, "retry_delay": 0}):
    bash("only", "echo ran")
"""


@pytest.fixture
def asking(server: Lite, policy: Endpoint) -> Lite:
    server.config = policy.config()
    server.write_dag("one", ONE_TASK)
    return server


def test_an_admitted_attempt_runs_and_tells_who_set_what(asking: Lite, policy: Endpoint) -> None:
    """R5.5, R9.2: on Lite changes are checked, recorded and shown all the same."""
    policy.rules({"only": {"decision": "admit", "changes": {"labels": {"cost-center": "4711"}}}})
    asking.start()
    run_id = asking.trigger("one")
    assert asking.ended(run_id) == "success"
    explained = asking.explain(run_id, "only")
    assert [(r["hook"], r["outcome"]) for r in explained["admission"]["reviews"]] == [("webhook", "admit")]
    assert "hook:webhook" in str(explained)
    assert len(policy.asked) == 1


def test_a_refused_attempt_fails_at_once_is_not_retried_and_never_runs(asking: Lite, policy: Endpoint) -> None:
    """R1.4"""
    policy.rules({"*": {"decision": "refuse", "reason": "the budget is spent\u202e"}})
    asking.start()
    run_id = asking.trigger("one")
    assert asking.ended(run_id) == "failed"
    task = asking.task(run_id, "only")
    assert (task["state"], task["try_number"], task["hook"]) == ("failed", 1, "webhook")
    assert task["reason"] == "the budget is spent\u202e"
    assert len(policy.asked) == 1
    assert asking.events("attempt_launched") == []
    assert list((asking.data / "agents").glob("*.json")) == []


def test_a_held_attempt_waits_with_its_reason_and_runs_once_it_is_admitted(asking: Lite, policy: Endpoint) -> None:
    """R6.1"""
    policy.rules({"*": {"decision": "hold", "reason": "frozen until 06:00 UTC"}})
    asking.start()
    run_id = asking.trigger("one")
    task = asking.in_state(run_id, "only", "held")
    assert (task["reason"], task["hook"]) == ("frozen until 06:00 UTC", "webhook")
    assert task["next_ask_at"] is not None
    wait_for(lambda: len(policy.asked) >= 2, what="the second question")
    policy.rules({})
    assert asking.ended(run_id) == "success"
    explained = asking.explain(run_id, "only")
    assert [r["outcome"] for r in explained["admission"]["reviews"]] == ["hold", "admit"]
    assert sum(r["count"] for r in explained["admission"]["reviews"]) == len(policy.asked)


def test_while_the_endpoint_is_down_nothing_runs_and_it_goes_on_by_itself(asking: Lite, policy: Endpoint) -> None:
    """R7.2"""
    policy.kill()
    asking.start()
    run_id = asking.trigger("one")
    task = asking.in_state(run_id, "only", "held")
    assert "webhook" in task["reason"]
    assert "localhost" not in task["reason"]
    policy.start()
    assert asking.ended(run_id) == "success"


def test_fail_open_admits_unchanged_while_the_endpoint_is_down(asking: Lite, policy: Endpoint) -> None:
    """R7.3"""
    asking.config = policy.config(fail_open=True)
    policy.kill()
    asking.start()
    run_id = asking.trigger("one")
    assert asking.ended(run_id) == "success"
    assert [r["outcome"] for r in asking.explain(run_id, "only")["admission"]["reviews"]] == ["fail_open"]
    assert asking.events("fail_open")
    assert asking.events("hook_bypassed")


def test_a_hold_survives_a_killed_server_and_is_asked_again_before_it_runs(asking: Lite, policy: Endpoint) -> None:
    """R6.4"""
    policy.rules({"*": {"decision": "hold", "reason": "frozen"}})
    asking.start()
    run_id = asking.trigger("one")
    asking.in_state(run_id, "only", "held")
    asking.kill9()
    before = len(policy.asked)
    policy.rules({})
    asking.start()
    assert asking.ended(run_id) == "success"
    assert len(policy.asked) > before


def test_cancelling_a_run_ends_its_hold_at_once(asking: Lite, policy: Endpoint) -> None:
    """R6.3"""
    policy.rules({"*": {"decision": "hold", "reason": "frozen"}})
    asking.start()
    run_id = asking.trigger("one")
    asking.in_state(run_id, "only", "held")
    assert asking.request("POST", f"/dexaflow/v1/runs/{run_id}/cancel", {})[0] == 200
    assert asking.ended(run_id) == "failed"
    task = asking.task(run_id, "only")
    assert task["state"] == "skipped"
    assert "cancelled by" in task["reason"]


def test_clearing_a_held_task_starts_a_new_try_with_nothing_carried_over(asking: Lite, policy: Endpoint) -> None:
    """R6.3"""
    policy.rules({"*": {"decision": "hold", "reason": "frozen"}})
    asking.start()
    run_id = asking.trigger("one")
    asking.in_state(run_id, "only", "held")
    policy.rules({})
    assert asking.request("POST", f"/dexaflow/v1/runs/{run_id}/clear", {})[0] == 200
    assert asking.ended(run_id) == "success"
    assert asking.task(run_id, "only")["try_number"] == 2
    assert policy.asked[-1]["try_number"] == 2
    assert len({q["uid"] for q in policy.asked}) == len(policy.asked)


def test_without_a_hook_nothing_is_asked_and_no_admission_metric_is_there(server: Lite, policy: Endpoint) -> None:
    """R1.5"""
    server.write_dag("one", ONE_TASK)
    server.start()
    assert server.ended(server.trigger("one")) == "success"
    assert policy.asked == []
    assert "dexaflow_admission_reviews_total{" not in server.get("/metrics")


def test_a_hook_may_set_what_authors_may_not(asking: Lite, policy: Endpoint) -> None:
    """R5.3: changes are not checked against `execution_allowlist.fields`, which governs what authors set."""
    asking.config["execution_allowlist"] = {"fields": []}
    policy.rules({"*": {"decision": "admit", "changes": {"node_selector": {"tenant": "acme"}}}})
    asking.start()
    run_id = asking.trigger("one")
    assert asking.ended(run_id) == "success"
    assert asking.explain(run_id, "only")["pod"]["execution"]["node_selector"] == {"tenant": "acme"}
