"""What a DAG may be given, and what its author hears."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dexaflow import DAG, bash, task
from dexaflow.authoring import AuthoringError
from dexaflow.authoring.dag import dag, dags_of


def spec_of(**options: Any) -> Any:
    return DAG("etl", **options).spec()


def test_a_dag_without_options_has_airflows_defaults() -> None:
    """Catchup is off, sixteen runs at once, triggered only (issue: the DAG author)."""
    spec = spec_of()

    assert (spec.schedule, spec.timezone, spec.start_date) == (None, "UTC", None)
    assert (spec.catchup, spec.max_active_runs, spec.dagrun_timeout) == (False, 16, None)
    assert (spec.tags, spec.image, spec.description, spec.tasks) == ((), "", "", ())


def test_a_naive_start_date_is_read_in_the_dags_time_zone() -> None:
    spec = spec_of(timezone="Europe/Berlin", start_date=datetime(2024, 7, 1))  # noqa: DTZ001 - the point

    assert spec.start_date == datetime(2024, 6, 30, 22, tzinfo=UTC)


def test_an_aware_start_date_names_the_time_zone_unless_one_is_given() -> None:
    start = datetime(2024, 7, 1, tzinfo=ZoneInfo("Asia/Tokyo"))

    assert spec_of(start_date=start).timezone == "Asia/Tokyo"
    assert spec_of(start_date=start, timezone="UTC").timezone == "UTC"
    assert spec_of(start_date=start, timezone=ZoneInfo("Europe/Paris")).timezone == "Europe/Paris"
    assert spec_of(start_date=start.astimezone(UTC)).timezone == "UTC"


def test_durations_are_timedeltas_or_seconds() -> None:
    assert spec_of(dagrun_timeout=timedelta(minutes=2)).dagrun_timeout == 120.0
    assert spec_of(dagrun_timeout=90).dagrun_timeout == 90.0


def test_a_schedule_is_five_cron_fields_or_a_preset() -> None:
    assert spec_of(schedule=" 30  6 * * 1-5 ").schedule == "30 6 * * 1-5"
    assert spec_of(schedule="@daily").schedule == "@daily"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"schedule": "0 0 * *"}, "schedule must be five cron fields"),
        ({"schedule": "0 0 * * * *"}, "schedule must be five cron fields"),
        ({"schedule": "@never"}, "schedule must be one of @once, @hourly"),
        ({"schedule": timedelta(days=1)}, "schedule must be None, five cron fields"),
        ({"schedule_interval": "@daily"}, "unknown option 'schedule_interval'; did you mean 'schedule'?"),
        ({"timezone": "Mars/Olympus"}, "timezone 'Mars/Olympus' is not known; write a name like Europe/Berlin"),
        ({"timezone": "../../etc/passwd"}, "is not known; write a name like"),
        ({"timezone": 3}, "timezone must name a time zone"),
        ({"start_date": "2024-01-01"}, "start_date must be a datetime, got '2024-01-01'"),
        (
            {"start_date": datetime.min, "timezone": "Asia/Tokyo"},  # noqa: DTZ901 - the point
            "start_date must be from 1970 to 2199",
        ),
        ({"catchup": "yes"}, "catchup must be True or False, got 'yes'"),
        ({"max_active_runs": 0}, "max_active_runs must be a whole number from 1, got int 0"),
        ({"max_active_runs": True}, "max_active_runs must be a whole number from 1, got bool True"),
        ({"dagrun_timeout": timedelta(0)}, "dagrun_timeout must be above 0 seconds"),
        ({"dagrun_timeout": float("nan")}, "dagrun_timeout must be above 0 seconds"),
        ({"dagrun_timeout": float("inf")}, "dagrun_timeout must be at most ten years"),
        ({"tags": "one"}, "tags must be a list of text"),
        ({"tags": [1]}, "must be text, got int 1"),
        ({"image": None}, "image must be text, got None"),
        ({"description": "\ud800"}, "description holds a lone surrogate"),
        ({"env": {"A": 1}}, "env['A']: the value must be text, got int; put it in quotes"),
        ({"env": {"DEXAFLOW_RUN_ID": "x"}}, "names under DEXAFLOW_ are set by Dexaflow"),
        ({"default_args": {"retrys": 1}}, "default_args: unknown option 'retrys'; did you mean 'retries'?"),
        ({"default_args": {"start_date": None}}, "default_args: unknown option 'start_date'; known are"),
        ({"default_args": {"retries": -1}}, "default_args: retries must be a whole number from 0, got int -1"),
        ({"default_args": []}, "default_args must be a mapping"),
        ({"params": {1: 2}}, "params must be a mapping with text keys"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_authors_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(AuthoringError) as caught:
        DAG("etl", **options)

    assert said in caught.value.cause
    assert "\n" not in str(caught.value)
    assert caught.value.file == __file__
    assert caught.value.line == caught.traceback[0].lineno + 1


@pytest.mark.parametrize("dag_id", ["", "a b", "a/b", "..", ".", "é", "a\n", "x" * 251, "a\0b", "<b>"])
def test_an_id_has_letters_digits_dashes_dots_and_underscores(dag_id: str) -> None:
    with pytest.raises(AuthoringError, match="dag_id"):
        DAG(dag_id)


@pytest.mark.parametrize("dag_id", ["a", "A-1_b.c", "x" * 250, "..a"])
def test_an_id_may_be_250_characters_long(dag_id: str) -> None:
    assert DAG(dag_id).dag_id == dag_id


def test_default_args_stand_behind_a_tasks_own_options_and_env_is_merged() -> None:
    defaults: Any = {"retries": 3, "pool": "slow", "env": {"A": "default", "B": "default"}, "image": "two"}
    with DAG("etl", default_args=defaults, env={"A": "dag", "C": "dag"}, image="one") as etl:
        bash("plain", "true")
        bash("own", "true", retries=0, env={"B": "own"}, image="three")

    plain, own = etl.spec().tasks

    assert (plain.retries, plain.pool, plain.image) == (3, "slow", "two")
    assert plain.env == {"A": "default", "B": "default", "C": "dag"}
    assert (own.retries, own.pool, own.image) == (0, "slow", "three")
    assert own.env == {"A": "default", "B": "own", "C": "dag"}


def test_a_tasks_image_is_that_of_its_dag() -> None:
    with DAG("etl", image="ghcr.io/acme/etl") as etl:
        bash("a", "true")

    assert etl.spec().tasks[0].image == "ghcr.io/acme/etl"


def test_a_cycle_names_its_tasks_in_their_order() -> None:
    with DAG("etl") as etl:
        a, b, c, outside = (bash(name, "true") for name in ("a", "b", "c", "outside"))
        a >> b >> c >> a
        outside >> a

    with pytest.raises(AuthoringError, match=r"DAG 'etl' has a cycle: (a >> b >> c >> a|b >> c >> a >> b|c >> a >> b)"):
        etl.spec()


def test_a_deep_dag_is_no_matter_of_recursion() -> None:
    with DAG("etl") as etl:
        before = bash("t0", "true")
        for number in range(1, 3000):
            before >>= bash(f"t{number}", "true")

    assert len(etl.spec().tasks) == 3000


def test_a_decorated_function_makes_a_dag_when_it_is_called() -> None:
    @dag(schedule="@hourly")
    def nightly() -> None:
        bash("a", "true")

    made = nightly()

    assert (made.dag_id, made.spec().schedule, [t.task_id for t in made.tasks]) == ("nightly", "@hourly", ["a"])


def test_a_dag_belongs_to_the_file_whose_top_level_makes_it() -> None:
    """A factory in another module makes DAGs of the file that calls it."""
    file = "/somewhere/etl.py"
    exec(compile("import tests.authoring.factory\ntests.authoring.factory.make('made_for_etl')", file, "exec"))

    (made,) = dags_of(file)

    assert (made.dag_id, made.file, made.line) == ("made_for_etl", file, 2)


def test_a_dag_that_fails_in_its_block_is_left_again() -> None:
    with pytest.raises(ZeroDivisionError), DAG("etl"):
        raise ZeroDivisionError

    with pytest.raises(AuthoringError, match="needs a DAG around it"):
        bash("a", "true")


def test_an_option_by_a_wrong_name_of_a_task_names_the_task() -> None:
    with pytest.raises(AuthoringError, match="@task: unknown option 'retry'; did you mean 'retries'"):

        @task(retry=2)  # type: ignore[call-overload,untyped-decorator]
        def extract() -> None: ...
