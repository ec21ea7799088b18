"""What travels: the token itself, and what a verified one says."""

from typing import NoReturn, final

__all__ = ["AgentToken", "Claims"]

_SEAL = object()  # used by mint.py and verify.py alone


@final
class AgentToken:
    """The credential of one launch; issued by a `Minter` alone (R1.3). Its secret shows only on `reveal()`."""

    __slots__ = ("_secret", "attempt_id", "launch_id")

    def __init__(self, secret: str, attempt_id: str, launch_id: str, *, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("an AgentToken is issued by a Minter, never built")
        self._secret = secret
        self.attempt_id = attempt_id
        self.launch_id = launch_id

    def reveal(self) -> str:
        """Return the secret, to be handed to the agent and to nobody else."""
        return self._secret

    def __repr__(self) -> str:
        return f"AgentToken(launch_id={self.launch_id!r}, secret hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AgentToken is not pickled: it would be written down")


@final
class Claims:
    """What a verified token says: which launch of which attempt speaks. Issued by `Verifier.verify` alone."""

    __slots__ = ("attempt_id", "launch_id", "until")

    def __init__(self, attempt_id: str, launch_id: str, until: float, *, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("Claims are issued by Verifier.verify(), never built")
        self.attempt_id = attempt_id
        self.launch_id = launch_id
        self.until = until  # when the token ends, in seconds of `lifetime.Up`

    def __repr__(self) -> str:
        return f"Claims(attempt_id={self.attempt_id!r}, launch_id={self.launch_id!r}, until={self.until})"
