"""`dexaflow config`."""

import json
import subprocess
import sys
from pathlib import Path

from dexaflow.config import reference

MAIN = "import sys; from dexaflow.cli.config_commands import app; app(prog_name='dexaflow config')"


def config(*arguments: str, cwd: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", **environ},
    )


def test_check_of_a_good_file_ends_with_0(tmp_path: Path) -> None:
    (tmp_path / "dexaflow.yaml").write_text("execution: {admission: {timeout: 1s}}")

    ended = config("check", "dexaflow.yaml", cwd=tmp_path)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "The configuration is fine.\n", "")


def test_check_lists_every_problem_a_line_each(tmp_path: Path) -> None:
    """With the key, the problem and the fix (section 2)."""
    (tmp_path / "dexaflow.yaml").write_text("execution: {admission: {timeout: 500, tiemout: 1s}}\nparallelism: 0")

    ended = config("check", "dexaflow.yaml", cwd=tmp_path, DEXAFLOW_SERVER__PORT="x")

    assert ended.returncode == 1
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 4
    assert "dexaflow: execution.admission.timeout: '500' has no unit; write 500ms, 30s or 15m" in lines


def test_check_prints_json_for_programs(tmp_path: Path) -> None:
    (tmp_path / "dexaflow.yaml").write_text("parallelism: 0")

    ended = config("check", "dexaflow.yaml", "--output", "json", cwd=tmp_path)

    assert ended.returncode == 1
    (problem,) = json.loads(ended.stdout)
    assert problem == {
        "key": "parallelism",
        "problem": "0 is less than 1",
        "fix": "write a whole number from 1 to 10000",
    }


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/token").write_text("t")
    (tmp_path / "etc/dexaflow.yaml").write_text(
        "execution: {admission: {webhook: {url: 'https://h/', token_file: token}}}"
    )

    assert config("check", "etc/dexaflow.yaml", cwd=tmp_path).returncode == 0


def test_hostile_keys_are_text(tmp_path: Path) -> None:
    (tmp_path / "dexaflow.yaml").write_text('"\\e[31m\\nforged\\u202e": 1')

    ended = config("check", "dexaflow.yaml", cwd=tmp_path)

    assert ended.returncode == 1
    assert len(ended.stderr.splitlines()) == 1
    assert not set(ended.stderr) & set("\x1b\u202e")


def test_reference_prints_the_page(tmp_path: Path) -> None:
    ended = config("reference", cwd=tmp_path)

    assert ended.returncode == 0
    assert ended.stdout == reference()


def test_hooks_in_process_are_imported_as_the_boot_does(tmp_path: Path) -> None:
    """What `check` calls fine, the server starts with (R8.1)."""
    config = tmp_path / "dexaflow.yaml"
    config.write_text("execution: {admission: {hooks: ['nowhere:hook', 'json:nothing', 'stops:hook', 'two:hook']}}\n")
    (tmp_path / "stops.py").write_text("raise KeyboardInterrupt\n")
    (tmp_path / "two.py").write_text("def hook(request, client): ...\n")
    ended = subprocess.run(
        [sys.executable, "-m", "dexaflow.cli.main", "config", "check", str(config)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "there is no module nowhere" in ended.stderr
    assert "json has no 'nothing'" in ended.stderr
    assert "stops cannot be imported: KeyboardInterrupt" in ended.stderr
    assert "two:hook takes (request, client)" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_hooks_are_checked_also_when_other_keys_are_wrong(tmp_path: Path) -> None:
    """Everything that is wrong is said at once: to whoever checks, asks, or starts the server."""
    (tmp_path / "dexaflow.yaml").write_text(
        "parallelism: 0\nexecution: {admission: {hooks: ['nomod:fn', bad, 'os:nothere', 'policies:hook'],"
        " webhook: {url: 'https://h/'}}}"
    )
    (tmp_path / "policies.py").write_text("def hook(request): ...\nhook.name = 'webhook'\n")
    for command in (
        ["config", "check", "dexaflow.yaml"],
        ["admission", "ask", "--config", "dexaflow.yaml"],
        ["lite", "--config", "dexaflow.yaml"],
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "dexaflow.cli.main", *command],
            capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60,
        )  # fmt: skip
        assert ended.returncode != 0
        said = [line.partition("; ")[0].removeprefix("dexaflow: ") for line in ended.stderr.splitlines()]
        assert said == [
            "parallelism: 0 is less than 1",
            "execution.admission.hooks: entry 2: 'bad' does not name a hook",
            "execution.admission.hooks: there is no module nomod for 'nomod:fn'",
            "execution.admission.hooks: os has no 'nothere'",
            "execution.admission.hooks: two hooks are called 'webhook'",
        ], command


def test_what_a_module_of_hooks_prints_is_no_part_of_the_json(tmp_path: Path) -> None:
    """By `print`, past Python, or from a process of its own: it goes to standard error."""
    (tmp_path / "dexaflow.yaml").write_text("execution: {admission: {hooks: ['chatty:hook']}}")
    (tmp_path / "chatty.py").write_text(
        "import os\n"
        "from dexaflow.admission import hold\n"
        "print('garbage of the module')\n"
        "os.write(1, b'garbage past Python\\n')\n"
        "os.system('echo garbage of a process')\n"
        "def hook(request):\n"
        "    print('garbage of the hook')\n"
        "    return hold(None)\n"
    )
    for command in (["config", "check", "dexaflow.yaml"], ["admission", "ask", "--config", "dexaflow.yaml"]):
        ended = subprocess.run(
            [sys.executable, "-m", "dexaflow.cli.main", *command, "--output", "json"],
            capture_output=True, text=True, cwd=tmp_path, check=False, timeout=60,
        )  # fmt: skip
        assert isinstance(json.loads(ended.stdout), list)
        for whose in ("of the module", "past Python", "of a process"):
            assert f"garbage {whose}" in ended.stderr
    assert "garbage of the hook" in ended.stderr


def test_a_hook_of_the_webhooks_name_is_found_as_at_boot(tmp_path: Path) -> None:
    """R8.1: two of one name is an error, and the webhook's is `webhook`."""
    (tmp_path / "policies.py").write_text("def hook(request): ...\nhook.name = 'webhook'\n")
    alone = "execution: {admission: {hooks: ['policies:hook']}}"
    beside = "execution: {admission: {hooks: ['policies:hook'], webhook: {url: 'https://h/'}}}"

    for text, code in ((alone, 0), (beside, 1)):
        (tmp_path / "dexaflow.yaml").write_text(text)
        ended = config("check", "dexaflow.yaml", cwd=tmp_path)
        assert (ended.returncode, "two hooks are called 'webhook'" in ended.stderr) == (code, bool(code))
