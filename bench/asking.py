"""One side of a comparison, in a fresh process: prints the microseconds of CPU of each question.

    python -m bench.asking SIDE LOOP URL CA_FILE IN_FLIGHT QUESTIONS

CPU is `getrusage` over all threads of this process, begun once connections are open and code is warm. LOOP is the event
loop of either side: `uvloop`, as in the server, or `asyncio`.
"""

import asyncio
import contextlib
import gc
import json
import os
import secrets
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from bench.endpoint import TOKEN, pin
from bench.rounds import cpu
from dexaflow.admission.decisions import Decision, Request, admit
from dexaflow.admission.envelope import question
from dexaflow.admission.gate import Gate
from dexaflow.admission.hook_shape import Hook
from dexaflow.admission.ports import Answered, HookCaller, Observer
from dexaflow.admission.results import Admitted, Held, Outcome
from dexaflow.base.clock import SystemClock
from dexaflow.base.errors import HookBroken
from dexaflow.base.ids import RandomIds
from dexaflow.hooks.inprocess import InProcessCaller
from dexaflow.hooks.tls import client_context
from dexaflow.hooks.transport import Transport
from dexaflow.hooks.url import parse_webhook_url
from dexaflow.hooks.webhook import WebhookCaller
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution, Resources
from dexaflow.observe.logs import configure_logs
from dexaflow.observe.metrics import Metrics
from dexaflow.policy.checked import Checked
from dexaflow.policy.checks import OwnChecks
from dexaflow.policy.policy import Policy

__all__ = [
    "ATTEMPT",
    "POLICY",
    "SIDES",
    "TIMEOUT",
    "Ask",
    "Counting",
    "body",
    "checked",
    "gate_of",
    "in_loop",
    "main",
    "spend",
]

T = TypeVar("T")
Ask = Callable[[], Awaitable[None]]
TIMEOUT = 30.0
WARM_UP = 300

POLICY = Policy(service_accounts=frozenset({"etl", "default"}))
ATTEMPT = Attempt(
    str(uuid.uuid4()), "acme", "nightly_etl", "0193f2c4-7a5b-7c3e-9f10-2b7d8e1f0a42", "extract", 1,
    TaskSpec(
        "extract", "bash", bash_command="true", image="ghcr.io/acme/etl:2024-11",
        resources=Resources({"cpu": "500m", "memory": "1Gi"}, {"memory": "1Gi"}),
        execution=Execution(node_selector={"zone": "a"}, labels={"team": "data"}),
    ),
)  # fmt: skip


def _read(path: Path) -> bytes:
    return path.read_bytes()


_own_checks = OwnChecks()


def checked() -> Checked:
    """Return the attempt as own checks let it through."""
    passed = _own_checks.check(ATTEMPT, POLICY)
    assert isinstance(passed, Checked)
    return passed


def gate_of(callers: Sequence[HookCaller], observer: Observer | None = None) -> Gate:
    """Return a gate that asks these; metrics count it, as in the server, unless another observer does."""
    return Gate(
        callers,
        policy=POLICY,
        fail_open=False,
        clock=SystemClock(),
        new_uid=RandomIds(os.urandom),
        new_incident=lambda: secrets.token_hex(6),
        observer=observer or Metrics(timeout=TIMEOUT, hooks=[caller.name for caller in callers]),
    )


def _whole(gate: Gate, *, own_checks: bool) -> Ask:
    """Own checks, then the gate: all of a decision but the database."""
    passed = checked()

    async def ask() -> None:
        verdict = await gate.review(checked() if own_checks else passed)
        assert isinstance(verdict, Admitted), verdict
        assert verdict.execution.labels["cost-center"] == "4711"

    return ask


class Counting:
    """The gate's observer, for what counts failures and writes no log."""

    def __init__(self) -> None:
        self.failures = 0

    def reviewed(self, attempt: Attempt, hook: str, outcome: Outcome, seconds: float | None) -> None:
        """Nothing of it matters here."""

    def hook_failed(self, request: Request, hook: str, incident: str, cause: str, *, bypassed: bool) -> None:
        """A question failed."""
        self.failures += 1

    def breaker_changed(self, hook: str, *, is_open: bool) -> None:
        """It follows from the failures."""


