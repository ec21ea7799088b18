"""What the gate returns, and the record of what was asked on the way."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, final

from dexaflow.admission.decisions import Changes
from dexaflow.model.attempt import Attempt
from dexaflow.model.execution import Execution
from dexaflow.policy.checked import Checked, Setting

__all__ = ["Admitted", "Held", "Outcome", "Refused", "Review", "Verdict"]

_SEAL = object()  # known to gate.py alone, by convention and by an import-linter-like test


class Outcome(StrEnum):
    """How one hook's part of one ask ended (R9.1): exactly one for each hook and ask."""

    ADMIT = "admit"
    HOLD = "hold"
    REFUSE = "refuse"
    CHANGE_REFUSED = "change_refused"  # the answer is fine, but a change in it may not be made
    ERROR = "error"  # asked, failed, held
    BREAKER_OPEN = "breaker_open"  # not asked, held
    FAIL_OPEN = "fail_open"  # broken or not asked, admitted unchanged


class Review(NamedTuple):
    """One hook's part of one ask, as kept and shown (R9.2)."""

    hook: str
    outcome: Outcome
    uid: str  # "" when not asked
    reason: str  # cleaned (R4.4); for ERROR what the author may see (R7.2)
    changes: Changes
    seconds: float  # from question to answer, without waiting for a connection
    incident: str = ""  # the id under which the server log has the cause
    asked: bool = True  # a question was put to the hook


@final
class Admitted:
    """Proof that every hook let this attempt through; issued by `Gate.review` alone (R1.3).

    `admitted_at` is on the gate's monotonic clock; the proof is good for `GOOD_FOR_SECONDS` (R1.6).
    """

    __slots__ = ("admitted_at", "checked", "dedicated", "execution", "reviews", "settings")

    GOOD_FOR_SECONDS = 60.0

    def __init__(
        self,
        checked: Checked,
        execution: Execution,
        settings: tuple[Setting, ...],
        reviews: tuple[Review, ...],
        admitted_at: float,
        *,
        dedicated: bool,
        seal: object,
    ) -> None:
        if seal is not _SEAL:
            raise TypeError("an Admitted is issued by Gate.review(), never built")
        self.checked = checked
        self.execution = execution
        self.settings = settings
        self.reviews = reviews
        self.admitted_at = admitted_at
        self.dedicated = dedicated  # R5.4: a pod of its own, never a warm worker

    @property
    def attempt(self) -> Attempt:
        return self.checked.attempt

    def good_at(self, now: float) -> bool:
        """Whether this may still be used at monotonic time `now` (R1.6)."""
        return now - self.admitted_at < self.GOOD_FOR_SECONDS


@dataclass(frozen=True, slots=True)
class Held:
    """The attempt waits (R6). `broken`: the hook did not decide (R7.2), or its breaker is open."""

    attempt: Attempt
    hook: str
    reason: str
    reviews: tuple[Review, ...]
    broken: bool = False
    asked: bool = True  # False: its breaker was open, no question was put
    settings: tuple[Setting, ...] = field(default_factory=tuple)
    execution: Execution | None = None  # what it would get so far, with the changes of the hooks that admitted it


@dataclass(frozen=True, slots=True)
class Refused:
    """The attempt fails, unretried (R1.4)."""

    attempt: Attempt
    hook: str
    reason: str
    reviews: tuple[Review, ...]
    settings: tuple[Setting, ...] = field(default_factory=tuple)
    execution: Execution | None = None  # what it would get so far, with the changes of the hooks that admitted it


Verdict = Admitted | Held | Refused
