"""What the gate needs from outside, as protocols: hooks to ask, someone who watches."""

from typing import NamedTuple, Protocol, runtime_checkable

from dexaflow.admission.decisions import Decision, Request
from dexaflow.admission.results import Outcome
from dexaflow.model.attempt import Attempt

__all__ = ["Answered", "HookCaller", "NotPut", "Observer", "Paced"]


class Answered(NamedTuple):
    """A hook's decision and how long it took, seconds, without waiting for a connection (R7.1).

    The decision is as `well_formed` returns it, or `read_answer`: nobody can change it any more.
    """

    decision: Decision
    seconds: float
    again: bool = False  # the very object that was given before: what was made of it then holds


class HookCaller(Protocol):
    """One hook, wherever it lives. Returns by its own timeout whatever the hook does (R8.3)."""

    @property
    def name(self) -> str:
        """How it is called in metrics, records and messages (R8.1)."""
        ...

    async def ask(self, request: Request) -> Answered:
        """Put one question. Raises `HookBroken` for every way not to get a decision; lets `CancelledError` pass."""
        ...


class NotPut(Exception):  # noqa: N818 - what happened
    """A question was withdrawn while it waited for its turn; the hook has heard nothing of it."""


@runtime_checkable
class Paced(Protocol):
    """A `HookCaller` at which questions may have to wait for their turn (R7.1)."""

    def withdraw(self) -> None:
        """Give up the questions that wait: each raises `NotPut`. Those that are put go on."""
        ...


class Observer(Protocol):
    """Told of every hook's part of every ask, synchronously; must not raise."""

    def reviewed(self, attempt: Attempt, hook: str, outcome: Outcome, seconds: float | None) -> None:
        """Exactly once for each hook and ask (R9.1); `seconds` is None when no question was put.

        A question that its asker cancelled has no outcome, and is not told.
        """
        ...

    def hook_failed(self, request: Request, hook: str, incident: str, cause: str, *, bypassed: bool) -> None:
        """A question failed (R7.2) or was bypassed by `fail_open` (R7.3); `cause` is for the server log alone.

        The request's `uid` is "" where no question was put to the hook.
        """
        ...

    def breaker_changed(self, hook: str, *, is_open: bool) -> None:
        """The breaker of `hook` opened, or a success closed it; a probe that fails leaves it open."""
        ...
