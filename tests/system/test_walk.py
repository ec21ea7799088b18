"""The walk from trigger to report, in a real server with real processes."""

from tests.system.lite import Lite


def test_a_workflow_runs_and_its_results_pass_from_task_to_task(server: Lite) -> None:
    server.write_dag(
        "etl",
        """
        from dexaflow import DAG, bash, get_context, task

        with DAG("etl"):
            @task
            def extract():
                context = get_context()
                return {"rows": context.conf["rows"], "try": context.try_number}

            bash("show", "echo rows $ROWS of $DEXAFLOW_DAG_ID", env={"ROWS": extract()})
        """,
    )
    server.start()
    run_id = server.trigger("etl", {"rows": [1, 2]})
    assert server.ended(run_id) == "success"
    assert '"rows": [1, 2]' in server.task_log(run_id, "show").replace('":[', '": [').replace("1,2", "1, 2")
    assert "of etl" in server.task_log(run_id, "show")


def test_a_failing_task_is_retried_and_then_fails_what_depends_on_it(server: Lite) -> None:
    server.write_dag(
        "flaky",
        """
        from dexaflow import DAG, bash

        with DAG("flaky", default_args={"retries": 1, "retry_delay": 0}):
            bash("first", "echo try $DEXAFLOW_TRY_NUMBER; exit 3") >> bash("second", "true")
        """,
    )
    server.start()
    run_id = server.trigger("flaky")
    assert server.ended(run_id) == "failed"
    first = server.task(run_id, "first")
    assert (first["state"], first["try_number"]) == ("failed", 2)
    assert "exit" in first["reason"]
    assert "try 2" in server.task_log(run_id, "first", 2)
    assert server.task(run_id, "second")["state"] == "upstream_failed"
