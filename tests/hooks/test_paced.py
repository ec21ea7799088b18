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
from dexaflow.admission.gate import Gate
from dexaflow.admission.results import Admitted, Outcome, Verdict
from dexaflow.base.clock import SystemClock
from dexaflow.hooks.webhook import WebhookCaller
from tests.admission.builders import Lists, Watching, checked
from tests.hooks.misbehaving import Endpoint, Peer, answer

ATTEMPTS = 1_000
TIMEOUT = 2.0  # seconds; shorter than the last of them waits where each takes 50 ms: a thousand by sixteen
BUSY = 0.05


class Admitting:
    """An endpoint's script that admits after `takes` seconds."""

    def __init__(self, takes: float) -> None:
        self._takes = takes

    async def __call__(self, peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            await asyncio.sleep(self._takes)
            response = {
                "uid": json.loads(body)["request"]["uid"],
                "decision": "admit",
                "changes": {"labels": {"a": "b"}},
            }
            document = {"api_version": "dexaflow.io/admission/v1", "kind": "AdmissionReview", "response": response}
            peer.send(answer(json.dumps(document).encode()))


@pytest.mark.parametrize("takes", [0.0, BUSY], ids=["instant", "50 ms"])
async def test_thousand_at_once_are_all_asked_and_none_of_them_fails(
    takes: float, ca: trustme.CA, server_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    """On a cold pool, then on a warm one, which opens no connection more. `fail_open` would let by who had failed."""
    bundle = tmp_path / "ca.crt"
    ca.cert_pem.write_to_path(str(bundle))
    async with Endpoint(Admitting(takes), server_tls) as endpoint:
        async with WebhookCaller(endpoint.url, timeout=TIMEOUT, ca_file=bundle) as caller:
            watching, ids = Watching(), itertools.count()
            gate = Gate(
                [caller], policy=Lists(), fail_open=True, clock=SystemClock(),
                new_uid=lambda: f"00000000-0000-4000-8000-{next(ids):012d}", new_incident=lambda: "incident",
                observer=watching,
            )  # fmt: skip
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
