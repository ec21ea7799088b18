"""Signing agent tokens: for the dispatcher and the composition root alone; the API cannot import this."""

import jwt

from dexaflow.admission.results import Admitted
from dexaflow.tokens.keys import SigningKey
from dexaflow.tokens.launch import Launched
from dexaflow.tokens.lifetime import AUDIENCE, ISSUER, LIFETIME_SECONDS, UNTIL, Up
from dexaflow.tokens.token import _SEAL, AgentToken, Claims

__all__ = ["Minter"]


class Minter:
    """Signs tokens. Takes what only the gate and the written launch can give (R1.3, R1.7)."""

    def __init__(self, key: SigningKey, up: Up) -> None:
        self._key = key
        self._up = up

    def mint(self, admitted: Admitted, launched: Launched) -> AgentToken:
        """Return the token of one launch of an admitted attempt.

        Raises:
            TypeError: it was handed something else than the two proofs.
            ValueError: the proofs are of different attempts.
        """
        for proof, kind in ((admitted, Admitted), (launched, Launched)):
            if not isinstance(proof, kind):
                raise TypeError(f"a token is minted from an Admitted and its Launched, not {type(proof).__name__}")
        if admitted.attempt.id != launched.attempt_id:
            raise ValueError(f"attempt {admitted.attempt.id} was admitted, but attempt {launched.attempt_id} launched")
        return self._sign(launched.attempt_id, launched.launch_id)

    def renew(self, claims: Claims) -> AgentToken:
        """Return a fresh token for the launch of a verified one; the caller has seen that its attempt lives."""
        if not isinstance(claims, Claims):
            raise TypeError("a token is renewed from verified Claims, nothing else")
        return self._sign(claims.attempt_id, claims.launch_id)

    def _sign(self, attempt_id: str, launch_id: str) -> AgentToken:
        payload = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": attempt_id,
            "launch_id": launch_id,
            UNTIL: self._up() + LIFETIME_SECONDS,
        }
        secret = jwt.encode(payload, self._key.private, algorithm="EdDSA", headers={"kid": self._key.kid})
        return AgentToken(secret, attempt_id, launch_id, seal=_SEAL)
