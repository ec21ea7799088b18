"""One attempt on a real machine: what runs, with what, and what is left afterwards."""

import os
import re
import signal
from pathlib import Path

import pytest

from dexaflow.agent.processes import all_processes, launched_by
from tests.executors.reports import bash
from tests.executors.world import World, alive, until


async def test_a_tiny_attempt_is_two_requests(world: World) -> None:
    finish, log = await world.run(bash("echo hi; echo problem >&2"))

    assert (finish.succeeded, finish.exit_code, finish.reason, finish.result) == (True, 0, "", None)
    assert log == "hi\nproblem\n"
    assert [what for what in world.ledger.said if what in ("started", "heartbeat", "finished")] == [
        "started",
        "finished",
    ]


async def test_nothing_runs_before_started_is_accepted(world: World) -> None:
    """The agent runs nothing of the user's until its `started` has been accepted (R1.7)."""
    launch = world.proofs.launch()
    world.ledger.work[launch.launch_id] = bash(f"touch {world.path}/ran")
    world.ledger.gone.add(launch.launch_id)
    await world.executor.start(launch)

    assert (await world.exit(launch)).in_order
    assert world.ledger.said == ["started"]
    assert not (world.path / "ran").exists()
    assert world.files() == []


async def test_the_environment_is_made_for_the_task(world: World) -> None:
    """Bash knows its context through environment variables; the author's do not hide it."""
    work = bash(
        "env",
        env={"GREETING": "hallo wörld\nline", "DEXAFLOW_DAG_ID": "forged", "PATH": "/usr/bin:/bin:/mine"},
        env_from={"UP": "extract"},
        inputs={"extract": {"rows": 3}},
        root="/snapshots/1",
    )
    launch = await world.launch(work)
    await world.ledger.finish(launch.launch_id)
    log = world.ledger.log_text(launch.launch_id)

    for line in (
        "DEXAFLOW_DAG_ID=d",
        "DEXAFLOW_TASK_ID=t",
        "DEXAFLOW_RUN_ID=run-1",
        "DEXAFLOW_TRY_NUMBER=1",
        "DEXAFLOW_LOGICAL_DATE=2026-11-29T12:00:00+00:00",
        'DEXAFLOW_CONF={"day":"monday"}',
        "DEXAFLOW_DAG_FOLDER=/snapshots/1",
        f"DEXAFLOW_LAUNCH_ID={launch.launch_id}",
        "GREETING=hallo wörld\nline",
        'UP={"rows":3}',
        "PATH=/usr/bin:/bin:/mine",
    ):
        assert f"\n{line}\n" in f"\n{log}"


async def test_the_largest_conf_and_result_fit_into_the_environment_whatever_is_in_them(world: World) -> None:
    """Escaped, `é` would be six bytes where it is two: three times 64 KiB, more than Linux takes in a variable."""
    largest = {"": "é" * 32_700}
    work = bash('printf %s "$DEXAFLOW_CONF$UP" | wc -c', env_from={"UP": "extract"}, inputs={"extract": largest})
    work["context"] = {**work["context"], "conf": largest}
    launch = await world.launch(work)
    await world.ledger.finish(launch.launch_id)
    assert world.ledger.log_text(launch.launch_id) == f"{2 * 65_407}\n"


async def test_an_environment_that_the_machine_does_not_take_says_so(world: World) -> None:
    many = {f"V{number}": "x" * 65_000 for number in range(120)}
    launch = await world.launch(bash("true", env=many))
    said = await world.ledger.finish(launch.launch_id)
    assert said.reason.startswith(
        "could not start: its command and env are larger than this machine takes; pass less in env"
    )


