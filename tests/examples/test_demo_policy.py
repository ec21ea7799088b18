"""The policy of the demo (issue, "The parts", 8)."""

from dataclasses import replace
from pathlib import Path

import pytest
from examples.policy.demo_policy import FREEZE_FILE, policy

from dexaflow.admission import Hold, Refuse, Request, admit
from dexaflow.kube.tolerations import Toleration
from tests.hooks.building import a_request

REQUEST = a_request(tenant_id="globex", dag_id="reports")


@pytest.fixture
def freeze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "freeze"
    monkeypatch.setenv(FREEZE_FILE, str(file))
    return file


def test_acme_runs_on_its_own_nodes_and_pays_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FREEZE_FILE, raising=False)
    assert policy(replace(REQUEST, tenant_id="acme")) == admit(
        node_selector={"tenant": "acme"},
        tolerations=[Toleration(key="tenant", operator="Equal", value="acme", effect="NoSchedule")],
        labels={"cost-center": "4711"},
    )


def test_others_run_unchanged(freeze: Path) -> None:
    freeze.write_text("06:00 UTC\n")
    assert policy(REQUEST) == admit()


@pytest.mark.parametrize(
    "request_",
    [replace(REQUEST, tenant_id="frozen"), replace(REQUEST, dag_id="frozen"), replace(REQUEST, dag_id="quarter_close")],
)
def test_what_is_frozen_waits_while_the_freeze_file_exists_and_the_reason_says_until_when(
    freeze: Path, request_: Request
) -> None:
    assert policy(request_) == admit()
    freeze.write_text("06:00 UTC\nasked for by finance\n")
    assert policy(request_) == Hold(f"{request_.dag_id} is frozen until 06:00 UTC")
    freeze.unlink()
    assert policy(request_) == admit()


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n06:00 UTC"])
def test_a_freeze_that_does_not_say_until_when_holds_all_the_same(freeze: Path, content: bytes) -> None:
    freeze.write_bytes(content)
    assert policy(replace(REQUEST, dag_id="frozen")) == Hold("frozen is frozen until further notice")


def test_a_freeze_file_that_cannot_be_read_is_a_broken_hook_and_no_admit(freeze: Path) -> None:
    """What holds the attempt (R7.1) instead of letting it slip through."""
    freeze.mkdir()
    with pytest.raises(OSError):
        policy(replace(REQUEST, dag_id="frozen"))


@pytest.mark.parametrize("dag_id", ["over_budget", "train_model"])
def test_what_no_budget_covers_is_refused_also_during_a_freeze(freeze: Path, dag_id: str) -> None:
    freeze.write_text("06:00 UTC")
    answer = policy(replace(REQUEST, dag_id=dag_id))
    assert isinstance(answer, Refuse)
    assert answer.reason.startswith(f"over budget: {dag_id} needs")
