"""Placed and labelled by the endpoint: `extract` returns rows, `load` counts them, `publish` says so in bash."""

from dexaflow import DAG, bash, get_context, task

with DAG("nightly_etl", schedule=None, default_args={"retries": 0}):

    @task
    def extract() -> list[int]:
        context = get_context()
        print(f"extracting for run {context.run_id}, try {context.try_number}")
        return [4, 7, 11]

    @task
    def load(rows: list[int]) -> int:
        print(f"loading {len(rows)} rows")
        return sum(rows)

    publish = bash("publish", "echo the sum is $TOTAL", env={"TOTAL": load(extract())})
