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

from dexaflow.tokens.keys import generate, public_keys
from dexaflow.tokens.launch import Launched
from dexaflow.tokens.lifetime import AUDIENCE, ISSUER, LIFETIME_SECONDS, Outage
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

    def passes(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


def a_token(clock: MovedClock) -> AgentToken:
    proof = admitted("attempt-1")
    return Minter(KEY, clock).mint(proof, Launched.written(proof, "launch-1", term=3))


def test_a_token_says_which_launch_of_which_attempt_it_is_for(clock: MovedClock) -> None:
    """Good for its own attempt and launch only (R1.7)."""
    claims = Verifier(public_keys(KEY), clock).verify(a_token(clock).reveal())

    assert (claims.attempt_id, claims.launch_id) == ("attempt-1", "launch-1")
    assert claims.expires == clock.wall.timestamp() + LIFETIME_SECONDS


def test_a_token_needs_both_proofs_of_one_attempt(clock: MovedClock) -> None:
    """Minting takes the value that only the gate returns, and the written launch (R1.3)."""
    minter, proof = Minter(KEY, clock), admitted("a")
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


def test_a_token_hides_its_secret_unless_it_is_asked_for(clock: MovedClock) -> None:
    """A token never appears in a log or an error (R2.3's rule, for ours)."""
    token = a_token(clock)

    for shown in (repr(token), str(token), f"{token}", repr([token]), repr(KEY)):
        assert token.reveal() not in shown
        assert token.reveal().split(".")[2] not in shown
    with pytest.raises(TypeError):
        pickle.dumps(token)


def test_a_token_expires_and_is_renewed(clock: MovedClock) -> None:
    """Expires, is renewed by heartbeats."""
    minter, verifier = Minter(KEY, clock), Verifier(public_keys(KEY), clock)
    token = a_token(clock)
    clock.passes(LIFETIME_SECONDS - 1)
    renewed = minter.renew(verifier.verify(token.reveal()))
    clock.passes(1)

    with pytest.raises(TokenRejected, match="expired") as caught:
        verifier.verify(token.reveal())
    assert caught.value.expired
    assert verifier.verify(renewed.reveal()).launch_id == "launch-1"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wall_clock_that_jumps_neither_ends_nor_prolongs_a_token(clock: MovedClock, hours: int) -> None:
    """Wall-clock jumps of an hour either way change nothing."""
    verifier, token = Verifier(public_keys(KEY), clock), a_token(clock)

    clock.wall += timedelta(hours=hours)
    assert verifier.verify(token.reveal()).launch_id == "launch-1"
    clock.passes(LIFETIME_SECONDS)
    with pytest.raises(TokenRejected):
        verifier.verify(token.reveal())


def test_a_token_outlives_the_time_in_which_no_server_was_up(clock: MovedClock) -> None:
    """Running tasks go on over a restart, however long the server was away (R10.3)."""
    token = a_token(clock)
    down = clock.wall + timedelta(seconds=10)
    clock.passes(7200)
    after = Verifier(public_keys(KEY), clock, Outage(down, clock.wall))

    assert after.verify(token.reveal()).launch_id == "launch-1"
    clock.passes(LIFETIME_SECONDS)  # time enough to have beaten
    with pytest.raises(TokenRejected):
        after.verify(token.reveal())


def test_an_outage_does_not_revive_what_had_expired_before_it(clock: MovedClock) -> None:
    """Only what could not be renewed is excused."""
    token = a_token(clock)
    clock.passes(LIFETIME_SECONDS + 1)
    down = clock.wall
    clock.passes(60)

    with pytest.raises(TokenRejected):
        Verifier(public_keys(KEY), clock, Outage(down, clock.wall)).verify(token.reveal())


def forged(payload: dict[str, Any], *, key: Any = KEY.private, algorithm: str = "EdDSA", kid: object = KEY.kid) -> str:
    return jwt.encode(payload, key, algorithm=algorithm, headers={"kid": kid})


GOOD = {"iss": ISSUER, "aud": AUDIENCE, "sub": "a", "launch_id": "l", "exp": 4_000_000_000}


@pytest.mark.parametrize(
    "token",
    [
        forged(GOOD, key=Ed25519PrivateKey.generate()),
        forged(GOOD, kid="0000000000000000"),
        forged(GOOD, key="k" * 64, algorithm="HS256"),
        forged({**GOOD, "aud": "somebody else"}),
        forged({**GOOD, "iss": "somebody else"}),
        forged({k: v for k, v in GOOD.items() if k != "exp"}),
        forged({k: v for k, v in GOOD.items() if k != "launch_id"}),
        forged({**GOOD, "launch_id": ""}),
        forged({**GOOD, "exp": 1}),
        jwt.encode(GOOD, None, algorithm="none", headers={"kid": KEY.kid}),  # type: ignore[arg-type]  # what none takes
        "",
        "a.b.c",
        "x" * 10_000,
    ],
)
def test_a_token_that_is_not_exactly_ours_is_rejected_without_being_quoted(token: str, clock: MovedClock) -> None:
    """Algorithm, key, issuer, audience and time are pinned."""
    with pytest.raises(TokenRejected) as caught:
        Verifier(public_keys(KEY), clock).verify(token)

    assert "\n" not in str(caught.value)
    assert not token or token not in str(caught.value)


def test_a_kid_that_is_no_text_is_rejected(clock: MovedClock) -> None:
    """A header is foreign input too."""
    _, payload, signature = a_token(clock).reveal().split(".")
    for kid in (["x"], {"a": 1}, 7, None):
        changed = base64.urlsafe_b64encode(json.dumps({"alg": "EdDSA", "kid": kid}).encode()).decode().rstrip("=")
        with pytest.raises(TokenRejected):
            Verifier(public_keys(KEY), clock).verify(f"{changed}.{payload}.{signature}")


@given(st.integers(0, 2), st.integers(0, 400), st.integers(1, 255))
def test_a_token_with_one_changed_character_is_rejected(part: int, place: int, change: int) -> None:
    """Any change breaks the signature, or is no change of what is signed."""
    clock = MovedClock()
    token = a_token(clock).reveal()
    parts = token.split(".")
    place %= len(parts[part])
    parts[part] = parts[part][:place] + chr(ord(parts[part][place]) ^ change) + parts[part][place + 1 :]
    verifier = Verifier(public_keys(KEY), clock)

    try:
        claims = verifier.verify(".".join(parts))
    except TokenRejected:
        return
    assert (part, claims.launch_id) == (2, "launch-1")  # base64 has spare bits at its end
