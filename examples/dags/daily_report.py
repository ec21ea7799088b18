"""A daily workflow: results pass from task to task, a failed fetch is tried again, and the end always says so."""

from datetime import datetime, timedelta

from dexaflow import DAG, bash, get_context, task


@task(retries=2, retry_delay=timedelta(seconds=30), execution_timeout=timedelta(minutes=5))
def fetch(region: str) -> list[int]:
    """Stands in for reading a day's orders."""
    day = get_context().data_interval_start
    seed = day.day if day else 1
    return [seed * 10 + len(region), seed * 20]


@task
def total(orders: dict[str, list[int]]) -> dict[str, int]:
    return {region: sum(amounts) for region, amounts in orders.items()}


with DAG(
    "daily_report",
    schedule="30 6 * * 1-5",
    timezone="Europe/Berlin",
    start_date=datetime(2024, 1, 1),  # noqa: DTZ001 - read in the DAG's time zone
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=2),
    default_args={"pool": "default_pool", "env": {"REPORT": "orders"}},
    tags=["example"],
):
    totals = total({"eu": fetch.override(task_id="fetch_eu")("eu"), "us": fetch.override(task_id="fetch_us")("us")})
    report = bash("report", 'echo "$REPORT: $TOTALS"', env={"TOTALS": totals})
    report >> bash("done", "echo done", trigger_rule="all_done")
