"""What would the gate make of this answer? The core of ``dexaflow admission check-answer``."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from dexaflow.admission.changes import NotAllowed, apply_changes
from dexaflow.admission.decisions import NO_CHANGES, Admit, Changes, Hold, Refuse
from dexaflow.admission.envelope import AnswerError, read_answer
from dexaflow.base.text import clean_reason
from dexaflow.model.execution import Execution
from dexaflow.policy.policy import Policy

__all__ = ["AnswerCheck", "AnswerVerdict", "check_answer"]


class AnswerVerdict(StrEnum):
    """What becomes of an attempt whose hook answers so."""

    ADMIT = "admit"
    HOLD = "hold"
    REFUSE = "refuse"
    BROKEN = "broken"  # no decision: held, or admitted with `fail_open`
    CHANGE_REFUSED = "change_refused"  # the answer is fine, but a change in it may not be made


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """The verdict on one answer.

    `reason` is the hook's, as it would be kept (R4.4). `changes` are those asked for, also when they may not be made.
    `problem` says what is wrong, in one line; "" when nothing is.
    """

    verdict: AnswerVerdict
    reason: str = ""
    changes: Changes = NO_CHANGES
    problem: str = ""


def check_answer(
    body: bytes,
    *,
    uid: str | None = None,
    priority_classes: Collection[str] | None = None,
    service_accounts: Collection[str] | None = None,
) -> AnswerCheck:
    """Judge the body of an answer that came with status 200.

    Changes are judged against a task that sets nothing of its own, so the total size of annotations is the hook's own.

    Args:
        uid: The request's. None takes the answer's own as right; an answer without one is broken all the same.
        priority_classes: `execution_allowlist.priority_classes`; None when unset.
        service_accounts: `execution_allowlist.service_accounts`; None when unset.
    """
    try:
        decision = read_answer(body, uid)
    except AnswerError as error:
        return AnswerCheck(AnswerVerdict.BROKEN, problem=str(error))
    match decision:
        case Hold(reason=reason):
            return AnswerCheck(AnswerVerdict.HOLD, reason=clean_reason(reason))
        case Refuse(reason=reason):
            return AnswerCheck(AnswerVerdict.REFUSE, reason=clean_reason(reason))
        case Admit(changes=changes):
            allowed = Policy(priority_classes=_set_of(priority_classes), service_accounts=_set_of(service_accounts))
            applied = apply_changes(changes, Execution(), (), by="hook:", allowed=allowed)
            if isinstance(applied, NotAllowed):
                return AnswerCheck(AnswerVerdict.CHANGE_REFUSED, changes=changes, problem=applied.problem)
            return AnswerCheck(AnswerVerdict.ADMIT, changes=changes)


def _set_of(names: Collection[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)
