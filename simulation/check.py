"""What a check is: one promise, told of everything that happens at the edges and of every committed transaction."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dexaflow.executors.ports import Launch
from simulation.reading import Seen
from simulation.record import Issued, Process, Question, Spoken, Start

if TYPE_CHECKING:
    from simulation.checks import Checks

__all__ = ["EPSILON", "Check", "Violation", "Walk"]

EPSILON = 1e-3


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: which one, and how it showed."""

    check: str
    promise: str
    how: str


@dataclass(slots=True)
class Walk:
    """One attempt's way through the hooks, as seen from outside: which was asked, and which was passed by."""

    began: float
    questions: dict[str, Question] = field(default_factory=dict)
    bypassed: set[str] = field(default_factory=set)


class Check:
    """One promise; its docstring is the sentence. Overrides what it wants to be told of."""

    def __init__(self, all_: "Checks") -> None:
        self.all = all_

    def fail(self, how: str) -> None:
        promise = " ".join((self.__doc__ or "").split())
        self.all.violations.append(Violation(type(self).__name__, promise, how))

    def asked(self, question: Question) -> None: ...
    def answered(self, question: Question) -> None: ...
    def passed_by(self, plane: int, hook: str, what: str, *, bypassed: bool) -> None: ...
    def minted(self, start: Start, walk: Walk | None) -> None: ...
    def started(self, start: Start, launch: Launch) -> None: ...
    def begun(self, process: Process) -> None: ...
    def seen(self, before: Seen, after: Seen) -> None: ...
    def issued(self, issued: Issued) -> None: ...
    def spoke(self, spoken: Spoken) -> None: ...
    def passed(self, seconds: float) -> None: ...
    def ended(self, seen: Seen) -> None: ...
