"""The proof that a launch is written: the step between an `Admitted` and its token."""

from typing import final

from dexaflow.admission.results import Admitted

__all__ = ["Launched"]

_SEAL = object()


@final
class Launched:
    """Proof that the store's guarded write drew `launch_id` for an admitted attempt (R1.7).

    Made by `Launched.written` alone, and that is called in one place: where the dispatcher has the store's answer
    that the write took effect. A test keeps it so.
    """

    __slots__ = ("attempt_id", "launch_id", "term")

    def __init__(self, attempt_id: str, launch_id: str, term: int, *, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a Launched is issued by Launched.written() after the store's write, never built")
        self.attempt_id = attempt_id
        self.launch_id = launch_id
        self.term = term  # of the leader that wrote it

    @classmethod
    def written(cls, admitted: Admitted, launch_id: str, term: int) -> "Launched":
        """Return the proof for a launch that was just written; never call it before the write has answered.

        Raises:
            TypeError: `admitted` is not an `Admitted`.
            ValueError: the launch id is empty.
        """
        if not isinstance(admitted, Admitted):
            raise TypeError(f"only an Admitted can be launched, not {type(admitted).__name__}")
        if not launch_id:
            raise ValueError("a launch has an id")
        return cls(admitted.attempt.id, launch_id, term, seal=_SEAL)

    def __repr__(self) -> str:
        return f"Launched(attempt_id={self.attempt_id!r}, launch_id={self.launch_id!r}, term={self.term})"
