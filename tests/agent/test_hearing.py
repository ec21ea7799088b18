"""Reports are said until they are heard: a server that is slow, wrong, gone, or somewhere else."""

import asyncio
import json
import os
import shutil
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from dexaflow.agent.processes import all_processes, launched_by
from dexaflow.executors.process import ProcessExecutor
from tests.executors.proofs import Proofs
from tests.executors.reports import bash, serve
from tests.executors.world import World, a_world, until


class Failing:
    """Fails the first requests to each path."""

    def __init__(self, response: Response, times: int = 2) -> None:
        self._response = response
        self._left: dict[str, int] = {}
        self._times = times

    async def __call__(self, path: str) -> Response | None:
        left = self._left.setdefault(path, self._times)
        self._left[path] = left - 1
        return self._response if left > 0 else None


@pytest.mark.parametrize(
    "response",
    [
        Response(status_code=500),
        Response(status_code=503, headers={"Retry-After": "1"}),
        Response(status_code=404),
        Response(status_code=429),
        Response(status_code=302, headers={"Location": "http://127.0.0.1:1/"}),
        PlainTextResponse("<html>a proxy's page</html>"),
        JSONResponse([]),
        JSONResponse({"work": "nothing"}),
        Response(b"\xff" * 100, media_type="application/json"),
        Response(b"[" * 100_000, media_type="application/json"),
    ],
    ids=lambda r: f"{r.status_code}-{len(r.body)}",
)
async def test_what_is_no_answer_is_asked_again(world: World, response: Response) -> None:
    """Not heard, like a lost connection. What `finished` is answered needs no content."""
    assert world.served is not None
    world.served.fault = Failing(response)

    finish, log = await world.run(bash("echo hi"))

    assert (finish.succeeded, log) == (True, "hi\n")


@pytest.mark.parametrize("status", [401, 403, 409, 410, 400, 413, 422])
async def test_a_started_that_is_refused_runs_nothing(world: World, status: int) -> None:
    assert world.served is not None
    world.served.fault = Failing(Response(status_code=status), times=10**6)
    launch = await world.launch(bash(f"touch {world.path}/ran"))

    assert (await world.exit(launch)).in_order
    assert not (world.path / "ran").exists()
    assert world.files() == []


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_report_that_is_not_accepted_is_said_once_more_as_a_failure(world: World, status: int) -> None:
    """An attempt must end, whatever the server thinks of its result."""
    assert world.served is not None
    failing = Failing(Response(status_code=status), times=1)

    async def only_finished(path: str) -> Response | None:
        return await failing(path) if path.endswith("finished") else None

    world.served.fault = only_finished
    finish, _ = await world.run(bash("echo hi"))

    assert (finish.succeeded, finish.exit_code) == (False, 0)
    assert finish.reason == f"the server did not take the agent's report (HTTP {status})"


async def test_a_report_goes_to_where_the_server_is_after_its_restart(tmp_path: Path) -> None:
    """An agent outlives a restart of the server, also one to another port (R10.3)."""
    async with a_world(tmp_path) as world:
        world.ledger.heartbeat_seconds = 0.1
        async with AsyncExitStack() as first_life:
            await first_life.enter_async_context(serve(world.ledger, world.verifier, world.server_file))
            launch = await world.launch(bash(f"echo one; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo two"))
            await world.ledger.until(lambda: world.ledger.log_text(launch.launch_id) == "one\n")
            await world.executor.aclose()
        first_url = world.server_file.read_text()
        (tmp_path / "go").touch()
        await until(lambda: len(world.files()) == 2)  # its work is over: a state file, and a log not yet heard
        world.new_executor()
        async with serve(world.ledger, world.verifier, world.server_file):
            assert world.server_file.read_text() != first_url
            await world.executor.recover()
            assert (await world.ledger.finish(launch.launch_id)).succeeded
            assert (await world.exit(launch)).in_order
        assert world.ledger.log_text(launch.launch_id) == "one\ntwo\n"
        assert world.files() == []


async def test_an_address_that_cannot_be_read_yet_is_read_again(world: World) -> None:
    address = world.server_file.read_text()
    world.server_file.write_text("{")
    launch = await world.launch(bash("true"))
    # Nothing tells when the agent has looked: each is left there for some of its looks, and none need be seen to pass.
    for content in ("[]", '{"url": null}', '{"url": "http://127.0.0.1:notaport"}', '{"url": "http://127.0.0.1:1"}'):
        await asyncio.sleep(0.05)
        world.server_file.write_text(content)
    world.server_file.unlink()
    await asyncio.sleep(0.05)
    world.server_file.write_text(address)

    assert (await world.ledger.finish(launch.launch_id)).succeeded


async def test_an_agent_whose_servers_folder_is_gone_ends(world: World) -> None:
    """Nobody will ever hear it; it must not go on for ever."""
    home = world.path / "home"
    home.mkdir()
    world.server_file.rename(home / "server.json")
    executor = ProcessExecutor(home / "agents", home / "server.json")
    try:
        launch = world.proofs.launch()
        world.ledger.work[launch.launch_id] = bash("sleep 1000")
        world.ledger.heartbeat_seconds = 0.1
        await executor.start(launch)
        await world.ledger.until(lambda: world.ledger.beats[launch.launch_id] >= 1)
        assert world.served is not None
        world.served.fault = Failing(Response(status_code=500), times=10**6)
        shutil.rmtree(home)

        await until(lambda: launched_by(launch.launch_id, None, None) == [])
        await until(lambda: all(seen.parent != executor.spawner_pid for seen in all_processes()))
    finally:
        await executor.aclose()


async def test_a_hanging_server_does_not_stop_a_timeout(world: World) -> None:
    """The agent's watch over its process waits for nobody."""
    world.ledger.heartbeat_seconds = 0.1
    launch = await world.launch(bash(f"echo up; trap 'touch {world.path}/told; exit 1' TERM; sleep 1000 & wait"))
    await world.ledger.until(lambda: world.ledger.beats[launch.launch_id] >= 1)
    assert world.served is not None
    hanging = asyncio.Event()
    release = asyncio.Event()

    async def hang(path: str) -> None:
        hanging.set()
        await release.wait()

    world.served.fault = hang
    await hanging.wait()
    agent = await world.agent(launch)
    os.kill(agent.pid, signal.SIGTERM)
    await until(lambda: (world.path / "told").exists())

    release.set()
    world.served.fault = None
    assert (await world.ledger.finish(launch.launch_id)).reason == "stopped: its agent was told to end"


async def test_the_renewed_token_is_the_one_that_is_used(world: World) -> None:
    """Renewed by heartbeats: the first token's end is not the attempt's."""
    world.ledger.heartbeat_seconds = 0.05
    launch = await world.launch(bash("sleep 1000"))
    await world.ledger.until(lambda: world.ledger.beats[launch.launch_id] >= 3)
    world.ledger.stops[launch.launch_id] = "cancelled"
    await world.ledger.finish(launch.launch_id)

    assert world.served is not None
    first, *later = world.served.tokens
    assert first == f"Bearer {launch.token.reveal()}"
    assert len(set(later)) >= 3
    assert later[-1] not in (first, later[0])


async def test_a_token_of_another_server_is_turned_away(world: World) -> None:
    """After the signing key is lost, nothing old is trusted."""
    stranger = Proofs.fresh().launch()
    world.ledger.work[stranger.launch_id] = bash(f"touch {world.path}/ran")
    await world.executor.start(stranger)

    assert (await world.exit(stranger)).in_order
    assert not (world.path / "ran").exists()
    assert json.loads(world.server_file.read_text())["url"]
