"""A rough figure: what one tiny bash attempt costs in agent, spawner and bash. Run: python -m bench.agent_rough [N].

The server in this process is the tests' stand-in (real routes, real HTTP, memory instead of a store), and its CPU is
shown apart. Agents and bash are the spawner's children, so all their CPU is in its `getrusage` once it has ended.
"""

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

from tests.executors.proofs import Proofs
from tests.executors.reports import Ledger, bash, serve

from dexaflow.base.clock import SystemClock
from dexaflow.executors.process import ProcessExecutor
from dexaflow.tokens.keys import public_keys
from dexaflow.tokens.verify import Verifier


def cpu(who: int) -> float:
    """Return the seconds of CPU used so far."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


async def measure(attempts: int, at_once: int) -> None:
    """Run the attempts, so many at once, and print what they cost."""
    with tempfile.TemporaryDirectory() as name:
        folder, proofs = Path(name), Proofs.fresh()
        ledger = Ledger(proofs.minter)
        executor = ProcessExecutor(folder / "agents", folder / "server.json")
        gate = asyncio.Semaphore(at_once)

        async def one() -> None:
            async with gate:
                launch = proofs.launch()
                ledger.work[launch.launch_id] = bash("true")
                await executor.start(launch)
                assert (await ledger.finish(launch.launch_id)).succeeded

        async with serve(ledger, Verifier(public_keys(proofs.key), SystemClock()), folder / "server.json"):
            await one()  # the spawner has loaded
            own, began = cpu(resource.RUSAGE_SELF), time.perf_counter()
            await asyncio.gather(*(one() for _ in range(attempts)))
            wall, own = time.perf_counter() - began, cpu(resource.RUSAGE_SELF) - own
            await executor.aclose()
    agents = cpu(resource.RUSAGE_CHILDREN)
    print(f"{attempts} attempts, {at_once} at once: {attempts / wall:.0f} a second")
    print(f"agent and bash: {agents / attempts * 1000:.1f} ms of CPU an attempt (loading the spawner included)")
    print(f"stand-in server: {own / attempts * 1000:.1f} ms of CPU an attempt")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 500, at_once=4))
