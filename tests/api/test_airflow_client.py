"""Airflow's own client reads, triggers, pauses, cancels, clears and follows logs."""

from collections.abc import Iterator
from datetime import UTC, datetime

import airflow_client.client as airflow
import pytest
from airflow_client.client.exceptions import ApiException, ConflictException, NotFoundException, UnauthorizedException

from dexaflow.model.states import State
from tests.api.builders import Database, MemoryLogs, a_dag, a_task, at
from tests.api.conftest import TOKEN, Server


@pytest.fixture
def client(server: Server) -> Iterator[airflow.ApiClient]:
    configuration = airflow.Configuration(host=server.url, access_token=TOKEN)
    with airflow.ApiClient(configuration) as found:
        yield found
        found.rest_client.pool_manager.clear()


def test_a_wrong_token_is_turned_away(server: Server) -> None:
    configuration = airflow.Configuration(host=server.url, access_token="wrong")
    with airflow.ApiClient(configuration) as client, pytest.raises(UnauthorizedException):
        airflow.DAGApi(client).get_dags()


def test_it_reads_dags_tasks_and_versions(client: airflow.ApiClient, database: Database) -> None:
    database.dag(
        a_dag(
            "nightly_etl", a_task("extract", execution_timeout=90.5, retries=2), a_task("load", upstream=("extract",)),
            schedule="0 4 * * *", timezone="Europe/Berlin", description="every night", tags=("nightly", "etl"),
            start_date=datetime(2026, 1, 1, tzinfo=UTC), dagrun_timeout=3600.0,
        ),
        next_run_at=at(3600),
    )  # fmt: skip
    database.dag(a_dag("other"), is_active=False)
    database.dag_error("nightly_etl.py")

    page = airflow.DAGApi(client).get_dags()
    assert [d.dag_id for d in page.dags] == ["nightly_etl"]
    assert page.dags[0].has_import_errors
    assert airflow.DAGApi(client).get_dags(exclude_stale=False, order_by=["-dag_id"]).dags[0].is_stale
    assert airflow.DAGApi(client).get_dags(dag_id_pattern="NIGHT").total_entries == 1
    assert airflow.DAGApi(client).get_dags(dag_id_prefix_pattern="etl").total_entries == 0
    assert airflow.DAGApi(client).get_dag("nightly_etl").timetable_summary == "0 4 * * *"
    details = airflow.DAGApi(client).get_dag_details("nightly_etl")
    assert details.timezone == "Europe/Berlin"
    assert details.latest_dag_version is not None
    assert details.latest_dag_version.version_number == 1
    tasks = airflow.TaskApi(client).get_tasks("nightly_etl").tasks
    assert [t.task_id for t in tasks] == ["extract", "load"]
    extract = airflow.TaskApi(client).get_task("nightly_etl", "extract")
    assert extract.downstream_task_ids == ["load"]
    assert extract.execution_timeout is not None
    assert (extract.execution_timeout.seconds, extract.execution_timeout.microseconds) == (90, 500_000)
    assert airflow.DagVersionApi(client).get_dag_versions("nightly_etl").total_entries == 1
    assert airflow.DagVersionApi(client).get_dag_version("nightly_etl", 1).version_number == 1
    errors = airflow.ImportErrorApi(client).get_import_errors().import_errors
    assert errors[0].stack_trace == "nightly_etl.py:3: NameError: x"
    assert airflow.ImportErrorApi(client).get_import_error(errors[0].import_error_id).filename == "nightly_etl.py"
    with pytest.raises(NotFoundException) as absent:
        airflow.DAGApi(client).get_dag("no_such")
    assert "there is no DAG 'no_such'" in str(absent.value.body)


def test_it_pauses_and_unpauses(client: airflow.ApiClient, database: Database) -> None:
    database.dag()
    api = airflow.DAGApi(client)
    assert api.patch_dag("nightly_etl", airflow.DAGPatchBody(is_paused=True)).is_paused
    assert api.get_dags(paused=True).total_entries == 1
    assert not api.patch_dag("nightly_etl", airflow.DAGPatchBody(is_paused=False), update_mask=["is_paused"]).is_paused


