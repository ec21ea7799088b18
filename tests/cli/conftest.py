"""One real Lite for all tests of the client's commands, and the command line as a real process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.system.lite import Lite, lite

HOSTILE = "\x1b[31mred\x1b[2J</script>\u202eevil\nsecond line\u2028third \x9b31m \u200b"

POLICY = f'''
"""Hooks that the tests steer by files beside this one."""

from pathlib import Path

from dexaflow.admission import admit, hold, refuse

HERE = Path(__file__).parent


def freeze(request):
    """Hold what is called held, for as long as the file `frozen` is there."""
    if request.task_id.startswith("held") and (HERE / "frozen").exists():
        return hold((HERE / "frozen").read_text())
    return admit()


def place(request):
    """Place by tenant, refuse what is called dear."""
    if request.task_id.startswith("dear"):
        return refuse("over budget \\x1b[31m\\u202e")
    if request.task_id.startswith("plain"):
        return admit()
    return admit(
        node_selector={{"tenant": request.tenant_id}},
        labels={{"cost-center": "4711"}},
        annotations={{"note": {HOSTILE!r}}},
    )


def broken(request):
    """Be broken for what is called broken."""
    if request.task_id.startswith("broken"):
        raise RuntimeError("not today")
    return admit()


freeze.name, place.name, broken.name = "freeze", "place", "broken"
'''

DAGS = {
    "etl": f"""
        from dexaflow import DAG, bash

        with DAG("etl", description={HOSTILE!r}, tags=["daily"]):
            bash("extract", "printf 'one\\\\n\\\\033[31mtwo\\\\033[0m\\\\r\\\\nthr\\\\tee \\\\377 end'",
                 env={{"SECRET": "hunter2"}}, execution={{"labels": {{"team": "data"}}}}) >> bash("load", "true")
        """,
    "failing": """
        from dexaflow import DAG, bash

        with DAG("failing", default_args={"retries": 1, "retry_delay": 0}):
            bash("first", "echo try $DEXAFLOW_TRY_NUMBER; exit 3") >> bash("second", "true")
        """,
    "frozen": """
        from dexaflow import DAG, bash

        with DAG("frozen"):
            bash("held_task", "true")
        """,
    "dear": """
        from dexaflow import DAG, bash

        with DAG("dear"):
            bash("dear_task", "true")
        """,
    "broken": """
        from dexaflow import DAG, bash

        with DAG("broken"):
            bash("broken_task", "true")
        """,
    "slow": """
        from dexaflow import DAG, bash

        with DAG("slow"):
            bash("plain_wait", "echo begun; while [ ! -e $GATE ]; do sleep 0.05; done; echo done",
                 env={"GATE": "@GATE@"})
        """,
    "quiet": """
        from dexaflow import DAG, bash

        with DAG("quiet"):
            bash("plain_quiet", "while [ ! -e $GATE ]; do sleep 0.05; done",
                 env={"GATE": "@GATE@"})
        """,
    "paused": """
        from dexaflow import DAG, bash

        with DAG("paused"):
            bash("plain_task", "true")
        """,
    "nonsense": """
        from dexaflow import DAG
        raise RuntimeError("no \\x1b[31m such")
        """,
}


class Served:
    """A running Lite with hooks and DAGs, and the program that talks to it."""

    def __init__(self, server: Lite, policy: Path) -> None:
        self.server = server
        self.gate = server.root / "gate"  # task `slow` ends once it is there
        self.frozen = policy / "frozen"
        self.program = Program(server.data, server.root)
        self.run = self.program.run
        self.json = self.program.json


@pytest.fixture(scope="session")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("lite")
    policy = root / "policy"
    policy.mkdir()
    (policy / "policyhooks.py").write_text(POLICY)
    with lite(root) as server:
        served = Served(server, policy)
        server.python_path = [str(policy)]
        server.config = {
            "execution": {
                "admission": {
                    "hooks": ["policyhooks:freeze", "policyhooks:place", "policyhooks:broken"],
                    "recheck": "1h",
                    "timeout": "5s",
                },
                "unit": {"cpu": "500m", "memory": "1Gi"},
            }
        }
        for name, source in DAGS.items():
            server.write_dag(name, source.replace("@GATE@", str(served.gate)))
        server.start()
        yield served


@pytest.fixture
def served(_served: Served) -> Iterator[Served]:
    """The Lite of this session; what a test has frozen is free afterwards."""
    yield _served
    _served.frozen.unlink(missing_ok=True)
    _served.gate.unlink(missing_ok=True)