@contextlib.asynccontextmanager
async def _aiohttp(url: str, ca_file: Path) -> AsyncIterator[Ask]:
    """A bare POST loop: the same document as JSON, and the answer's; nothing of it is checked."""
    import aiohttp

    document = json.loads(await body())
    connector = aiohttp.TCPConnector(limit=16, ssl=client_context(_read(ca_file)))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def ask() -> None:
            async with session.post(url, json=document) as response:
                assert response.status == 200
                assert (await response.json())["response"]["decision"] == "admit"

        yield ask


async def body() -> bytes:
    """Return the very document that the gate's webhook would send."""
    sent: list[bytes] = []

    class Keeping:
        name = "keeping"

        async def ask(self, request: Request) -> Answered:
            sent.append(question(request))
            return Answered(admit(), 0.0)

    await gate_of([Keeping()]).review(checked())
    return sent[0]


@contextlib.asynccontextmanager
async def _transport(url: str, ca_file: Path) -> AsyncIterator[Ask]:
    sent = await body()
    context = client_context(_read(ca_file))
    async with Transport(parse_webhook_url(url), timeout=TIMEOUT, tls=context, token=TOKEN) as transport:

        async def ask() -> None:
            assert (await transport.post(sent)).status == 200

        yield ask


@contextlib.asynccontextmanager
async def _gate_side(url: str, ca_file: Path, *before: Hook, own_checks: bool = True) -> AsyncIterator[Ask]:
    token_file = ca_file.with_name("token")
    hooks = [InProcessCaller(hook, timeout=TIMEOUT) for hook in before]
    async with WebhookCaller(url, timeout=TIMEOUT, ca_file=ca_file, token_file=token_file) as webhook:
        yield _whole(gate_of([*hooks, webhook]), own_checks=own_checks)
        for hook in hooks:
            await hook.close()


async def async_hook(request: Request) -> Decision:
    """A hook more, on its own event loop."""
    return admit()


def plain_hook(request: Request) -> Decision:
    """A hook more, in a thread."""
    return admit()


@contextlib.asynccontextmanager
async def _breaker(url: str, ca_file: Path) -> AsyncIterator[Ask]:
    """Nobody is asked: the breaker is open."""

    class Broken:
        name = "webhook"

        async def ask(self, request: Request) -> Answered:
            raise HookBroken("connection refused")

    gate, passed = gate_of([Broken()]), checked()
    while gate.next_probe("webhook") is None:
        await gate.review(passed)

    async def ask() -> None:
        verdict = await gate.review(passed)
        assert isinstance(verdict, Held)
        assert not verdict.asked

    yield ask


SIDES: dict[str, Callable[[str, Path], contextlib.AbstractAsyncContextManager[Ask]]] = {
    "aiohttp": _aiohttp,
    "transport": _transport,
    "gate": _gate_side,
    "gate-checks": lambda url, ca: _gate_side(url, ca, own_checks=False),
    "gate+async": lambda url, ca: _gate_side(url, ca, async_hook),
    "gate+plain": lambda url, ca: _gate_side(url, ca, plain_hook),
    "breaker": _breaker,
}


async def spend(ask: Ask, questions: int, in_flight: int) -> float:
    """Ask so often and return the microseconds of CPU of one question."""
    left = iter(range(questions))

    async def asker() -> None:
        for _ in left:
            await ask()

    began = cpu()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(asker())
    return (cpu() - began) / questions * 1e6


async def _run(side: str, url: str, ca_file: Path, in_flight: int, questions: int) -> float:
    async with SIDES[side](url, ca_file) as ask:
        await spend(ask, min(WARM_UP, questions), in_flight)
        return await spend(ask, questions, in_flight)


def in_loop(loop: str, main: Coroutine[Any, Any, T]) -> T:
    """Run on the named event loop, with the server's log, since what a decision logs is part of what it costs."""
    configure_logs(form="json")
    return uvloop.run(main) if loop == "uvloop" else asyncio.run(main)


def main(arguments: Sequence[str]) -> None:
    """Measure one side and print the figure."""
    side, loop, url, ca_file, in_flight, questions = arguments
    pin(1)
    gc.collect()
    gc.freeze()  # as the server does
    print(json.dumps({"us": in_loop(loop, _run(side, url, Path(ca_file), int(in_flight), int(questions)))}))


if __name__ == "__main__":
    main(sys.argv[1:])
