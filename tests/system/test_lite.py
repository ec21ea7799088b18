"""Lite is safe by default, and bad company harms nobody else (R10.1, R10.4, R2.2)."""

import os
import socket
import stat
from collections.abc import Callable

import pytest

from tests.system.endpoint import Endpoint
from tests.system.lite import Lite, wait_for

HELLO = """
from dexaflow import DAG, bash

with DAG("hello"):
    bash("say", "env; echo hello")
"""


def test_everything_in_the_data_folder_is_its_owners_alone(server: Lite) -> None:
    """R10.4: 0700 and 0600, whatever the umask."""
    server.write_dag("hello", HELLO)
    before = os.umask(0)
    try:
        server.start()
    finally:
        os.umask(before)
    assert server.ended(server.trigger("hello")) == "success"
    for path in [server.data, *server.data.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode & 0o077 == 0, (path, oct(mode))


def test_a_task_gets_an_environment_made_for_it_and_no_token(server: Lite) -> None:
    """R10.4"""
    server.environ = {"SERVER_SECRET": "keep-out", "DEXAFLOW_TOKEN": "keep-out-too", "PYTHONSTARTUP": "/keep/out"}
    server.write_dag("hello", HELLO)
    server.start()
    run_id = server.trigger("hello")
    assert server.ended(run_id) == "success"
    log = server.task_log(run_id, "say")
    assert "hello" in log
    assert "keep-out" not in log
    assert "/keep/out" not in log
    assert "eyJ" not in log
    assert server.token not in log
    assert "DEXAFLOW_TASK_ID=say" in log


def test_it_listens_on_loopback_and_every_door_but_health_and_metrics_wants_the_token(server: Lite) -> None:
    server.start()
    assert server.url.startswith("http://127.0.0.1:")
    for path in ("/api/v2/dags", "/dexaflow/v1/runs", "/dexaflow/v1/hooks", "/openapi.json"):
        assert server.request("GET", path, token="wrong")[0] == 401
    assert server.request("GET", "/health/live", token="wrong")[0] == 200


def test_the_token_is_printed_only_to_a_terminal(server: Lite) -> None:
    server.start()
    assert server.token not in server.log()


def test_a_port_in_use_is_one_clear_line(server: Lite) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server.start(ready=False, port=taken.getsockname()[1])
        assert server.process is not None
        assert server.process.wait(30) == 1
    assert "cannot listen on 127.0.0.1" in server.log()
    assert "Traceback" not in server.log()


def test_what_is_kept_in_a_data_folder_inside_the_dag_folder_is_no_dag_file(server: Lite) -> None:
    """Else each version would be loaded as a file of its own, and a DAG that was deleted would live on."""
    server.data = server.dags / "data"
    server.write_dag("hello", HELLO)
    server.start()
    assert server.ended(server.trigger("hello")) == "success"
    (server.dags / "hello.py").unlink()
    wait_for(lambda: server.get("/dexaflow/v1/dags")["dags"] == [], what="the DAG to be gone")
    server.write_dag("other", HELLO.replace("hello", "other"))
    wait_for(lambda: [d["dag_id"] for d in server.get("/dexaflow/v1/dags")["dags"]] == ["other"], what="the new one")
    assert server.get("/dexaflow/v1/dag-errors")["errors"] == []


def test_bad_dag_files_are_reported_with_file_line_and_cause_and_harm_nobody(server: Lite) -> None:
    server.config = {"loading": {"timeout": "2s"}}
    server.write_dag("hello", HELLO)
    server.write_dag("raises", "import dexaflow\n\nraise ValueError('no such table')\n")
    server.write_dag("hangs", "import dexaflow\nwhile True: pass\n")
    server.write_dag("broken", "import dexaflow\ndef (:\n")
    server.write_dag(
        "cycle",
        "from dexaflow import DAG, bash\nwith DAG('c'):\n    a = bash('a', 'true')\n    b = bash('b', 'true')\n"
        "    a >> b >> a\n",
    )
    server.start()
    assert server.ended(server.trigger("hello")) == "success"
    wait_for(lambda: len(server.get("/dexaflow/v1/dag-errors")["errors"]) == 4, what="four errors")
    errors = {e["file"]: e for e in server.get("/dexaflow/v1/dag-errors")["errors"]}
    assert errors["raises.py"]["line"] == 3
    assert "no such table" in errors["raises.py"]["cause"]
    assert errors["broken.py"]["line"] == 2
    assert "cycle" in errors["cycle.py"]["cause"]
    assert "2s" in errors["hangs.py"]["cause"] or "2 s" in errors["hangs.py"]["cause"]


def test_what_is_wrong_with_a_file_goes_with_the_file_also_while_no_server_is_up(server: Lite) -> None:
    """Whether its DAGs never came, or have come; whether it was read or could not be looked at."""

    def wrong() -> set[str]:
        return {error["file"] for error in server.get("/dexaflow/v1/dag-errors")["errors"]}

    server.write_dag("never", "import dexaflow\nraise ValueError\n")
    server.write_dag("stays", "import dexaflow\nraise ValueError\n")
    server.write_dag("hello", HELLO)
    (server.dags / "leaves.py").symlink_to("/etc/hostname")
    server.start()
    server.write_dag("hello", "import dexaflow\nraise ValueError\n")
    wait_for(lambda: wrong() == {"never.py", "stays.py", "hello.py", "leaves.py"}, what="four errors")
    server.stop()
    for file in ("never.py", "hello.py", "leaves.py"):
        (server.dags / file).unlink()
    server.start()
    assert wrong() == {"stays.py"}


def test_a_changed_file_is_a_new_version_and_a_run_keeps_the_one_it_began_with(server: Lite) -> None:
    source = """
        from dexaflow import DAG, task

        with DAG("versions"):
            @task
            def first():
                import time
                time.sleep(3)

            @task
            def second(value):
                print("this is version {version}")

            second(first())
        """
    server.write_dag("versions", source.replace("{version}", "one"))
    server.start()
    old = server.trigger("versions")
    server.in_state(old, "first", "running")
    server.write_dag("versions", source.replace("{version}", "two"))
    wait_for(lambda: server.get("/dexaflow/v1/dags/versions")["version"] == 2, what="version 2")
    new = server.trigger("versions")
    assert (server.ended(old), server.ended(new)) == ("success", "success")
    assert "this is version one" in server.task_log(old, "second")
    assert "this is version two" in server.task_log(new, "second")


def test_what_the_policy_no_longer_allows_is_rejected_at_dispatch_and_never_asked(
    server: Lite, policy: Endpoint
) -> None:
    """R1.2, R2.2: the same checks run at registration and again at dispatch."""
    server.config = policy.config(recheck="1s")
    server.write_dag(
        "placed",
        """
        from dexaflow import DAG, bash

        with DAG("placed", default_args={"retries": 2, "retry_delay": 0}):
            bash("where", "true", execution={"node_selector": {"zone": "a"}})
        """,
    )
    policy.rules({"*": {"decision": "hold", "reason": "wait"}})
    server.start()
    run_id = server.trigger("placed")
    server.in_state(run_id, "where", "held")
    assert server.stop() == 0
    asked = len(policy.asked)
    server.config["execution_allowlist"] = {"fields": ["labels"]}
    server.start()
    assert server.ended(run_id) == "failed"
    task = server.task(run_id, "where")
    assert (task["state"], task["try_number"]) == ("failed", 1)
    assert "placement allowlist" in task["reason"]
    assert len(policy.asked) == asked
    errors = wait_for(lambda: server.get("/dexaflow/v1/dag-errors")["errors"], what="the import error")
    assert "placement allowlist" in errors[0]["cause"]
    assert "where" in errors[0]["cause"]


def test_the_tenant_comes_from_the_folder_and_one_tenants_names_are_not_anothers(server: Lite) -> None:
    for tenant in ("acme", "globex"):
        server.write_dag("hello", HELLO, folder=tenant)
    server.config = {"tenants": {t: str(server.dags / t) for t in ("acme", "globex")}}
    server.start()
    dags = server.get("/dexaflow/v1/dags")["dags"]
    assert len(dags) == 1
    errors = server.get("/dexaflow/v1/dag-errors")["errors"]
    assert "already taken" in errors[0]["cause"]
    assert dags[0]["tenant_id"] != errors[0]["tenant_id"]


def test_a_renamed_tenant_keeps_its_dags_and_what_is_held_stays_held(server: Lite, policy: Endpoint) -> None:
    server.config = policy.config(recheck="1h") | {"tenants": {"acme": str(server.dags)}}
    server.write_dag("etl", 'from dexaflow import DAG, bash\nwith DAG("etl"):\n    bash("wait", "true")\n')
    policy.rules({"*": {"decision": "hold", "reason": "wait"}})
    server.start()
    run_id = server.trigger("etl")
    server.in_state(run_id, "wait", "held")
    assert server.stop() == 0
    server.config["tenants"] = {"acme-corp": str(server.dags)}
    server.start()
    assert [dag["tenant_id"] for dag in server.get("/dexaflow/v1/dags")["dags"]] == ["acme-corp"]
    assert server.get("/dexaflow/v1/dag-errors")["errors"] == []
    assert (server.run(run_id)["tenant_id"], server.task(run_id, "wait")["state"]) == ("acme", "held")
    assert server.run(server.trigger("etl"))["tenant_id"] == "acme-corp"


def test_bad_configuration_lists_every_problem_a_line_each(server: Lite) -> None:
    server.config = {
        "execution": {"admission": {"timeout": 500, "webhook": {"url": "http://example.com/admit"}, "rechek": "15s"}}
    }
    server.start(ready=False)
    assert server.process is not None
    assert server.process.wait(30) == 1
    lines = [line for line in server.log().splitlines() if line.startswith("dexaflow: ")]
    assert len(lines) == 3, server.log()
    assert "Traceback" not in server.log()


@pytest.mark.parametrize("end", [Lite.stop, Lite.kill9])
def test_signing_key_and_token_survive_a_restart(server: Lite, end: Callable[[Lite], object]) -> None:
    server.start()
    before = (server.token, (server.data / "signing.key").read_bytes())
    end(server)
    server.start()
    assert (server.token, (server.data / "signing.key").read_bytes()) == before
