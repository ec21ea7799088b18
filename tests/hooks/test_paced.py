"""Paced, not failed: a thousand attempts at once through the real gate and transport, over TLS (R7.1, R7.3, R7.4)."""

import asyncio
import itertools
import json
import ssl
import time
from pathlib import Path

import pytest
import trustme

from dexaflow.admission.breaker import BreakerState
from dexaflow.admission.decisions import Decision, Request, admit
from dexaflow.admission.gate import Gate
from dexaflow.admission.ports import HookCaller
from dexaflow.admission.results import Admitted, Held, Outcome, Verdict
from dexaflow.base.clock import SystemClock
from dexaflow.hooks.inprocess import MAX_AT_ONCE, InProcessCaller
from dexaflow.hooks.transport import MAX_CONNECTIONS
from dexaflow.hooks.webhook import WebhookCaller
from dexaflow.policy.policy import Policy
from tests.admission.builders import Watching, checked
from tests.hooks.asking import SHORT
from tests.hooks.behaviours import at_once, says
from tests.hooks.misbehaving import Endpoint, Peer, Script, answer, decided, deciding

ATTEMPTS = 1_000
TIMEOUT = 2.0  # seconds; shorter than the last of them waits where each takes 50 ms: a thousand by sixteen
BUSY = 0.05


def a_gate_asking(caller: HookCaller, *, fail_open: bool) -> tuple[Gate, Watching]:
    """A gate with one hook, on the system's clock."""
    watching, ids = Watching(), itertools.count()
    gate = Gate(
        [caller], policy=Policy(), fail_open=fail_open, clock=SystemClock(),
        new_uid=lambda: f"00000000-0000-4000-8000-{next(ids):012d}", new_incident=lambda: "incident",
        observer=watching,
    )  # fmt: skip
    return gate, watching


@pytest.mark.parametrize("takes", [0.0, BUSY], ids=["instant", "50 ms"])
async def test_thousand_at_once_are_all_asked_and_none_of_them_fails(
    takes: float, ca: trustme.CA, server_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    """On a cold pool, then on a warm one, which opens no connection more. `fail_open` would let by who had failed."""
    bundle = tmp_path / "ca.crt"
    ca.cert_pem.write_to_path(str(bundle))
    admitting = deciding(takes=takes, decision="admit", changes={"labels": {"a": "b"}})
    async with Endpoint(admitting, server_tls) as endpoint:
        async with WebhookCaller(endpoint.url, timeout=TIMEOUT, ca_file=bundle) as caller:
            gate, watching = a_gate_asking(caller, fail_open=True)
            for crowd in (ATTEMPTS, 100):
                began = time.monotonic()
                verdicts: list[Verdict] = await asyncio.gather(*[gate.review(checked()) for _ in range(crowd)])
                if takes and crowd == ATTEMPTS:
                    assert time.monotonic() - began > TIMEOUT  # so that the last have waited longer than a question may
                assert all(isinstance(verdict, Admitted) for verdict in verdicts)
                assert set(watching.outcomes()) == {Outcome.ADMIT}
                assert (watching.failures, watching.breakers) == ([], [])
                (status,) = gate.status()
                assert (status.state, status.failures, status.last_cause) == (BreakerState.CLOSED, 0, "")
                assert len(endpoint.peers) <= 16  # ever, so that the second crowd has opened none
            assert len(endpoint.questions) == len(watching.outcomes()) == ATTEMPTS + 100


BROKEN: dict[str, Script] = {
    "silent": at_once(),
    "closes": at_once(then=Peer.close),
    "answers 503": says(answer(b"", status="503 Busy")),
}


@pytest.mark.parametrize("fail_open", [False, True], ids=["fail closed", "fail open"])
@pytest.mark.parametrize("how", BROKEN)
async def test_those_who_wait_for_a_connection_when_the_breaker_opens_are_not_asked(how: str, fail_open: bool) -> None:
    """R7.4: nothing is asked any more, whoever had begun to wait before; nobody waits out a timeout of others."""
    async with Endpoint(BROKEN[how]) as endpoint, WebhookCaller(endpoint.url, timeout=SHORT) as caller:
        gate, watching = a_gate_asking(caller, fail_open=fail_open)
        verdicts = await asyncio.gather(*[gate.review(checked()) for _ in range(ATTEMPTS)])
        # Four have failed, sixteen are out when the fifth does, and sixteen may have taken the places of those at once.
        asked = sum(seconds is not None for _, _, seconds in watching.reviewed_as)
        assert 5 <= asked <= 4 + 2 * 16
        assert len(watching.reviewed_as) == ATTEMPTS
        if fail_open:
            assert all(isinstance(verdict, Admitted) for verdict in verdicts)
            assert set(watching.outcomes()) == {Outcome.FAIL_OPEN}
        else:
            assert all(isinstance(verdict, Held) and verdict.broken for verdict in verdicts)
            assert sum(verdict.asked for verdict in verdicts if isinstance(verdict, Held)) == asked
            assert set(watching.outcomes()) == {Outcome.ERROR, Outcome.BREAKER_OPEN}
        assert watching.breakers == [("webhook", True)]
        assert len(endpoint.peers) <= 4 + 2 * 16 + 1  # no connection for those who were not asked


async def test_those_who_wait_for_a_thread_when_the_breaker_opens_are_not_asked() -> None:
    called: list[str] = []

    def broken(request: Request) -> Decision:
        called.append(request.uid)
        time.sleep(0.01)
        raise OSError("no database")

    caller = InProcessCaller(broken, timeout=TIMEOUT)
    gate, watching = a_gate_asking(caller, fail_open=False)
    verdicts = await asyncio.gather(*[gate.review(checked()) for _ in range(ATTEMPTS)])
    assert all(isinstance(verdict, Held) for verdict in verdicts)
    # As with connections; and more may return from their threads before those who asked have heard of the first.
    assert 5 <= len(called) == watching.outcomes().count(Outcome.ERROR) <= 4 + 3 * MAX_AT_ONCE
    await caller.close()


async def _a_crowd_and_one_of_another_tenant(caller: HookCaller) -> None:
    """Have many of one tenant asked about, and then one of another."""
    gate, _ = a_gate_asking(caller, fail_open=False)
    crowd = [asyncio.create_task(gate.review(checked(tenant_id="acme"))) for _ in range(200)]
    await asyncio.sleep(0)
    await gate.review(checked(tenant_id="globex"))
    await asyncio.gather(*crowd)


async def test_one_tenants_crowd_that_waits_for_connections_is_in_no_other_tenants_way() -> None:
    """R6.2: also where both are asked for the first time."""
    asked: list[str] = []

    async def admitting(peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            asked.append(json.loads(body)["request"]["tenant_id"])
            await asyncio.sleep(0.01)
            peer.send(decided(body, decision="admit"))

    async with Endpoint(admitting) as endpoint, WebhookCaller(endpoint.url, timeout=TIMEOUT) as caller:
        await _a_crowd_and_one_of_another_tenant(caller)
    assert asked.index("globex") <= 2 * MAX_CONNECTIONS


async def test_one_tenants_crowd_that_waits_for_threads_is_in_no_other_tenants_way() -> None:
    asked: list[str] = []

    def slow(request: Request) -> Decision:
        asked.append(request.tenant_id)
        time.sleep(0.01)
        return admit()

    caller = InProcessCaller(slow, timeout=TIMEOUT)
    try:
        await _a_crowd_and_one_of_another_tenant(caller)
    finally:
        await caller.close()
    assert asked.index("globex") <= 2 * MAX_AT_ONCE
