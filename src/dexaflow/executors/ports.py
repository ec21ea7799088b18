"""What the dispatcher asks of an executor, whichever it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dexaflow.admission.results import Admitted
from dexaflow.tokens.launch import Launched
from dexaflow.tokens.token import AgentToken

__all__ = ["Executor", "Exit", "Found", "Launch"]


@dataclass(frozen=True, slots=True)
class Launch:
    """All that an executor starts: an admitted attempt, its written launch, and the token of that launch (R1.1, R1.7).

    Raises:
        TypeError: one of them is not what it should be.
        ValueError: they are not of one attempt and one launch.
    """

    admitted: Admitted
    token: AgentToken
    launched: Launched

    def __post_init__(self) -> None:
        for proof, kind in ((self.admitted, Admitted), (self.token, AgentToken), (self.launched, Launched)):
            if not isinstance(proof, kind):
                raise TypeError(f"a Launch takes an {kind.__name__}, not {type(proof).__name__}")
        attempts = {self.admitted.attempt.id, self.token.attempt_id, self.launched.attempt_id}
        if len(attempts) > 1 or self.token.launch_id != self.launched.launch_id:
            raise ValueError(
                f"the admission, the token and the launch {self.launched.launch_id} do not belong together"
            )

    @property
    def launch_id(self) -> str:
        """The id by which everything that runs for it is found."""
        return self.launched.launch_id


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of a launch. `alive`: its agent is; it will report by itself."""

    launch_id: str
    alive: bool
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """An agent is gone, and all that it ran with it.

    `in_order`: it ended by itself, because its report was heard or its launch does not count (any more): nothing is
    left to do. If not, it died, and nobody but the reader of this will end its attempt. `description` is one line for
    the task's author.
    """

    launch_id: str
    in_order: bool
    description: str


class Executor(Protocol):
    """Starts launches, and finds and ends what runs for them, also what was started before a restart."""

    def on_exit(self, callback: Callable[[Exit], None]) -> None:
        """Have `callback` called, on the event loop, once for each agent that is gone; also before `start` returns."""
        ...

    async def start(self, launch: Launch) -> None:
        """Start an agent for the launch. A cancelled start may have started one; `kill` ends it.

        Raises:
            ExecutorError: it could not be started; one line for the author.
        """
        ...

    async def find(self, launch_id: str) -> Found:
        """Return what there is of a launch."""
        ...

    async def kill(self, launch_id: str, grace: float = 10.0) -> None:
        """End a launch; returns once its agent and everything it ran are dead, also when they were before.

        To be awaited before the try is failed (R10.4). The agent gets `grace` seconds to end its processes and report.

        Raises:
            ExecutorError: the executor is closed, or closed meanwhile, and cannot tell; the try is not to be failed.
        """
        ...

    async def recover(self) -> list[str]:
        """Return the launches that live, having cleared away what is left of dead ones. To be called once, first."""
        ...

    async def aclose(self) -> None:
        """Stop watching and starting; agents go on, and the next control plane finds them."""
        ...
