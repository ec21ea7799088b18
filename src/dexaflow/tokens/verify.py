"""Verifying agent tokens, with public keys alone."""

from collections.abc import Mapping
from typing import Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dexaflow.base.errors import DexaflowError
from dexaflow.tokens.lifetime import AUDIENCE, ISSUER, UNTIL, Up
from dexaflow.tokens.token import _SEAL, AgentToken, Claims

__all__ = ["Renewer", "TokenRejected", "Verifier"]

_MAX_TOKEN_CHARACTERS = 4096
_OPTIONS: jwt.types.Options = {
    "require": ["iss", "aud", "sub"],
    "verify_exp": False,  # what we ask for is below, on a clock that does not jump
    "verify_iat": False,
    "verify_nbf": False,
}


class TokenRejected(DexaflowError):  # noqa: N818 - what happened, in HTTP's manner
    """A token does not open this door. `str()` says why in one line and never quotes the token."""

    def __init__(self, why: str, *, expired: bool = False) -> None:
        super().__init__(f"the agent token is not accepted: {why}")
        self.expired = expired


class Renewer(Protocol):
    """What answers a heartbeat needs to keep a live agent's token fresh; a `Minter` is one."""

    def renew(self, claims: Claims) -> AgentToken:
        """Return a fresh token for the same launch; the caller has seen that its attempt lives."""
        ...


class Verifier:
    """Judges tokens: signature (EdDSA only, by the key its `kid` names), issuer, audience and time.

    Whether the launch still counts is the store's to say (R1.7), not the token's.
    """

    def __init__(self, keys: Mapping[str, Ed25519PublicKey], up: Up) -> None:
        """Args: `keys` by key id; `up` goes on from where that of an earlier control plane stopped."""
        self._keys = dict(keys)
        self._up = up

    def verify(self, token: str) -> Claims:
        """Return what the token says. Raises `TokenRejected`."""
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise TokenRejected("it is too long")
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = self._keys.get(kid) if isinstance(kid, str) else None
            if key is None:
                raise TokenRejected("it is signed with a key that is not known here")
            said = jwt.decode(token, key, algorithms=["EdDSA"], audience=AUDIENCE, issuer=ISSUER, options=_OPTIONS)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as problem:
            # From `problem` only its kind: its text may quote parts of the token.
            raise TokenRejected(f"it is malformed or not ours ({type(problem).__name__})") from None
        attempt_id, launch_id, until = said.get("sub"), said.get("launch_id"), said.get(UNTIL)
        if not (isinstance(attempt_id, str) and isinstance(launch_id, str) and attempt_id and launch_id):
            raise TokenRejected("it names no launch")
        if isinstance(until, bool) or not isinstance(until, int | float):
            raise TokenRejected("it has no time of expiry")
        if not self._up() < until:
            raise TokenRejected("it has expired", expired=True)
        return Claims(attempt_id, launch_id, float(until), seal=_SEAL)
