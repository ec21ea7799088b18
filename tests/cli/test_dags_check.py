"""`dexaflow dags check`: DAG files loaded and judged as the server would, without one."""

import json
import textwrap
from pathlib import Path

import pytest

from tests.cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "dags" / "team").mkdir(parents=True)
    return Program(tmp_path / "data", tmp_path)


def write(program: Program, file: str, source: str) -> None:
    (program.cwd / file).write_text(textwrap.dedent(source))


GOOD = """
    from dexaflow import DAG, bash
    with DAG("{name}"):
        bash("a", "true") >> bash("b", "true")
    """


def test_good_files_are_counted(program: Program) -> None:
    write(program, "dags/one.py", GOOD.format(name="one"))
    write(program, "dags/two.py", GOOD.format(name="two"))
    write(program, "dags/helper.py", "raise RuntimeError('not a DAG file, so not executed')")
    ended = program.run("dags", "check")
    assert ended.stdout == "2 DAGs in 2 files: all fine.\n"


def test_every_problem_has_its_file_line_and_cause(program: Program) -> None:
    """R2.2; a file that raises, hangs, ends its process or has a cycle hides nothing of the others."""
    write(program, "dags/raises.py", "import dexaflow\n\nraise ValueError('no \\x1b[31m such\\nthing')\n")
    write(program, "dags/syntax.py", "import dexaflow\ndef (:\n")
    write(program, "dags/hangs.py", "import dexaflow\nwhile True:\n    pass\n")
    write(program, "dags/exits.py", "import dexaflow, os\nos._exit(0)\n")
    cycle = (
        'from dexaflow import DAG, bash\nwith DAG("c"):\n    a = bash("a", "true")\n    a >> bash("b", "true") >> a\n'
    )
    write(program, "dags/cycle.py", cycle)
    write(program, "dags/one.py", GOOD.format(name="one"))
    write(program, "dags/team/again.py", GOOD.format(name="one"))
    ended = program.run("dags", "check", "--timeout", "2", code=1)
    lines = {line.split(":")[0]: line for line in ended.stdout.splitlines()}
    assert len(lines) == len(ended.stdout.splitlines()) == 6
    assert lines["dags/raises.py"].startswith("dags/raises.py:3: ValueError: no \\u001b[31m such")
    assert lines["dags/syntax.py"].startswith("dags/syntax.py:2: ")
    assert "after 2 s" in lines["dags/hangs.py"]
    assert lines["dags/exits.py"].startswith("dags/exits.py:2: ")
    assert "cycle" in lines["dags/cycle.py"]
    assert "'one' is already taken by dags/one.py" in lines["dags/team/again.py"]
    assert "\x1b" not in ended.stdout


def test_own_checks_are_those_of_the_configuration(program: Program) -> None:
    """R2.2: the task, the field and the rule."""
    write(
        program,
        "dags/placed.py",
        """
        from dexaflow import DAG, bash
        with DAG("placed", image="docker.io/evil/x"):
            bash("a", "true", execution={"labels": {"dexaflow.io/x": "y"}, "node_selector": {"zone": "a"}})
        """,
    )
    without = program.run("dags", "check", code=1).stdout.splitlines()
    assert len(without) == 1
    assert "(reserved prefix)" in without[0]
    write(program, "dexaflow.yaml", "execution_allowlist: {fields: [labels]}\nimage_allowlist: [ghcr.io/acme]\n")
    ended = program.run("dags", "check", "--config", "dexaflow.yaml", code=1)
    assert all(line.startswith("dags/placed.py:4: task 'a': ") for line in ended.stdout.splitlines())
    rules = [line.rpartition("(")[2].rstrip(")") for line in ended.stdout.splitlines()]
    assert sorted(rules) == ["image allowlist", "placement allowlist", "reserved prefix"]


def test_json_has_the_same(program: Program) -> None:
    write(program, "dags/one.py", GOOD.format(name="one"))
    write(program, "dags/bad.py", "import dexaflow\n1 / 0\n")
    found = program.json("dags", "check", code=1)
    assert found == {
        "files": 2,
        "dags": [{"dag_id": "one", "file": "dags/one.py"}],
        "problems": [{"file": "dags/bad.py", "line": 2, "cause": "ZeroDivisionError: division by zero"}],
    }


def test_a_file_imports_from_its_dag_folder(program: Program) -> None:
    write(program, "dags/shared_names.py", "NAME = 'shared'")
    source = "from shared_names import NAME\n" + textwrap.dedent(GOOD).replace('"{name}"', "NAME")
    (program.cwd / "dags/team/uses.py").write_text(source)
    assert program.run("dags", "check", "dags/team/uses.py").stdout == "1 DAG in 1 file: all fine.\n"
    assert program.run("dags", "check", "dags/team").stdout == "1 DAG in 1 file: all fine.\n"


def test_tenants_folders_are_checked_where_the_configuration_names_them(program: Program) -> None:
    write(program, "dags/team/one.py", GOOD.format(name="one"))
    write(program, "dexaflow.yaml", "tenants: {acme: dags/team}\n")
    assert program.run("dags", "check", "--config", "dexaflow.yaml").stdout == "1 DAG in 1 file: all fine.\n"


def test_what_cannot_be_checked_is_said(program: Program) -> None:
    write(program, "dexaflow.yaml", "executoin: {}\nparallelism: 0\n")
    write(program, "notes.txt", "")
    for arguments, said in (
        (["nowhere.py"], "there is no nowhere.py"),
        (["notes.txt"], "notes.txt is no Python file"),
        (["--config", "dexaflow.yaml"], "executoin"),
        (["--config", "absent.yaml"], "absent.yaml"),
    ):
        assert said in program.run("dags", "check", *arguments, code=2).stderr
    assert json.loads(program.run("dags", "check", "--output", "json").stdout)["files"] == 0
