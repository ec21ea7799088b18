"""Runs: made by schedule or hand, begun within their limits, ended when their tasks have; none is forgotten."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dexaflow.base.errors import Conflict, DagError, UsageError
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import State
from dexaflow.store import people, registering, running
from tests.store.world import World, a_task

HOURLY: dict[str, Any] = {"schedule": "0 * * * *", "start_date": datetime(2026, 11, 1, tzinfo=UTC)}


def runs(world: World, dag_id: str = "d") -> list[tuple[str, str]]:
    return [
        (r.logical_date, r.state)
        for r in world.rows("SELECT logical_date, state FROM runs WHERE dag_id = :d ORDER BY logical_date", d=dag_id)
    ]


def next_run_at(world: World, dag_id: str = "d") -> str | None:
    (row,) = world.rows("SELECT next_run_at FROM dags WHERE dag_id = :d", d=dag_id)
    return None if row.next_run_at is None else str(row.next_run_at)


def test_a_dag_without_tasks_has_succeeded_as_soon_as_it_runs(world: World) -> None:
    world.register()
    world.trigger()
    world.settle()
    assert world.run_state() == "success"


def test_no_more_runs_at_once_than_max_active_runs_and_the_next_follows_in_order(world: World) -> None:
    world.register(a_task(), max_active_runs=2)
    for i in range(4):
        world.trigger(f"r{i}")
    first = world.settle()
    assert [world.run_state(f"r{i}") for i in range(4)] == ["running", "running", "queued", "queued"]
    world.launch(first[0])
    world.started(first[0])
    world.ended(first[0])
    assert world.schedule().more  # the next one begins in the following pass, not at the next sweep
    (third,) = world.settle()
    assert third.run_id == "r2"


def test_a_run_times_out_by_the_time_the_control_plane_was_up(world: World) -> None:
    attempt = world.running(a_task("a"), a_task("b", upstream=("a",)), dagrun_timeout=60.0)
    world.wall += timedelta(hours=5)  # a stepped clock is no time
    assert world.schedule().timed_out == ()
    world.pass_time(61)
    (kill,) = world.schedule().timed_out
    assert kill.launches == ((attempt.id, "launch-1"),)
    assert (world.run_state(), world.state("b")) == ("running", State.SKIPPED)
    world.ended(attempt)
    world.settle()
    assert world.run_state() == "failed"
    assert "dagrun_timeout" in world.row("a").reason


def test_a_held_attempt_does_not_keep_its_run_from_timing_out(world: World) -> None:
    attempt = world.queued(dagrun_timeout=60.0)
    world.hold(attempt)
    world.pass_time(61)
    (kill,) = world.schedule().timed_out
    assert kill.unheld == (attempt.id,)
    assert (world.run_state(), world.state()) == ("failed", State.SKIPPED)


def test_a_paused_dag_begins_nothing_and_forgets_nothing(world: World) -> None:
    attempt = world.running(a_task("a"), a_task("b", upstream=("a",)))
    world.do(lambda tx: people.set_paused(tx, "d", paused=True))
    world.ended(attempt)
    world.trigger("second")
    world.settle()
    assert (world.state("b"), world.run_state(), world.run_state("second")) == (State.NONE, "running", "queued")
    world.do(lambda tx: people.set_paused(tx, "d", paused=False))
    assert {a.task_id for a in world.settle()} == {"a", "b"}


def test_a_paused_dag_makes_no_runs_and_then_the_latest_only(world: World) -> None:
    world.register(a_task(), **HOURLY)
    world.settle()
    before = len(runs(world))
    world.do(lambda tx: people.set_paused(tx, "d", paused=True))
    world.pass_time(5 * 3600)
    world.settle()
    assert len(runs(world)) == before
    world.do(lambda tx: people.set_paused(tx, "d", paused=False))
    world.settle()
    assert len(runs(world)) == before + 1
    assert runs(world)[-1][0].startswith("2026-11-29T17:00")


def test_a_long_catchup_makes_its_runs_as_they_come_to_run(world: World) -> None:
    """672 hours have been missed: they do not stand in the database all at once, and each is made, in order."""
    world.register(a_task(), **HOURLY, catchup=True, max_active_runs=3)
    queued = world.settle()
    assert len(runs(world)) == 3
    assert world.schedule().schedule_at is None  # and nobody looks every moment whether there is room
    for i in range(6):
        attempt = queued.pop(0)
        world.launch(attempt, f"launch-{i}")
        world.started(attempt, f"launch-{i}")
        world.ended(attempt, f"launch-{i}")
        queued += world.settle()
    made = runs(world)
    assert [at[8:13] for at, _ in made] == [f"01T{hour:02}" for hour in range(9)]
    assert [state for _, state in made] == ["success"] * 6 + ["running"] * 3


@pytest.mark.parametrize("how", ["ends", "is cancelled", "times out"])
def test_a_schedule_that_waited_for_a_run_goes_on_when_one(world: World, how: str) -> None:
    world.register(a_task(), **HOURLY, max_active_runs=1, dagrun_timeout=7200.0)
    (attempt,) = world.settle()
    assert len(runs(world)) == 1
    world.pass_time(3600)
    world.settle()
    assert (len(runs(world)), next_run_at(world)) == (1, None)
    world.launch(attempt)
    world.started(attempt)
    if how == "is cancelled":
        world.cancel(attempt.run_id)
    if how == "times out":
        world.pass_time(3700)
        world.settle()
    world.ended(attempt)
    assert len(world.settle()) == 1
    assert len(runs(world)) == 2


def test_a_dag_without_a_schedule_makes_no_run_when_one_ends(world: World) -> None:
    world.ended(world.running())
    world.settle()
    assert len(runs(world)) == 1
    assert next_run_at(world) is None


def test_a_changed_schedule_counts_from_the_next_look(world: World) -> None:
    world.register(a_task(), **HOURLY)
    world.settle()
    assert next_run_at(world) == "2026-11-29T13:00:00.000000Z"
    world.register(a_task(), **HOURLY | {"schedule": "0 0 * * *"})
    assert next_run_at(world) == "2026-11-30T00:00:00.000000Z"
    world.register(a_task(), schedule=None)
    assert next_run_at(world) is None
    world.pass_time(90_000)
    world.settle()
    assert len(runs(world)) == 1


def test_a_file_that_is_gone_makes_no_runs_and_those_under_way_go_on(world: World) -> None:
    world.register(a_task("a"), a_task("b", upstream=("a",)), **HOURLY)
    (attempt,) = world.settle()
    world.do(lambda tx: registering.remove_file(tx, "acme", "d.py"))
    world.launch(attempt)
    world.started(attempt)
    world.ended(attempt)
    world.pass_time(7200)
    (second,) = world.settle()
    assert (second.task_id, len(runs(world))) == ("b", 1)
    with pytest.raises(Conflict, match="is gone"):
        world.trigger()
    world.register(a_task("a"), **HOURLY)
    world.settle()
    assert len(runs(world)) == 2


def test_a_run_keeps_the_version_it_began_with(world: World) -> None:
    attempt = world.running(a_task("a"), a_task("b", upstream=("a",), pool_slots=2))
    world.register(a_task("a"), a_task("new"))
    world.ended(attempt)
    (second,) = world.settle()
    assert (second.task_id, second.task.pool_slots) == ("b", 2)
    world.trigger("r2")
    assert {a.task_id for a in world.settle()} == {"a", "new"}


def test_a_dag_that_moved_to_another_file_can_be_registered_once_the_old_one_gave_it_up(world: World) -> None:
    world.register(a_task(), file="old.py")
    assert "already taken by old.py" in world.register(a_task(), file="new.py")[0]
    world.do(lambda tx: registering.remove_file(tx, "acme", "old.py"))
    assert world.register(a_task(), file="new.py") == ()
    world.trigger()
    assert len(world.settle()) == 1


def test_another_tenants_dag_id_is_taken_and_its_file_is_not_named(world: World) -> None:
    world.register(a_task(), file="secret_name.py")
    (cause,) = world.register(a_task(), tenant_id="globex")
    assert "already taken" in cause
    assert "secret_name" not in cause


def test_the_dags_of_a_tenant_that_is_no_longer_configured_can_be_another_tenants(world: World) -> None:
    """A tenant is renamed: its DAGs go on under the new name, its runs keep the old one."""
    world.register(a_task())
    world.trigger("before")
    world.do(lambda tx: registering.remove_file(tx, "acme", "d.py"))
    spec = DagSpec("d", (a_task(),))

    def register(*tenants: str) -> tuple[DagError, ...]:
        loaded = registering.DagFile("acme2", "d.py", "snapshot", (spec,), tenants)
        return world.do(lambda tx: registering.register_file(tx, loaded, (), lambda *_: None))[0]

    (error,) = register("acme", "acme2")
    assert error.cause == "dag_id 'd' is already taken, by a DAG whose file is gone; choose another"
    assert register("acme2") == ()
    world.trigger("after")
    tenants = {row.run_id: row.tenant_id for row in world.rows("SELECT run_id, tenant_id FROM runs")}
    assert tenants == {"before": "acme", "after": "acme2"}
    assert {attempt.tenant_id for attempt in world.settle()} == {"acme", "acme2"}


def test_a_file_that_fails_keeps_the_last_good_version_of_its_dags(world: World) -> None:
    world.register(a_task())
    loaded = registering.DagFile("acme", "d.py", "snapshot", ())
    world.do(lambda tx: registering.register_file(tx, loaded, (DagError("d.py", 3, "no"),), lambda *_: None))
    world.trigger()
    assert len(world.settle()) == 1


@pytest.mark.parametrize("year", [1, 999, 9999])
def test_a_logical_date_at_the_edges_of_the_calendar_is_kept_and_sorts(world: World, year: int) -> None:
    world.register(a_task())
    date = datetime(year, 6, 1, tzinfo=UTC)
    new = running.NewRun("r", "manual", date, date, date, {}, "test")
    world.do(lambda tx: running.create_run(tx, "d", new))
    assert datetime.fromisoformat(world.run_row().logical_date) == date


def test_a_logical_date_outside_the_calendar_is_a_clear_error(world: World) -> None:
    world.register(a_task())
    date = datetime.fromisoformat("0001-01-01T00:00:00+14:00")
    new = running.NewRun("r", "manual", date, date, date, {}, "test")
    with pytest.raises(UsageError, match="outside the calendar"):
        world.do(lambda tx: running.create_run(tx, "d", new))


def test_a_run_is_made_once_for_one_logical_date(world: World) -> None:
    world.register(a_task())
    date = datetime(2026, 1, 1, tzinfo=UTC)
    new = running.NewRun("r", "manual", date, date, date, {}, "test")
    world.do(lambda tx: running.create_run(tx, "d", new))
    with pytest.raises(Conflict, match="has a run for"):
        world.do(lambda tx: running.create_run(tx, "d", running.NewRun("s", "manual", date, date, date, {}, "x")))
    with pytest.raises(Conflict, match="exists already"):
        world.do(lambda tx: running.create_run(tx, "d", running.NewRun("r", "manual", None, None, None, {}, "x")))
    scheduled = running.NewRun("t", "scheduled", date, date, date, {}, "schedule")
    assert world.do(lambda tx: running.create_run(tx, "d", scheduled))
    again = running.NewRun("u", "scheduled", date, date, date, {}, "schedule")
    assert not world.do(lambda tx: running.create_run(tx, "d", again))


def test_one_dags_trouble_is_not_anothers(world: World) -> None:
    """A version that cannot be read any more (a newer program wrote it) keeps no other DAG from its schedule."""
    world.register(a_task(), dag_id="bad", **HOURLY)
    world.register(a_task(), dag_id="good", **HOURLY)
    world.do(lambda tx: tx.run("UPDATE dag_versions SET spec = '{}' WHERE dag_id = 'bad'"))
    assert [a.dag_id for a in world.settle()] == ["good"]


def test_a_run_whose_version_cannot_be_read_says_so_and_stops_nobody(world: World) -> None:
    for dag_id in ("bad", "good", "scheduled"):
        world.register(a_task(), dag_id=dag_id)
        world.trigger(dag_id, dag_id)
        if dag_id == "scheduled":
            world.schedule(parallelism=0)
    world.do(lambda tx: tx.run("UPDATE dag_versions SET spec = '{}' WHERE dag_id <> 'good'"))
    registering._known.clear()  # a restart: no program changes a version that it has written
    world.do(lambda tx: tx.run("UPDATE task_instances SET state = 'none' WHERE dag_id <> 'scheduled'"))
    world.do(lambda tx: tx.run("UPDATE runs SET dirty = true"))
    assert [a.dag_id for a in world.settle()] == ["good"]
    assert "cannot go on" in world.run_row("bad").note
    world.cancel("bad")
    assert world.run_state("bad") == "failed"


def test_specs_survive_the_way_through_the_database(world: World) -> None:
    spec = DagSpec("d", (a_task(env={"A": "\\u202e'\\"}),))
    loaded = registering.DagFile("acme", "d.py", "snapshot", (spec,))
    world.do(lambda tx: registering.register_file(tx, loaded, (), lambda *_: None))
    assert world.do(lambda tx: registering.spec_of(tx, 1)) == spec
