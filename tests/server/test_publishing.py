"""Loaded files become registered DAGs, own checks first (R2.2)."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from dexaflow.base.errors import StoreError, TermLost
from dexaflow.loading.registry import FileResult
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.execution import Execution
from dexaflow.policy.policy import Policy
from dexaflow.server import publishing
from dexaflow.server.publishing import Publisher
from dexaflow.store.transaction import Tx
from tests.store.world import World, a_task

T = TypeVar("T")


class FailingStore:
    """Fails a number of times, then does as it is told."""

    def __init__(self, world: World, *failures: Exception) -> None:
        self.world = world
        self.failures = list(failures)

    async def do(self, verb: Callable[[Tx], T]) -> T:
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        return self.world.do(verb)


def publisher(store: FailingStore, policy: Policy | None = None) -> Publisher:
    return Publisher(store, lambda: policy or Policy(), lambda: None)


def placed(task_id: str) -> TaskSpec:
    return a_task(task_id, execution=Execution(node_selector={"zone": "a"}))


async def test_a_database_that_cannot_be_written_delays_a_file_and_loses_none(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "_PAUSE_SECONDS", 0.0)
    full = StoreError("disk is full")
    results = (
        FileResult("acme", "d.py", "snapshot", (DagSpec("d", (a_task(),)),)),
        FileResult("acme", "e.py", errors=()),
        FileResult("acme", "d.py", removed=True),
    )
    for result in results:
        await publisher(FailingStore(world, full, full)).publish(result)
    (row,) = world.rows("SELECT dag_id, is_active FROM dags")
    assert (row.dag_id, bool(row.is_active)) == ("d", False)


async def test_another_leader_ends_it(world: World) -> None:
    with pytest.raises(TermLost):
        await publisher(FailingStore(world, TermLost("another"))).publish(FileResult("acme", "d.py", removed=True))


async def test_the_log_names_the_dags_that_are_registered_and_no_others(world: World) -> None:
    """One whose name is taken is none; a file of which nothing is registered is told as what is wrong with it."""
    await publisher(FailingStore(world)).publish(FileResult("acme", "d.py", "s1", (DagSpec("taken", (a_task(),)),)))
    with capture_logs() as both:
        twins = (DagSpec("taken", (a_task(),)), DagSpec("mine", (a_task(),)))
        await publisher(FailingStore(world)).publish(FileResult("acme", "e.py", "s2", twins))
    with capture_logs() as none:
        await publisher(FailingStore(world)).publish(FileResult("acme", "f.py", "s3", twins[:1]))
    assert [(line["event"], line.get("dags")) for line in both] == [("dag_error", None), ("dag_file_loaded", ["mine"])]
    assert [line["event"] for line in none] == ["dag_error"]


async def test_own_checks_refuse_a_dag_naming_task_field_and_rule_and_spare_its_neighbour(
    world: World,
) -> None:
    policy = Policy(fields=frozenset({"labels"}))
    result = FileResult("acme", "d.py", "snapshot", (DagSpec("bad", (placed("where"),)), DagSpec("good", (a_task(),))))
    await publisher(FailingStore(world), policy).publish(result)
    assert [r.dag_id for r in world.rows("SELECT dag_id FROM dags")] == ["good"]
    (error,) = world.rows("SELECT cause FROM dag_errors")
    for part in ("where", "node_selector", "placement allowlist"):
        assert part in error.cause


async def test_a_dag_that_the_policy_no_longer_allows_keeps_its_last_good_version(world: World) -> None:
    """Its next run is rejected at dispatch; the running one is not torn down."""
    result = FileResult("acme", "d.py", "snapshot", (DagSpec("d", (placed("where"),)),))
    await publisher(FailingStore(world)).publish(result)
    await publisher(FailingStore(world), Policy(fields=frozenset({"labels"}))).publish(result)
    (row,) = world.rows("SELECT is_active FROM dags")
    assert row.is_active
    assert len(world.rows("SELECT * FROM dag_errors")) == 1