async def test_the_token_is_nowhere_in_what_the_user_runs(world: World) -> None:
    """Never argv, never the task's environment, nor a descriptor (R10.4)."""
    launch = await world.launch(bash(f"sleep 1000 & touch {world.path}/up; wait"))
    agent = await world.agent(launch)
    await until((world.path / "up").exists)
    await until(lambda: len(launched_by(launch.launch_id, None, None)) == 2)  # bash, and sleep
    secret = launch.token.reveal().encode()
    assert agent.user_pid is not None
    spawner = world.executor.spawner_pid
    assert spawner is not None

    for pid in (spawner, agent.pid, agent.user_pid):
        for part in ("cmdline", "environ"):
            assert secret not in content(f"/proc/{pid}/{part}")
    opened = {fd: os.readlink(f"/proc/{agent.user_pid}/fd/{fd}") for fd in os.listdir(f"/proc/{agent.user_pid}/fd")}
    assert sorted(opened) == ["0", "1", "2"]
    assert opened["0"] == "/dev/null"
    assert opened["1"] == opened["2"]
    for name in os.listdir(world.path / "agents"):
        path = world.path / "agents" / name
        assert not path.is_file() or secret not in path.read_bytes()
    assert secret not in memory_of(agent.user_pid)
    assert secret not in memory_of(spawner)
    assert secret in memory_of(agent.pid)  # so the search would have found it


def content(path: str) -> bytes:
    """Return what a file of /proc says; empty when the process is gone."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def memory_of(pid: int) -> bytes:
    """Return the writable memory of a process."""
    found = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            area = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if area is None:
                continue
            start, end = (int(part, 16) for part in area.groups())
            try:
                memory.seek(start)
                found += memory.read(end - start)
            except OSError:
                continue
    return found


async def test_the_user_process_leads_its_own_session_away_from_any_terminal(world: World) -> None:
    launch = await world.launch(bash("sleep 1000"))
    agent = await world.agent(launch)
    seen = {one.pid: one for one in all_processes()}
    user, itself = seen[agent.user_pid or 0], seen[agent.pid]

    assert user.group == user.session == user.pid
    assert user.parent == agent.pid
    assert itself.session == itself.pid
    assert len({user.session, itself.session, os.getsid(0)}) == 3


async def test_its_working_directory_is_its_own_and_goes_with_it(world: World) -> None:
    finish, log = await world.run(bash("pwd; stat -c %a .; touch a; mkdir -p b/c; echo x > b/c/d; chmod 0 b/c"))

    assert finish.succeeded
    assert log.splitlines()[1] == "700"
    await until(lambda: world.files() == [] and not os.path.exists(log.splitlines()[0]))


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        ("exit 7", 7, "exit code 7"),
        ("kill -9 $$", -9, "killed by SIGKILL"),
        ("kill -SEGV $$", -11, "killed by SIGSEGV"),
        ("false", 1, "exit code 1"),
        ("no-such-command", 127, "exit code 127"),
        ("if", 2, "exit code 2"),
    ],
)
async def test_the_reason_of_a_failure_is_one_line(world: World, command: str, code: int, reason: str) -> None:
    finish, _ = await world.run(bash(command))

    assert (finish.succeeded, finish.exit_code, finish.reason) == (False, code, reason)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (bash("x" * 3_000_000), "could not start: its command and env are larger than this machine takes"),
        (bash("true", operator="docker"), "could not start: this agent knows no operator 'docker'"),
        (
            bash("true", execution_timeout=-1),
            "could not start: execution_timeout -1 is not a number of seconds",
        ),
        (bash("true", context={"dag_id": "d"}), "could not start: task context: run_id must be text"),
        (bash("true", env={"A": "x\0y"}), "could not start: the process could not be prepared"),
        (bash("true", env={"A": 5}), "could not start: the work is not as agreed"),
        ({}, "could not start: 'execution_timeout'"),
    ],
)
async def test_work_that_cannot_begin_fails_with_its_reason(world: World, work: dict[str, object], reason: str) -> None:
    finish, _ = await world.run(work)

    assert (finish.succeeded, finish.exit_code) == (False, None)
    assert finish.reason.startswith(reason)
    await until(lambda: world.files() == [])


async def test_signals_and_pipes_behave_as_in_a_shell(world: World) -> None:
    """What the interpreter ignores is not ignored in the task, nor what the server was started with."""
    ignored = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTERM)  # as `nohup` and a script's `&` do
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    try:
        finish, log = await world.run(bash("trap; yes | head -1; echo ${PIPESTATUS[0]}"))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert finish.succeeded
    assert log == "y\n141\n"


async def test_a_log_of_any_bytes_arrives_as_it_was(world: World) -> None:
    launch = await world.launch(bash(r"printf '\000\377\200bad\r\n\033[31m'; head -c 300000 /dev/urandom; exit 1"))
    await world.ledger.finish(launch.launch_id)

    log = bytes(world.ledger.logs[launch.launch_id])
    assert log.startswith(b"\0\xff\x80bad\r\n\x1b[31m")
    assert len(log) == 13 + 300_000


async def test_a_huge_log_is_shipped_whole_in_parts(world: World) -> None:
    finish, log = await world.run(bash("seq 1 400000"))

    assert log == "".join(f"{n}\n" for n in range(1, 400_001))
    assert len(finish.log_tail) <= 65_536
    await until(lambda: world.files() == [])


async def test_a_log_that_never_ends_is_cut_and_its_task_goes_on(world: World) -> None:
    """One task's output must not fill the disk."""
    world.new_executor(max_log_bytes=100_000)
    finish, log = await world.run(bash(f"head -c 3000000 /dev/zero | tr '\\0' x; touch {world.path}/done"))

    assert finish.succeeded
    assert log == "x" * 100_000 + "\n[the log ends here: it is longer than 100000 bytes]\n"
    assert (world.path / "done").exists()


