"""One side of `claim, ask, record`, in a fresh process: prints CPU and time of one attempt in microseconds.

    python -m bench.recording SIDE URL CA_FILE BATCHES

A batch is a hundred attempts: claimed in one transaction of the real store (slots taken), asked through the real gate,
sixteen at a time, and recorded in one transaction (reviews and the launch). That they end, and give their slots back,
is not counted. SIDE is what carries the questions: `transport` is the product's own, `aiohttp` puts aiohttp in its
place and leaves everything else as it is.
"""

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.asking import ATTEMPT, POLICY, TIMEOUT, gate_of, in_loop
from bench.database import Database, new_id
from bench.endpoint import TOKEN, pin
from bench.rounds import cpu
from dexaflow.admission.decisions import Request
from dexaflow.admission.envelope import question, read_answer
from dexaflow.admission.gate import Gate
from dexaflow.admission.ports import Answered
from dexaflow.admission.results import Admitted
from dexaflow.hooks.tls import client_context
from dexaflow.hooks.webhook import WebhookCaller
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.policy.checked import Checked
from dexaflow.policy.checks import OwnChecks
from dexaflow.store import admitting, people, registering, running, slots
from dexaflow.store.bridge import StoreThread
from dexaflow.store.transaction import Tx

__all__ = ["BATCH", "FLIGHT", "main"]

BATCH, FLIGHT = 100, 16
WARM_UP = 2  # batches
SLOTS = 1_000_000


class _ByAiohttp:
    """The webhook with aiohttp in place of our transport: the same question, the same reading of the answer."""

    name = "webhook"

    def __init__(self, url: str, ca_file: Path) -> None:
        import aiohttp

        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=FLIGHT, ssl=client_context(ca_file.read_bytes())),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT),
        )

    async def ask(self, request: Request) -> Answered:
        began = time.monotonic()
        async with self._session.post(self._url, data=question(request), allow_redirects=False) as response:
            assert response.status == 200
            body = await response.read()
        return Answered(read_answer(body, request.uid), time.monotonic() - began)

    async def close(self) -> None:
        await self._session.close()


def _caller(side: str, url: str, ca_file: Path) -> WebhookCaller | _ByAiohttp:
    if side == "aiohttp":
        return _ByAiohttp(url, ca_file)
    return WebhookCaller(url, timeout=TIMEOUT, ca_file=ca_file, token_file=ca_file.with_name("token"))


def _schedule(tx: Tx, batches: int) -> None:
    """Schedule the attempts: a run of a hundred tasks for each batch."""
    tasks: tuple[TaskSpec, ...] = tuple(replace(ATTEMPT.task, task_id=f"t{number:03}") for number in range(BATCH))
    dag = DagSpec(ATTEMPT.dag_id, tasks, max_active_runs=batches)
    registering.register_file(tx, registering.DagFile("acme", "f.py", "snapshot", (dag,)), (), lambda *_: None)
    people.set_pool(tx, people.DEFAULT_POOL, SLOTS, "")
    for number in range(batches):
        new = running.NewRun(f"run-{number:06}", "manual", None, None, None, {}, "bench")
        running.create_run(tx, dag.dag_id, new)
    tx.run("UPDATE task_instances SET state = 'scheduled', scheduled_at = :now", now=tx.now_iso)


async def _batch(store: StoreThread, gate: Gate) -> tuple[float, float]:
    """Return the seconds of CPU and of time that one batch took."""
    used, began = cpu(), time.perf_counter()
    claimed = await store.do(lambda tx: slots.take_slots(tx, BATCH))
    assert len(claimed) == BATCH
    left = iter(claimed)
    verdicts: list[Admitted] = []

    async def asker() -> None:
        for attempt in left:
            verdict = await gate.review(_checked(attempt))
            assert isinstance(verdict, Admitted)
            verdicts.append(verdict)

    async with asyncio.TaskGroup() as group:
        for _ in range(FLIGHT):
            group.create_task(asker())

    def record(tx: Tx) -> int:
        return sum(_record(tx, verdict) for verdict in verdicts)

    assert await store.do(record) == BATCH
    used, took = cpu() - used, time.perf_counter() - began
    await store.do(_all_ended)
    return used, took


def _all_ended(tx: Tx) -> None:
    assert tx.run("UPDATE task_instances SET state = 'success' WHERE state = 'launching'") == BATCH


_own_checks = OwnChecks()


def _checked(attempt: Attempt) -> Checked:
    found = _own_checks.check(attempt, POLICY)
    assert isinstance(found, Checked)
    return found


def _record(tx: Tx, admitted: Admitted) -> bool:
    checked = admitted.checked
    placement = admitting.placement_document(
        checked.image, checked.resources, admitted.execution, admitted.settings, dedicated=admitted.dedicated
    )
    written = admitting.launch(tx, admitted, launch_id=new_id(), placement=placement, parallelism=SLOTS)
    return written is not None and written.launch_id is not None


async def _run(side: str, url: str, ca_file: Path, batches: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        database = Database(Path(name))
        database.do(lambda tx: _schedule(tx, WARM_UP + batches))
        store, caller = database.store(), _caller(side, url, ca_file)
        store.start()
        gate = gate_of([caller])
        gc.collect()
        gc.freeze()  # as the server does
        for _ in range(WARM_UP):
            await _batch(store, gate)
        spent = [await _batch(store, gate) for _ in range(batches)]
        used, took = (sum(figures) for figures in zip(*spent, strict=True))
        await caller.close()
        await store.aclose()
    return {"us": used / (batches * BATCH) * 1e6, "wall": took / (batches * BATCH) * 1e6}


def main(arguments: Sequence[str]) -> None:
    """Measure one side and print the figures."""
    side, url, ca_file, batches = arguments
    pin(1)
    print(json.dumps(in_loop("uvloop", _run(side, url, Path(ca_file), int(batches)))))


if __name__ == "__main__":
    main(sys.argv[1:])
