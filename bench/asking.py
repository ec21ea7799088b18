"""One side of a comparison, in a fresh process: prints the microseconds of CPU of each question.

    python -m bench.asking SIDE URL CA_FILE IN_FLIGHT QUESTIONS

CPU is `getrusage` over all threads of this process, begun once connections are open and code is warm.
"""

import asyncio
import contextlib
import resource
import secrets
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import uvloop

from bench.endpoint import pin
from dexaflow.admission.decisions import Decision, Request, admit
from dexaflow.admission.envelope import question
from dexaflow.admission.gate import Gate
from dexaflow.admission.ports import Answered, HookCaller
from dexaflow.admission.results import Admitted, Held
from dexaflow.base.clock import SystemClock
from dexaflow.base.errors import HookBroken
from dexaflow.hooks.inprocess import InProcessCaller
from dexaflow.hooks.naming import Hook
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
from dexaflow.policy.checks import check
from dexaflow.policy.policy import Policy

__all__ = ["SIDES", "main"]

Ask = Callable[[], Awaitable[None]]
TOKEN = "a-token"
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


def _checked() -> Checked:
    passed = check(ATTEMPT, POLICY)
    assert isinstance(passed, Checked)
    return passed


def _gate(callers: Sequence[HookCaller]) -> Gate:
    return Gate(
        callers,
        policy=POLICY,
        fail_open=False,
        clock=SystemClock(),
        new_uid=lambda: str(uuid.uuid4()),
        new_incident=lambda: secrets.token_hex(6),
        observer=Metrics(timeout=TIMEOUT, hooks=[caller.name for caller in callers]),
    )


def _whole(gate: Gate, *, own_checks: bool) -> Ask:
    """Own checks, then the gate: all of a decision but the database."""
    passed = _checked()

    async def ask() -> None:
        verdict = await gate.review(_checked() if own_checks else passed)
        assert isinstance(verdict, Admitted), verdict
        assert verdict.execution.labels["cost-center"] == "4711"

    return ask


@contextlib.asynccontextmanager
async def _aiohttp(url: str, ca_file: Path) -> AsyncIterator[Ask]:
    """A bare POST loop: the body is made once, the answer is read and not looked at."""
    import aiohttp

    body = await _body()
    connector = aiohttp.TCPConnector(limit=16, ssl=client_context(_read(ca_file)))
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def ask() -> None:
            async with session.post(url, data=body) as response:
                assert response.status == 200
                assert await response.read()

        yield ask


async def _body() -> bytes:
    """Return the very document that the gate's webhook would send."""
    sent: list[bytes] = []

    class Keeping:
        name = "keeping"

        async def ask(self, request: Request) -> Answered:
            sent.append(question(request))
            return Answered(admit(), 0.0)

    await _gate([Keeping()]).review(_checked())
    return sent[0]


@contextlib.asynccontextmanager
async def _transport(url: str, ca_file: Path) -> AsyncIterator[Ask]:
    body = await _body()
    context = client_context(_read(ca_file))
    async with Transport(parse_webhook_url(url), timeout=TIMEOUT, tls=context, token=TOKEN) as transport:

        async def ask() -> None:
            assert (await transport.post(body)).status == 200

        yield ask


@contextlib.asynccontextmanager
async def _gate_side(url: str, ca_file: Path, *before: Hook, own_checks: bool = True) -> AsyncIterator[Ask]:
    token_file = ca_file.with_name("token")
    hooks = [InProcessCaller(hook, timeout=TIMEOUT) for hook in before]
    async with WebhookCaller(url, timeout=TIMEOUT, ca_file=ca_file, token_file=token_file) as webhook:
        yield _whole(_gate([*hooks, webhook]), own_checks=own_checks)
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

    gate = _gate([Broken()])
    checked = _checked()
    while gate.next_probe("webhook") is None:
        await gate.review(checked)

    async def ask() -> None:
        verdict = await gate.review(checked)
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


async def _measure(ask: Ask, questions: int, in_flight: int) -> float:
    left = iter(range(questions))

    async def asker() -> None:
        for _ in left:
            await ask()

    began = _cpu()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(asker())
    return (_cpu() - began) / questions * 1e6


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _run(side: str, url: str, ca_file: Path, in_flight: int, questions: int) -> float:
    async with SIDES[side](url, ca_file) as ask:
        await _measure(ask, min(WARM_UP, questions), in_flight)
        return await _measure(ask, questions, in_flight)


def main(arguments: Sequence[str]) -> None:
    """Measure one side and print the figure."""
    side, url, ca_file, in_flight, questions = arguments
    pin(1)
    configure_logs(form="json")  # as the server's: what a decision logs is part of what it costs
    print(uvloop.run(_run(side, url, Path(ca_file), int(in_flight), int(questions))))


if __name__ == "__main__":
    main(sys.argv[1:])
