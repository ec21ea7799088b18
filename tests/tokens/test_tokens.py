"""Tokens: who can make one, what opens with it, and how long."""

import base64
import json
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.store.bridge import UpClock
from dexaflow.tokens.keys import generate, public_keys
from dexaflow.tokens.launch import Launched
from dexaflow.tokens.lifetime import AUDIENCE, ISSUER, LIFETIME_SECONDS, UNTIL
from dexaflow.tokens.mint import Minter
from dexaflow.tokens.token import AgentToken, Claims
from dexaflow.tokens.verify import TokenRejected, Verifier
from tests.executors.proofs import admitted

KEY = generate()


@dataclass
class MovedClock:
    """A clock whose two readings move apart."""

    seconds: float = 1000.0
    wall: datetime = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return self.wall


class Uptime:
    """How long control planes have been up, as they count it themselves."""

    def __init__(self) -> None:
        self.clock = MovedClock()
        self._counted = UpClock(self.clock, 0.0)

    def __call__(self) -> float:
        return self._counted.up()

    def passes(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.clock.wall += timedelta(seconds=seconds)

    def restarts(self, down: float = 0.0) -> None:
        """The control plane dies, and after a while another one goes on, on a machine that was started anew."""
        kept = self()
        self.clock = MovedClock(seconds=5.0, wall=self.clock.wall + timedelta(seconds=down))
        self._counted = UpClock(self.clock, kept)


@pytest.fixture
def up() -> Uptime:
    return Uptime()


def a_token(up: Uptime) -> AgentToken:
    proof = admitted("attempt-1")
    return Minter(KEY, up).mint(proof, Launched.written(proof, "launch-1", term=3))


def test_a_token_says_which_launch_of_which_attempt_it_is_for(up: Uptime) -> None:
    """Good for its own attempt and launch only (R1.7)."""
    claims = Verifier(public_keys(KEY), up).verify(a_token(up).reveal())

    assert (claims.attempt_id, claims.launch_id) == ("attempt-1", "launch-1")
    assert claims.until == up() + LIFETIME_SECONDS


def test_a_token_needs_both_proofs_of_one_attempt(up: Uptime) -> None:
    """Minting takes the value that only the gate returns, and the written launch (R1.3)."""
    minter, proof = Minter(KEY, up), admitted("a")
    other: Any = Launched.written(admitted("b"), "l", term=1)

    with pytest.raises(ValueError, match="attempt a was admitted"):
        minter.mint(proof, other)
    for wrong in ((proof, "launch-1"), ("attempt-1", Launched.written(proof, "l", term=1)), (proof, proof)):
        arguments: Any = wrong
        with pytest.raises(TypeError):
            minter.mint(*arguments)
    not_claims: Any = "attempt-1"
    with pytest.raises(TypeError):
        minter.renew(not_claims)


def test_no_proof_can_be_built_by_hand() -> None:
    """There is no other way to a token (R1.1)."""
    not_admitted: Any = "attempt-1"
    with pytest.raises(TypeError, match="never built"):
        Launched("a", "l", 1, seal=object())
    with pytest.raises(TypeError, match="never built"):
        AgentToken("secret", "a", "l", seal=None)
    with pytest.raises(TypeError, match="never built"):
        Claims("a", "l", 0.0, seal=object())
    with pytest.raises(TypeError):
        Launched.written(not_admitted, "l", term=1)
    with pytest.raises(ValueError, match="id"):
        Launched.written(admitted(), "", term=1)


def test_a_token_hides_its_secret_unless_it_is_asked_for(up: Uptime) -> None:
    """A token never appears in a log or an error (R2.3's rule, for ours)."""
    token = a_token(up)

    for shown in (repr(token), str(token), f"{token}", repr([token]), repr(KEY)):
        assert token.reveal() not in shown
        assert token.reveal().split(".")[2] not in shown
    with pytest.raises(TypeError):
        pickle.dumps(token)


def test_a_token_expires_and_is_renewed(up: Uptime) -> None:
    """Expires, is renewed by heartbeats."""
    minter, verifier = Minter(KEY, up), Verifier(public_keys(KEY), up)
    token = a_token(up)
    up.passes(LIFETIME_SECONDS - 1)
    renewed = minter.renew(verifier.verify(token.reveal()))
    up.passes(1)

    with pytest.raises(TokenRejected, match="expired") as caught:
        verifier.verify(token.reveal())
    assert caught.value.expired
    assert verifier.verify(renewed.reveal()).launch_id == "launch-1"


@pytest.mark.parametrize("restarts", [False, True], ids=["", "and the server starts anew"])
@pytest.mark.parametrize("hours", [-25, -1, 1, 25])
def test_a_wall_clock_that_jumps_neither_ends_nor_prolongs_a_token(up: Uptime, hours: int, restarts: bool) -> None:
    """Neither for the server that runs, nor for the next one: running tasks go on (R10.3)."""
    verifier, token = Verifier(public_keys(KEY), up), a_token(up)

    up.clock.wall += timedelta(hours=hours)
    if restarts:
        up.restarts()
    assert verifier.verify(token.reveal()).launch_id == "launch-1"
    up.passes(LIFETIME_SECONDS)
    with pytest.raises(TokenRejected):
        verifier.verify(token.reveal())


def test_a_token_outlives_the_time_in_which_no_server_was_up(up: Uptime) -> None:
    """Running tasks go on over a restart, however long the server was away (R10.3)."""
    token = a_token(up)
    up.passes(LIFETIME_SECONDS - 10)
    up.restarts(down=7200)
    after = Verifier(public_keys(KEY), up)

    assert after.verify(token.reveal()).launch_id == "launch-1"
    up.passes(10)
    with pytest.raises(TokenRejected):
        after.verify(token.reveal())


def test_a_restart_does_not_revive_what_had_expired_before_it(up: Uptime) -> None:
    """Only what could not be renewed is excused."""
    token = a_token(up)
    up.passes(LIFETIME_SECONDS + 1)
    up.restarts(down=60)

    with pytest.raises(TokenRejected):
        Verifier(public_keys(KEY), up).verify(token.reveal())


def forged(payload: dict[str, Any], *, key: Any = KEY.private, algorithm: str = "EdDSA", kid: object = KEY.kid) -> str:
    return jwt.encode(payload, key, algorithm=algorithm, headers={"kid": kid})


GOOD = {"iss": ISSUER, "aud": AUDIENCE, "sub": "a", "launch_id": "l", UNTIL: 4_000_000_000}


@pytest.mark.parametrize(
    "token",
    [
        forged(GOOD, key=Ed25519PrivateKey.generate()),
        forged(GOOD, kid="0000000000000000"),
        forged(GOOD, key="k" * 64, algorithm="HS256"),
        forged({**GOOD, "aud": "somebody else"}),
        forged({**GOOD, "iss": "somebody else"}),
        forged({k: v for k, v in GOOD.items() if k != UNTIL}),
        forged({k: v for k, v in GOOD.items() if k != "launch_id"}),
        forged({**GOOD, "launch_id": ""}),
        forged({**GOOD, UNTIL: 0}),
        forged({**GOOD, UNTIL: float("nan")}),
        forged({**GOOD, UNTIL: True}),
        forged({k: v for k, v in GOOD.items() if k != UNTIL} | {"exp": 4_000_000_000}),
        jwt.encode(GOOD, None, algorithm="none", headers={"kid": KEY.kid}),  # type: ignore[arg-type]  # what none takes
        "",
        "a.b.c",
        "x" * 10_000,
    ],
)
def test_a_token_that_is_not_exactly_ours_is_rejected_without_being_quoted(token: str, up: Uptime) -> None:
    """Algorithm, key, issuer, audience and time are pinned."""
    with pytest.raises(TokenRejected) as caught:
        Verifier(public_keys(KEY), up).verify(token)

    assert "\n" not in str(caught.value)
    assert not token or token not in str(caught.value)


def test_a_kid_that_is_no_text_is_rejected(up: Uptime) -> None:
    """A header is foreign input too."""
    _, payload, signature = a_token(up).reveal().split(".")
    for kid in (["x"], {"a": 1}, 7, None):
        changed = base64.urlsafe_b64encode(json.dumps({"alg": "EdDSA", "kid": kid}).encode()).decode().rstrip("=")
        with pytest.raises(TokenRejected):
            Verifier(public_keys(KEY), up).verify(f"{changed}.{payload}.{signature}")


@given(st.integers(0, 2), st.integers(0, 400), st.integers(1, 255))
def test_a_token_with_one_changed_character_is_rejected(part: int, place: int, change: int) -> None:
    """Any change breaks the signature, or is no change of what is signed."""
    up = Uptime()
    token = a_token(up).reveal()
    parts = token.split(".")
    place %= len(parts[part])
    parts[part] = parts[part][:place] + chr(ord(parts[part][place]) ^ change) + parts[part][place + 1 :]
    verifier = Verifier(public_keys(KEY), up)

    try:
        claims = verifier.verify(".".join(parts))
    except TokenRejected:
        return
    assert (part, claims.launch_id) == (2, "launch-1")  # base64 has spare bits at its end