async def test_the_log_can_be_read_while_the_task_runs(world: World) -> None:
    launch = await world.launch(bash(f"echo first; until [ -e {world.path}/go ]; do sleep 0.05; done; echo last"))
    await world.ledger.until(lambda: world.ledger.log_text(launch.launch_id) == "first\n")

    (world.path / "go").touch()
    await world.ledger.finish(launch.launch_id)

    assert world.ledger.log_text(launch.launch_id) == "first\nlast\n"


async def test_what_the_process_leaves_behind_is_killed(world: World) -> None:
    """Leftover members of its group, and those who left it, end with their attempt (R10.4)."""
    launch = await world.launch(
        bash(
            "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; "
            "(setsid env -i bash -c 'trap \"\" TERM; sleep 1001 & sleep 1000; sleep 1000' & echo $!); "
            "nohup sleep 1000 >/dev/null 2>&1 & echo $!; sleep 0.2"
        )
    )
    finish = await world.ledger.finish(launch.launch_id)

    pids = [int(line) for line in world.ledger.log_text(launch.launch_id).split()]
    assert finish.succeeded
    assert len(pids) == 4
    assert not any(alive(pid) for pid in pids)
    assert launched_by(launch.launch_id, None, None) == []
    assert not any(b"sleep\x001001" in content(f"/proc/{seen.pid}/cmdline") for seen in all_processes())


async def test_a_process_that_closes_its_output_is_waited_for(world: World) -> None:
    finish, log = await world.run(bash("echo before; exec >&- 2>&-; sleep 0.3; exit 4"))

    assert (finish.exit_code, log) == (4, "before\n")


async def test_the_user_process_dies_with_its_agent(world: World) -> None:
    """Also when nobody is there to kill it (R10.4): server and spawner are gone."""
    launch = await world.launch(bash("sleep 1000"))
    agent = await world.agent(launch)
    spawner = world.executor.spawner_pid
    assert spawner is not None
    assert agent.user_pid is not None
    await world.executor.aclose()
    assert not alive(spawner)
    assert alive(agent.pid)

    os.kill(agent.pid, signal.SIGKILL)

    await until(lambda: not alive(agent.user_pid or 0))
    await world.new_executor().recover()
    assert world.files() == []


async def test_descendants_without_any_mark_die_with_their_agent_too(world: World) -> None:
    """The spawner adopts orphans; before the exit is told they are dead."""
    command = f"(setsid env -i sleep 1000 & echo $! > {world.path}/pid); sleep 1000"
    launch = await world.launch(bash(command))
    agent = await world.agent(launch)
    await until(lambda: (world.path / "pid").exists() and (world.path / "pid").read_text())
    escaped = int((world.path / "pid").read_text())

    os.kill(agent.pid, signal.SIGKILL)

    told = await world.exit(launch)
    assert (told.in_order, told.description) == (False, "its agent was killed by SIGKILL")
    assert not alive(escaped)
    assert world.files() == []
