"""`server.run()` in a program of one's own: what cannot work is a line that says what to do, and none of our stack."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dexaflow import server
from dexaflow.admission import Decision, Request, admit
from dexaflow.base.errors import DexaflowError, ServerFailed

# Any: every argument here is of a wrong type.


def freeze(request: Request) -> Decision:
    return admit()


def run(**arguments: Any) -> list[str]:
    """Run a server that cannot be; return its lines."""
    with pytest.raises(ServerFailed) as caught:
        server.run(**arguments)
    assert isinstance(caught.value, DexaflowError)
    lines = str(caught.value).splitlines()
    assert [str(cause) for cause in caught.value.causes] == lines
    assert caught.value.code == "\n".join(f"dexaflow: {line}" for line in lines)
    return lines


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"config": {"a": 1}}, "server.run(config=...): a value of type dict is not a configuration; give the path"),
        ({"config": b"dexaflow.yaml"}, "a value of type bytes is not a configuration"),
        ({"config": 3}, "a value of type int is not a configuration"),
        ({"config": "none.yaml"}, "none.yaml: cannot be read: No such file or directory"),
        ({"config": "."}, "cannot be read"),
        ({"config": "a\0b"}, "'a\\u0000b' is not a configuration"),
        ({"dags": "a\0b"}, "'a\\u0000b' is not the path of a folder"),
        ({"admission": freeze}, "a value of type function is not a list of hooks; write admission=[freeze]"),
        ({"admission": "policies:freeze"}, "'policies:freeze' is not a list of hooks; give the functions themselves"),
        ({"admission": None}, "server.run(admission=...): None is not a list of hooks"),
        ({"admission": {freeze}}, "a value of type set is not a list of hooks"),
        ({"admission": iter([freeze])}, "is not a list of hooks"),
        ({"dags": None}, "server.run(dags=...): None is not the path of a folder"),
        ({"data": ["a"]}, "server.run(data=...): a value of type list is not the path of a folder"),
        ({"host": 7}, "server.run(host=...): a value of type int is not an address"),
        ({"port": "80"}, "server.run(port=...): '80' is not a port; give a whole number from 0 to 65535"),
        ({"port": True}, "a value of type bool is not a port"),
        ({"port": 65536}, "server.run(port=...): there is no port 65536; give one from 0 to 65535"),
        (
            {"on_ready": "print"},
            "server.run(on_ready=...): 'print' is not a function; give one that takes URL and token",
        ),
    ],
)
def test_argument_that_cannot_be_is_one_line_with_what_to_do(arguments: dict[str, Any], said: str) -> None:
    (line,) = run(**({"port": 0} | arguments))
    assert said in line


def test_everything_that_is_wrong_is_told_at_once() -> None:
    assert len(run(config=3, admission=freeze, dags=3, data=3, host=3, port=-1, on_ready=3)) == 7


def test_a_server_is_not_run_within_an_event_loop() -> None:
    async def main() -> None:
        (line,) = run()
        assert "within a running event loop, and has one of its own; call it outside" in line

    asyncio.run(main())


def test_a_server_is_not_run_in_a_thread() -> None:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.extend(run()))
    thread.start()
    thread.join()
    (line,) = said
    assert "in a thread, where no signal can stop it; call it in the main thread" in line


PROGRAM = """
import asyncio, threading
from dexaflow import server
from dexaflow.admission import admit

def freeze(request):
    return admit()

async def main():
    server.run()

{}
"""


def run_program(folder: Path, call: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in the folder that makes this call."""
    (folder / "program.py").write_text(PROGRAM.format(call))
    return subprocess.run([sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("server.run(admission=[freeze, freeze], port=0)", ["two hooks are called '__main__:freeze'"]),
        ("server.run('none.yaml', admission=[lambda request: admit()])", ["cannot be read", "a lambda"]),
        ("server.run(admission=freeze, port='x')", ["is not a list of hooks", "is not a port"]),
        ("server.run(data='file')", ["file"]),
        ("asyncio.run(main())", ["within a running event loop"]),
    ],
)
def test_program_that_leaves_it_uncaught_ends_as_dexaflow_lite_would(
    call: str, said: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    ended = run_program(tmp_path, call)

    assert ended.returncode == 1
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == len(said), ended.stderr
    for line, part in zip(lines, said, strict=True):
        assert line.startswith("dexaflow: ")
        assert part in line


HOOKS = """
for hooks in (
    ["policies:freeze"], [freeze, None], [lambda request: admit()], [lambda: admit()], [freeze, freeze],
):
    try:
        server.run(admission=hooks, port=0)
    except server.ServerFailed as failed:
        print(failed)
"""


def test_hook_that_is_none_is_named_by_its_place_in_the_list(tmp_path: Path) -> None:
    ended = run_program(tmp_path, HOOKS)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "admission[0]: the text 'policies:freeze' is not a hook; give the function itself",
        "admission[1]: an object of type builtins:NoneType is not a hook; "
        "give a function, or an object with a method `review`",
        "admission[0]: a lambda (__main__:<lambda>) has no name; write it as a function",
        "admission[0]: __main__:<lambda> takes no argument; have it take one argument, the request",
        "admission, execution.admission.hooks: two hooks are called '__main__:freeze'; "
        "name it once, or set the `name` attribute of one",
    ]


URLS = """
from dexaflow import server
for arguments in {"admission": ["https://jo:s3cret@host/x"]}, {"admission": "https://jo:s3cret@host/x"}:
    try:
        server.run(**arguments, port=0)
    except server.ServerFailed as failed:
        print(failed)
"""


def test_the_user_info_of_a_url_in_the_place_of_a_hook_is_not_quoted(tmp_path: Path) -> None:
    """R2.4."""
    ended = run_program(tmp_path, URLS)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "admission[0]: the text 'https://...@host/x' is not a hook; give the function itself",
        "server.run(admission=...): 'https://...@host/x' is not a list of hooks; "
        "give the functions themselves in a list",
    ]


def test_relative_paths_start_where_the_configuration_is_named_not_where_a_link_to_it_leads(tmp_path: Path) -> None:
    """A mounted file is a link into a folder that is swapped; `dexaflow config check` sees it like that too."""
    (tmp_path / "swapped").mkdir()
    (tmp_path / "swapped/dexaflow.yaml").write_text(
        "execution: {admission: {webhook: {url: 'https://h/', token_file: token}}}"
    )
    (tmp_path / "dexaflow.yaml").symlink_to("swapped/dexaflow.yaml")
    (tmp_path / "token").write_text("t")
    ended = run_program(tmp_path, "server.run('dexaflow.yaml', data='program.py', port=0)")

    (line,) = ended.stderr.splitlines()
    assert "program.py" in line  # what is wrong is the data folder


def test_ctrl_c_before_the_server_is_up_ends_the_program_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "pressing.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    (tmp_path / "dexaflow.yaml").write_text("execution: {admission: {hooks: ['pressing:hook']}}")
    ended = run_program(tmp_path, "server.run('dexaflow.yaml', port=0)")

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_program_that_calls_it_in_a_thread_is_told_so(tmp_path: Path) -> None:
    """Where Python prints a traceback whatever is raised; its last line says what to do."""
    ended = run_program(tmp_path, "threading.Thread(target=server.run).start()")

    assert "call it in the main thread" in ended.stderr.splitlines()[-1]
    assert ended.stderr.count("Traceback") == 1


def test_program_may_catch_it_as_an_error_of_ours(tmp_path: Path) -> None:
    program = "try:\n    server.run('none.yaml')\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    ended = run_program(tmp_path, program)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("ServerFailed none.yaml: cannot be read")
