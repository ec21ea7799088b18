"""What happened at the edges of the control plane, noted where it happened and not as the product tells it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dexaflow.admission import Admit, Hold, Refuse, Request

__all__ = ["Broken", "Issued", "Process", "Question", "Record", "Spoken", "Start", "Try", "key_of", "shown_try"]

Try = tuple[str, str, int]  # run, task, try number: one try, as hooks and people know it


@dataclass(frozen=True, slots=True)
class Broken:
    """No decision. `how` says in which way; `ambiguous`: it may have been a refusal."""

    how: str
    ambiguous: bool = False


Answer = Admit | Hold | Refuse | Broken


@dataclass(slots=True, eq=False)
class Question:
    """One question put to one hook, and how it ended for whoever asked."""

    number: int
    at: float
    plane: int
    hook: str
    request: Request
    put_at: float = 0.0  # once it had waited for its connection
    answered: int = 0  # the number of its end; 0: it has none (yet)
    answered_at: float = 0.0
    answer: Answer | None = None  # None: not yet, or whoever asked died first

    @property
    def tried(self) -> Try:
        return key_of(self.request)


@dataclass(frozen=True, slots=True)
class Start:
    """An executor was told to start a launch; a token had been minted for it."""

    number: int
    at: float
    plane: int
    attempt_id: str
    launch_id: str
    tried: Try
    tenant_id: str


@dataclass(slots=True, eq=False)
class Process:
    """One agent and what it runs."""

    launch_id: str
    attempt_id: str
    tried: Try
    forked_at: float
    begun_at: float | None = None  # the user's code
    ended_at: float | None = None
    turned_away: bool = False


@dataclass(frozen=True, slots=True)
class Issued:
    """A token that was given out."""

    secret: str
    attempt_id: str
    launch_id: str
    up_at: float  # for how long control planes had been up by then
    planes: int  # how many of them had begun


@dataclass(slots=True, eq=False)
class Spoken:
    """One request at the doors for agents, by whomever."""

    plane: int
    door: str
    issued: Issued | None  # the token that was shown; None: one that nobody gave out
    launch_id: str  # what it spoke of
    counted: bool  # whether that launch counted at some moment meanwhile
    always: bool  # or all the while
    status: int | None = None  # of the answer; None: there was none


def key_of(request: Request) -> Try:
    return request.run_id, request.task_id, request.try_number


def shown_try(tried: Try) -> str:
    return f"{tried[0]}.{tried[1]}#{tried[2]}"


@dataclass
class Record:
    """All of it, in order; `number` counts what happened, so that what comes first in one moment is known."""

    now: Callable[[], float]
    began: float
    number: int = 0
    questions: list[Question] = field(default_factory=list)
    by_try: dict[Try, list[Question]] = field(default_factory=dict)
    minted: dict[str, Start] = field(default_factory=dict)  # by launch
    issued: dict[str, Issued] = field(default_factory=dict)  # by secret
    starts: list[Start] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _lines: list[tuple[float, str, tuple[Any, ...]]] = field(default_factory=list)

    def next(self) -> int:
        self.number += 1
        return self.number

    def say(self, text: str, *values: Any) -> None:
        """Add a line to the trace."""
        self._lines.append((self.now(), text, values))

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def trace(self) -> list[str]:
        """Return the whole story, a line for each thing that happened."""
        return [f"{at - self.began:9.3f}  {text.format(*values)}" for at, text, values in self._lines]

    def asked(self, plane: int, hook: str, request: Request) -> Question:
        question = Question(self.next(), self.now(), plane, hook, request, self.now())
        self.questions.append(question)
        self.by_try.setdefault(question.tried, []).append(question)
        self.count("questions")
        self.say("plane {} asks {} about {}", plane, hook, shown_try(question.tried))
        return question
