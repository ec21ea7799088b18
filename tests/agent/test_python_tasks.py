"""Python tasks: a fresh interpreter, the result, and what the author sees of an exception."""

import json
from pathlib import Path

import pytest

from dexaflow.api.agent_routes import Finish
from tests.executors.reports import python
from tests.executors.world import World, until

FILE = """
import os, sys, time
from dexaflow import DAG, task, get_context

with DAG("d"):
    @task
    def t():
{body}
    t()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "snapshot"
    folder.mkdir()
    return folder


async def run(world: World, root: Path, body: str, **more: object) -> tuple[Finish, str]:
    source = FILE.format(body="\n".join(f"        {line}" for line in body.splitlines()))
    return await world.run(python(root, source, **more))


async def test_a_function_returns_its_result(world: World, root: Path) -> None:
    finish, log = await run(world, root, "print('hello')\nreturn {'rows': [1, 2.5, None, 'ä']}")

    assert (finish.succeeded, finish.exit_code, finish.reason) == (True, 0, "")
    assert finish.result is not None
    assert json.loads(finish.result) == {"rows": [1, 2.5, None, "ä"]}
    assert log == "hello\n"


async def test_an_exception_is_the_reason_and_its_traceback_the_log(world: World, root: Path) -> None:
    finish, log = await run(world, root, "print('before')\nraise ValueError('no such\\n  row \\x1b[31m')")

    assert (finish.succeeded, finish.exit_code) == (False, 1)
    assert finish.reason == "ValueError: no such row [31m"
    assert log.startswith("before\nTraceback (most recent call last):\n")
    assert f'File "{root}/dag.py", line 9, in t' in log
    assert "dexaflow/authoring" not in log
    assert "dexaflow/agent" not in log


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ("sys.exit(3)", 3, "exit code 3"),
        ("sys.exit('no rows')", 1, "SystemExit: no rows"),
        ("sys.exit(256)", 1, "exit code 1"),
        ("os._exit(5)", 5, "exit code 5"),
        ("os._exit(0)", 0, "the process ended with exit code 0, but before the task's function had returned"),
        ("os.kill(os.getpid(), 9)", -9, "killed by SIGKILL"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("raise BaseException", 1, "BaseException"),
        (
            "class Odd(Exception):\n    def __str__(self): raise RuntimeError\nraise Odd",
            1,
            "Odd: (its text cannot be had)",
        ),
        ("def f(): f()\nf()", 1, "RecursionError: maximum recursion depth exceeded"),
        ("raise ValueError('\\ud800 x')", 1, "ValueError: \\ud800 x"),
        ("import nosuchmodule", 1, "ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("return object()", 1, "ResultError: result: object is not JSON; return text, numbers, lists and dicts"),
        ("return 'x' * 65535", 1, "ResultError: result: is 65537 bytes of JSON, at most 65536 can be passed"),
        ("return float('nan')", 1, "ResultError: result: nan is not JSON"),
    ],
)
async def test_every_way_to_fail_has_a_reason(world: World, root: Path, body: str, code: int, reason: str) -> None:
    finish, _ = await run(world, root, body)

    assert (finish.succeeded, finish.exit_code) == (False, code)
    assert finish.reason.startswith(reason)
    assert finish.result is None


@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("return 'x' * 65534", '"' + "x" * 65_534 + '"'),
        ("return ['ä' * 30000]", '["' + "ä" * 30_000 + '"]'),
        ("return None", "null"),
        ("pass", "null"),
        ("sys.exit(0)", "null"),
        ("sys.exit()", "null"),
        ("return 12345678901234567890123", "12345678901234567890123"),
        ("print('\\ud800'); return 1", "1"),
        ("os.closerange(0, 3); return 1", "1"),
    ],
)
async def test_every_way_to_succeed_has_a_result(world: World, root: Path, body: str, result: str) -> None:
    finish, log = await run(world, root, body)

    assert (finish.succeeded, finish.reason) == (True, ""), log
    assert finish.result == result.encode()


async def test_inputs_and_context_reach_the_function(world: World, root: Path) -> None:
    source = """
from dexaflow import DAG, task, get_context

with DAG("d"):
    @task
    def up():
        raise AssertionError("not this one")
    @task
    def t(rows, day):
        context = get_context()
        return [rows, day, context.run_id, context.try_number, context.conf, str(context.logical_date)]
    t(up(), "monday")
"""
    finish, log = await world.run(python(root, source, inputs={"up": {"n": 3}}, env={"MINE": "1"}))

    assert finish.result is not None, log
    assert json.loads(finish.result) == [
        {"n": 3}, "monday", "run-1", 1, {"day": "monday"}, "2026-11-29 12:00:00+00:00",
    ]  # fmt: skip


async def test_the_interpreter_is_fresh_and_knows_only_what_is_its_own(world: World, root: Path) -> None:
    """No token anywhere in its memory, descriptors or environment."""
    body = """
fds = {int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2
       and os.path.exists(f"/proc/self/fd/{fd}")}
names = [n for n in os.environ if "TOKEN" in n]
return [sorted(kind.split(":")[0] for kind in fds.values()), names, sys.argv, os.environ["MINE"],
        os.environ["DEXAFLOW_TASK_ID"], [m for m in sys.modules if m.startswith("dexaflow.agent.m")],
        sys.flags.isolated, open("/proc/self/cmdline").read()]
"""
    launch_body = body.strip()
    finish, log = await run(world, root, launch_body, env={"MINE": "1"})

    assert finish.result is not None, log
    fds, names, argv, mine, task_id, modules, isolated, command = json.loads(finish.result)
    assert fds == ["pipe"]  # where its result goes
    assert (names, argv, mine, task_id, modules, isolated) == ([], ["dag.py"], "1", "t", [], 1)
    assert "eyJ" not in command


async def test_what_a_task_starts_cannot_speak_for_it(world: World, root: Path) -> None:
    """The descriptor of the result is not inherited."""
    body = "import subprocess\nreturn subprocess.check_output(['ls', '/proc/self/fd'], text=True).split()"
    finish, log = await run(world, root, body)

    assert finish.result is not None, log
    assert json.loads(finish.result) == ["0", "1", "2", "3"]  # the last one is ls's own


async def test_output_arrives_line_by_line_and_in_order(world: World, root: Path) -> None:
    body = """
for n in range(3):
    print('out', n)
    print('err', n, file=sys.stderr)
os.system('echo sh')
print('x')
"""
    finish, log = await run(world, root, body.strip())

    assert finish.succeeded
    assert log == "out 0\nerr 0\nout 1\nerr 1\nout 2\nerr 2\nsh\nx\n"


async def test_a_timeout_ends_a_python_task_and_its_children(world: World, root: Path) -> None:
    finish, log = await run(
        world,
        root,
        "import subprocess\nsubprocess.Popen(['sleep', '1000'])\nprint('up')\ntime.sleep(1000)",
        execution_timeout=1.5,
    )

    assert (finish.timed_out, finish.reason, log) == (True, "timed out after 1.5s", "up\n")
    await until(lambda: world.files() == [])


async def test_a_file_that_fails_when_executed_is_the_tasks_failure(world: World, root: Path) -> None:
    for source, reason in (
        ("1/0", "ZeroDivisionError: division by zero"),
        ("def", "SyntaxError: "),
        ("x = 1", "NotFound: dag.py: makes no DAG 'd'"),
    ):
        finish, log = await world.run(python(root, source))
        assert finish.reason.startswith(reason), log
        assert "dag.py" in log