def test_it_triggers_and_an_id_that_is_taken_is_a_conflict(client: airflow.ApiClient, database: Database) -> None:
    database.dag()
    api = airflow.DagRunApi(client)
    body = airflow.TriggerDAGRunPostBody(
        dag_run_id="manual__2026-11-29T12:00:00+00:00", conf={"day": "29", "deep": [1, {"a": None}]}, note="by hand",
        logical_date=datetime(2026, 11, 29, 12, tzinfo=UTC),
    )  # fmt: skip
    run = api.trigger_dag_run("nightly_etl", body)
    assert run.dag_run_id == "manual__2026-11-29T12:00:00+00:00"
    assert run.conf == {"day": "29", "deep": [1, {"a": None}]}
    assert run.state == "queued"
    assert api.get_dag_run("nightly_etl", run.dag_run_id).note == "by hand"
    assert api.get_dag_run("~", run.dag_run_id).dag_id == "nightly_etl"
    with pytest.raises(ConflictException):
        api.trigger_dag_run("nightly_etl", body)
    own_id = api.trigger_dag_run("nightly_etl", airflow.TriggerDAGRunPostBody(logical_date=None))
    assert own_id.logical_date is None
    with pytest.raises(NotFoundException):
        api.trigger_dag_run("no_such", airflow.TriggerDAGRunPostBody())


def test_it_filters_and_sorts_runs(client: airflow.ApiClient, database: Database) -> None:
    database.dag()
    database.dag(a_dag("weekly"))
    for i, state in enumerate(["success", "failed", "running"]):
        database.run(
            f"run-{i}", state=state, queued=float(i * 60), ended_at=None if state == "running" else at(i + 300)
        )
    database.run("run-weekly", "weekly", run_type="scheduled", logical_date=at(0), queued=600.0)
    api = airflow.DagRunApi(client)

    def ids(**asked: object) -> list[str]:
        dag_id = str(asked.pop("dag_id", "nightly_etl"))
        return [r.dag_run_id for r in api.get_dag_runs(dag_id, **asked).dag_runs]  # type: ignore[arg-type]

    assert ids() == ["run-0", "run-1", "run-2"]
    assert ids(state=["failed", "running"]) == ["run-1", "run-2"]
    assert ids(order_by=["-run_after"], limit=2) == ["run-2", "run-1"]
    assert ids(order_by=["-run_after"], limit=2, offset=2) == ["run-0"]
    assert ids(run_after_gte=datetime(2026, 11, 29, 12, 1, tzinfo=UTC)) == ["run-1", "run-2"]
    assert ids(run_after_gt=datetime(2026, 11, 29, 12, 1, tzinfo=UTC)) == ["run-2"]
    assert ids(dag_id="~", run_type=["scheduled"]) == ["run-weekly"]
    assert ids(dag_id="~", order_by=["-id"], limit=1) == ["run-weekly"]
    assert api.get_dag_runs("~", limit=1).total_entries == 4
    with pytest.raises(NotFoundException):
        api.get_dag_runs("no_such")
    with pytest.raises(ApiException) as refused:
        api.get_dag_runs("~", order_by=["; drop table runs"])
    assert refused.value.status == 422


def test_only_airflows_states_appear_and_the_reason_is_in_the_note(
    client: airflow.ApiClient, database: Database
) -> None:
    """Held is `up_for_reschedule`, launching `queued`, none null; filters map back."""
    states = [s for s in State if s is not State.NONE]
    database.dag(a_dag("nightly_etl", *(a_task(s.value) for s in State)))
    database.run()
    for state in State:
        database.task(state.value, state)
    api = airflow.TaskInstanceApi(client)

    found = {t.task_id: t for t in api.get_task_instances("nightly_etl", "run-1").task_instances}
    shown = {name: None if t.state is None else t.state.value for name, t in found.items()}
    assert shown["held"] == "up_for_reschedule"
    assert shown["launching"] == "queued"
    assert shown["none"] is None
    assert all(shown[s] == s for s in states if s not in (State.HELD, State.LAUNCHING))
    note = found["held"].note
    assert note is not None
    assert "acme is frozen until 06:00 UTC" in note
    assert "freeze" in note

    def named(*asked: str) -> list[str]:
        page = api.get_task_instances("nightly_etl", "run-1", state=list(asked))
        return [t.task_id for t in page.task_instances]

    assert named("up_for_reschedule") == ["held"]
    assert named("queued") == ["launching", "queued"]
    assert named("none") == named("no_status") == ["none"]
    assert named("deferred") == named("removed") == []
    assert named("success", "failed") == ["failed", "success"]
    assert api.get_task_instances("~", "~", state=["up_for_reschedule"]).total_entries == 1
    with pytest.raises(ApiException) as refused:
        named("held")
    assert refused.value.status == 422


def test_a_refused_attempt_shows_the_reason_and_the_hook(client: airflow.ApiClient, database: Database) -> None:
    """R1.4, with a reason that tries to be something else."""
    database.dag()
    database.run()
    hostile = "<script>alert(1)</script>\u202e\x1b[31m"
    database.task("extract", State.FAILED, hook="budget", reason=hostile, ended_at=at(9))
    note = airflow.TaskInstanceApi(client).get_task_instance("nightly_etl", "run-1", "extract").note
    assert note == f"{hostile} (hook budget)"


def test_it_reads_tries_and_results(client: airflow.ApiClient, database: Database) -> None:
    database.dag()
    database.run()
    database.earlier_try("extract", State.FAILED, try_number=1, launch_id="l", started_at=at(5), ended_at=at(7))
    database.task("extract", State.SUCCESS, try_number=2, started_at=at(9), ended_at=at(10.5))
    database.result(b'{"rows": 3}')
    api = airflow.TaskInstanceApi(client)

    tries = api.get_task_instance_tries("nightly_etl", "run-1", "extract").task_instances
    assert [(t.try_number, t.state) for t in tries] == [(1, "failed"), (2, "success")]
    assert tries[1].duration == 1.5
    assert api.get_task_instance_try_details("nightly_etl", "run-1", "extract", 1).duration == 2.0
    with pytest.raises(NotFoundException):
        api.get_task_instance_try_details("nightly_etl", "run-1", "extract", 3)
    xcom = airflow.XComApi(client)
    assert xcom.get_xcom_entries("nightly_etl", "run-1", "extract").total_entries == 1
    entry = xcom.get_xcom_entry("nightly_etl", "extract", "run-1", "return_value").actual_instance
    assert isinstance(entry, airflow.XComResponseNative)
    assert entry.value == {"rows": 3}
    with pytest.raises(NotFoundException):
        xcom.get_xcom_entry("nightly_etl", "extract", "run-1", "other")


def test_it_cancels_by_setting_a_run_to_failed(client: airflow.ApiClient, database: Database) -> None:
    """R6.3: cancelling the run ends a hold at once."""
    database.dag()
    database.run()
    database.task("extract", State.HELD)
    api = airflow.DagRunApi(client)
    api.patch_dag_run("nightly_etl", "run-1", airflow.DAGRunPatchBody(state=airflow.DagRunMutableStates.FAILED))
    instance = airflow.TaskInstanceApi(client).get_task_instance("nightly_etl", "run-1", "extract")
    assert instance.state == "skipped"
    assert instance.note == "cancelled by api"
    with pytest.raises(ApiException) as refused:
        api.patch_dag_run("nightly_etl", "run-1", airflow.DAGRunPatchBody(state=airflow.DagRunMutableStates.SUCCESS))
    assert refused.value.status == 422
    noted = api.patch_dag_run("nightly_etl", "run-1", airflow.DAGRunPatchBody(note="seen"), update_mask=["note"])
    assert noted.note == "seen"


def test_it_clears_tasks_and_says_first_what_it_would_clear(client: airflow.ApiClient, database: Database) -> None:
    """R6.3: clearing starts a new try with nothing carried over. A dry run, Airflow's default, changes nothing."""
    database.dag()
    database.run(state="failed", ended_at=at(20))
    database.task("extract", State.FAILED, ended_at=at(9))
    database.task("load", State.UPSTREAM_FAILED, ended_at=at(9))
    api = airflow.TaskInstanceApi(client)

    def cleared(dry_run: bool) -> list[str]:
        body = airflow.ClearTaskInstancesBody(
            dag_run_id="run-1", task_ids=[airflow.ClearTaskInstancesBodyTaskIdsInner("extract")],
            include_downstream=True, dry_run=dry_run,
        )  # fmt: skip
        page = api.post_clear_task_instances("nightly_etl", body)
        return [t.task_id for t in page.task_instances]

    assert cleared(dry_run=True) == ["extract", "load"]
    assert api.get_task_instance("nightly_etl", "run-1", "extract").state == "failed"
    assert cleared(dry_run=False) == ["extract", "load"]
    again = api.get_task_instance("nightly_etl", "run-1", "extract")
    assert (again.state, again.try_number, again.note) == (None, 2, None)


def test_it_clears_a_whole_run(client: airflow.ApiClient, database: Database) -> None:
    database.dag()
    database.run(state="failed", ended_at=at(20))
    database.task("extract", State.SUCCESS, ended_at=at(9))
    database.task("load", State.FAILED, ended_at=at(9))
    api = airflow.DagRunApi(client)
    would = api.clear_dag_run("nightly_etl", "run-1", airflow.DAGRunClearBody(only_failed=True)).actual_instance
    assert isinstance(would, airflow.ClearTaskInstanceCollectionResponse)
    assert [t.actual_instance.task_id for t in would.task_instances if t.actual_instance] == ["load"]
    run = api.clear_dag_run("nightly_etl", "run-1", airflow.DAGRunClearBody(dry_run=False)).actual_instance
    assert isinstance(run, airflow.DAGRunResponse)
    assert run.state == "queued"  # as in Airflow: it waits for `max_active_runs`


def events(piece: airflow.TaskInstancesLogResponse) -> list[str]:
    lines = piece.content.to_dict()
    assert isinstance(lines, list)
    return [line.event for line in lines if isinstance(line, airflow.StructuredLogMessage)]


def test_it_reads_logs_in_both_forms_and_follows_them(
    client: airflow.ApiClient, database: Database, logs: MemoryLogs
) -> None:
    database.dag()
    database.run()
    database.task("extract", State.RUNNING)
    logs.kept["run-1", "extract", 1] = "first\nsecönd \u2028 <b>\nhalf a li".encode()
    api = airflow.TaskInstanceApi(client)

    piece = api.get_log("nightly_etl", "run-1", "extract", 1)
    assert events(piece) == ["first", "secönd \u2028 <b>"]
    assert piece.continuation_token is not None
    database.set_task("run-1", "extract", state="success", ended_at=at(9))
    logs.kept["run-1", "extract", 1] += b"ne\n"
    rest = api.get_log("nightly_etl", "run-1", "extract", 1, token=piece.continuation_token)
    assert events(rest) == ["half a line"]
    assert rest.continuation_token is None
    whole = api.get_log("nightly_etl", "run-1", "extract", 1, full_content=True)
    assert len(events(whole)) == 3

    lines = api.get_log_without_preload_content("nightly_etl", "run-1", "extract", 1, accept="application/x-ndjson")
    assert lines.status == 200
    assert lines.data.splitlines()[0] == b'{"event":"first","timestamp":null}'
    with pytest.raises(NotFoundException):
        api.get_log("nightly_etl", "run-1", "extract", 2)


def test_it_keeps_pools(client: airflow.ApiClient, database: Database) -> None:
    database.dag()
    database.run()
    api = airflow.PoolApi(client)
    made = api.post_pool(airflow.PoolBody(name="small pool", slots=4, description="for a few"))
    assert made.open_slots == 4
    database.task("extract", State.RUNNING, pool="small pool", pool_slots=3)
    database.task("load", State.HELD, pool="small pool", pool_slots=3)
    pool = api.get_pool("small pool")
    assert (pool.running_slots, pool.open_slots, pool.deferred_slots) == (3, 1, 0)
    assert api.patch_pool("small pool", airflow.PoolPatchBody(slots=2), update_mask=["slots"]).open_slots == 0
    assert [p.name for p in api.get_pools(order_by=["-name"]).pools] == ["small pool", "default_pool"]
    with pytest.raises(ConflictException):
        api.post_pool(airflow.PoolBody(name="small pool", slots=4))
    with pytest.raises(ApiException) as used:
        api.delete_pool("small pool")
    assert used.value.status == 409
    database.set_task("run-1", "extract", state="success")
    api.delete_pool("small pool")
    with pytest.raises(NotFoundException):
        api.get_pool("small pool")
    with pytest.raises(ApiException) as unbounded:
        api.post_pool(airflow.PoolBody(name="endless", slots=-1))
    assert unbounded.value.status == 422


def test_it_reads_health_and_version(client: airflow.ApiClient) -> None:
    assert airflow.MonitorApi(client).get_health().scheduler.status == "healthy"
    assert airflow.VersionApi(client).get_version().version == "0.1.0"
