"""The gate: asks each hook in turn about an attempt that passed own checks, and alone issues an `Admitted` (R1.3).

What it holds true: one question for each hook and ask, each with a `uid` of its own; each later hook sees the earlier
ones' changes, and the first that does not admit ends the asking (R8.2); a broken hook holds the attempt, unless
`fail_open` (R7). What it leaves to others: timeouts, threads and sockets are the callers'; when a held attempt is
asked again, and which one probes a hook whose breaker is half-open, is the asker's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from dexaflow.admission.breaker import (
    Breaker,
    BreakerState,
    End,
    Ticket,
    breaker_state,
    is_open,
    probe_due,
    retry_at,
    settle,
    take_ticket,
)
from dexaflow.admission.changes import AllowLists, Merges, NotAllowed, are_many
from dexaflow.admission.decisions import NO_CHANGES, Admit, Decision, Hold, Refuse, Request
from dexaflow.admission.hook_errors import described
from dexaflow.admission.ports import HookCaller, NotPut, Observer, Paced
from dexaflow.admission.results import _SEAL, Admitted, Held, Outcome, Refused, Review, Verdict
from dexaflow.base.clock import Clock
from dexaflow.base.errors import HookBroken
from dexaflow.base.in_steps import Turns
from dexaflow.base.steps import Step, reached
from dexaflow.base.text import clean_reason
from dexaflow.kube.names import is_reserved
from dexaflow.model.execution import Execution
from dexaflow.policy.checked import Checked, Setting

__all__ = ["Gate", "HookStatus", "anyone"]

_DECISIONS: Final = frozenset({Admit, Hold, Refuse})
_NOT_ASKED: Final = "not asked, since it failed several times in a row; it is tried again soon"


def anyone(hook: str) -> bool:
    """Let whoever comes first probe a hook whose breaker is half-open; for programs that hold no queue of attempts."""
    return True


@dataclass(frozen=True, slots=True)
class HookStatus:
    """One hook and its breaker, for operators. Never shown to a task's author: `last_cause` may hold an address."""

    name: str
    state: BreakerState
    failures: int  # in a row
    retry_in: float | None  # seconds until a probe may be put; 0.0: now; None: closed
    last_cause: str  # of the latest failure, also after the hook has recovered; "": none since the start
    failed_ago: float | None  # seconds since that failure; None: none since the start


@final
class Gate:
    """Asks the hooks, in order (R8.2).

    Not for several threads: all reviews run on one event loop, and what they share changes only between awaits.
    """

    def __init__(
        self,
        hooks: Sequence[HookCaller],
        *,
        policy: AllowLists | Callable[[], AllowLists],
        fail_open: bool,
        clock: Clock,
        new_uid: Callable[[], str],
        new_incident: Callable[[], str],
        observer: Observer,
    ) -> None:
        """Build a gate whose breakers are closed.

        Args:
            hooks: In the order in which they are asked; none admits everything (R1.5).
            policy: What hooks may change, or what returns it at the moment a change is judged.
            fail_open: Admit unchanged while a hook is broken (R7.3).
            new_uid: Draws the id of one question, new each time.
            new_incident: Draws the id under which the log has the cause of one failure (R7.2).

        Raises:
            ValueError: a hook has no name, or two have the same (R8.1).
        """
        self._hooks = [_Hook(caller, clock, observer) for caller in hooks]
        self._by_name = {hook.name: hook for hook in self._hooks}
        if "" in self._by_name or len(self._by_name) < len(self._hooks):
            raise ValueError("every hook needs a name of its own; set its `name` attribute")
        self._policy: Callable[[], AllowLists] = policy if callable(policy) else lambda: policy
        self._fail_open = fail_open
        self._clock = clock
        self._new_uid = new_uid
        self._new_incident = new_incident
        self._observer = observer
        self._many_changes = Turns()  # made one answer's at a time, in steps: no other attempt waits for them

    async def review(self, checked: Checked, *, may_probe: Callable[[str], bool] = anyone) -> Verdict:
        """Ask every hook about this attempt, and return what comes of it.

        Args:
            may_probe: Called with a hook's name when its breaker is half-open and nobody probes it; True makes this
                attempt the probe. False holds it like an open breaker does.

        Raises:
            asyncio.CancelledError: the asker was cancelled; that is neither success nor failure of the hook.
        """
        walk = _Walk(checked)
        for hook in self._hooks:
            ended = await self._ask(hook, walk, may_probe)
            if ended is not None:
                return ended
        return Admitted(
            checked,
            walk.execution,
            walk.settings,
            tuple(walk.reviews),
            self._clock.monotonic(),
            # Compared as a whole: what a later hook changed back leaves the pod as it was (R5.4).
            dedicated=checked.own_placement or walk.execution != checked.execution,
            seal=_SEAL,
        )

    def status(self) -> tuple[HookStatus, ...]:
        """Return each hook's state now, in the order in which they are asked."""
        now = self._clock.monotonic()
        return tuple(hook.status(now) for hook in self._hooks)

    def next_probe(self, hook: str) -> float | None:
        """Return the moment, on the clock's `monotonic()`, from which the hook may be probed; None: breaker closed.

        Raises:
            KeyError: there is no hook of that name.
        """
        return retry_at(self._by_name[hook].breaker)

    async def _ask(self, hook: "_Hook", walk: "_Walk", may_probe: Callable[[str], bool]) -> Held | Refused | None:
        """Ask one hook. None: go on to the next one."""
        ticket = hook.take_ticket(may_probe)
        if ticket is None:
            return self._not_asked(hook, walk)
        end = End.CANCELLED  # until the question has ended in some other way
        broken: HookBroken | None = None
        try:
            request = walk.request(self._new_uid())
            started = self._clock.monotonic()
            try:
                decision, seconds, again = await hook.caller.ask(request)
                reached(Step.ANSWERED)
                if type(decision) not in _DECISIONS:
                    raise TypeError(f"its caller returned {type(decision).__name__}, which is no decision")
                end = End.ANSWERED
            except NotPut:
                return self._not_asked(hook, walk)  # the breaker opened while it waited for its turn
            except HookBroken as error:
                broken, end = error, End.FAILED
            except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is a hook without a decision
                broken, end = HookBroken(described(error), timed_out=isinstance(error, TimeoutError)), End.FAILED
        finally:  # the ticket was taken above, so it is given back whatever happens
            hook.settle(ticket, end, broken)
        if broken is not None:
            took = self._clock.monotonic() - started if broken.seconds is None else broken.seconds
            return self._broken(hook, walk, request, broken, took)
        return await self._decided(hook, walk, request, decision, seconds, again=again)

    async def _decided(
        self, hook: "_Hook", walk: "_Walk", request: Request, decision: Decision, seconds: float, *, again: bool
    ) -> Held | Refused | None:
        changes, reason = NO_CHANGES, ""
        match decision:
            case Admit(changes=changes):
                outcome = Outcome.ADMIT
                if changes:
                    allowed = self._policy()
                    if not again and are_many(changes):
                        work = hook.merges.applying(changes, walk.execution, walk.settings, allowed)
                        result = await self._many_changes.do(work)
                    else:
                        apply = hook.merges.apply if again else hook.merges.apply_once
                        result = apply(changes, walk.execution, walk.settings, allowed)
                    if isinstance(result, NotAllowed):
                        outcome = Outcome.CHANGE_REFUSED
                        reason = clean_reason(f"admission hook {hook.name} may not make this change: {result.problem}")
                    elif result.changed:
                        walk.execution, walk.settings = result.execution, result.settings
            case Hold(reason=said):
                outcome, reason = Outcome.HOLD, clean_reason(said)
            case Refuse(reason=said):
                outcome, reason = Outcome.REFUSE, clean_reason(said)
        walk.reviews.append(Review(hook.name, outcome, request.uid, reason, changes, seconds))
        self._observer.reviewed(walk.attempt, hook.name, outcome, seconds)
        if outcome is Outcome.ADMIT:
            return None
        if outcome is Outcome.HOLD:
            return walk.held(hook.name, reason)
        return walk.refused(hook.name, reason)

    def _broken(
        self, hook: "_Hook", walk: "_Walk", request: Request, broken: HookBroken, seconds: float
    ) -> Held | None:
        bypassed = self._fail_open and not broken.ambiguous
        outcome = Outcome.FAIL_OPEN if bypassed else Outcome.ERROR
        incident = self._new_incident()
        # Spelt out here, not `str(broken)`: nothing that a caller puts into its error can reach the author (R7.2).
        said = "the request timed out" if broken.timed_out else "the request failed"
        walk.reviews.append(Review(hook.name, outcome, request.uid, said, NO_CHANGES, seconds, incident))
        self._observer.hook_failed(request, hook.name, incident, broken.cause, bypassed=bypassed)
        self._observer.reviewed(walk.attempt, hook.name, outcome, seconds)
        if bypassed:
            return None
        return walk.held(hook.name, f"admission hook {hook.name}: {said} (incident {incident})", broken=True)

    def _not_asked(self, hook: "_Hook", walk: "_Walk") -> Held | None:
        bypassed = self._fail_open and not hook.may_have_refused
        outcome = Outcome.FAIL_OPEN if bypassed else Outcome.BREAKER_OPEN
        incident = self._new_incident() if bypassed else ""
        walk.reviews.append(
            Review(hook.name, outcome, "", _NOT_ASKED, NO_CHANGES, seconds=0.0, incident=incident, asked=False)
        )
        if bypassed:
            self._observer.hook_failed(walk.request(""), hook.name, incident, "its breaker is open", bypassed=True)
        self._observer.reviewed(walk.attempt, hook.name, outcome, None)
        if bypassed:
            return None
        return walk.held(hook.name, f"admission hook {hook.name}: {_NOT_ASKED}", broken=True, asked=False)


class _Hook:
    """One hook and what the gate remembers of it."""

    __slots__ = (
        "_clock", "_observer", "breaker", "caller", "failed_at", "last_cause", "may_have_refused", "merges", "name",
    )  # fmt: skip

    def __init__(self, caller: HookCaller, clock: Clock, observer: Observer) -> None:
        self.caller = caller
        self.name = caller.name
        self.merges = Merges(f"hook:{caller.name}")
        self.breaker = Breaker()
        self.last_cause = ""
        self.failed_at: float | None = None
        # Of the failures in a row one was an answer that may be a refusal (R4.2). Those are held even with
        # `fail_open`; were they let by as soon as enough of them have opened the breaker, that would be worth little.
        self.may_have_refused = False
        self._clock = clock
        self._observer = observer

    def take_ticket(self, may_probe: Callable[[str], bool]) -> Ticket | None:
        """Take the right to put one question; None when nothing may be asked now."""
        now = self._clock.monotonic()
        # The asker is consulted only when there is a probe to give, so that it may count the asking as the giving.
        if is_open(self.breaker) and not (probe_due(self.breaker, now) and may_probe(self.name)):
            return None
        self.breaker, ticket = take_ticket(self.breaker, now)
        return ticket

    def settle(self, ticket: Ticket, end: End, broken: HookBroken | None) -> None:
        """Give the ticket back, and tell when that opened or closed the breaker."""
        before = self.breaker
        self.breaker = settle(before, ticket, end, self._clock.monotonic())
        if broken is not None:
            self.last_cause = broken.cause
            self.failed_at = self._clock.monotonic()
            self.may_have_refused |= broken.ambiguous
        elif not self.breaker.failures:
            self.may_have_refused = False
        if is_open(self.breaker) is not is_open(before):
            if is_open(self.breaker) and isinstance(self.caller, Paced):
                self.caller.withdraw()  # nothing is asked from now on (R7.4), whoever took a ticket before
            self._observer.breaker_changed(self.name, is_open=is_open(self.breaker))

    def status(self, now: float) -> HookStatus:
        due = retry_at(self.breaker)
        return HookStatus(
            name=self.name,
            state=breaker_state(self.breaker, now),
            failures=self.breaker.failures,
            retry_in=None if due is None else max(0.0, due - now),
            last_cause=self.last_cause,
            failed_ago=None if self.failed_at is None else now - self.failed_at,
        )


class _Walk:
    """One attempt on its way through the hooks: what it would get so far, who set it, and what was said."""

    __slots__ = ("_checked", "attempt", "execution", "reviews", "settings")

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self.attempt = checked.attempt
        self.execution: Execution = checked.execution
        self.settings: tuple[Setting, ...] = checked.settings
        self.reviews: list[Review] = []

    def request(self, uid: str) -> Request:
        """Return the question as it stands, with the changes of the hooks asked before (R8.2)."""
        checked, attempt = self._checked, self.attempt
        return Request(
            uid=uid,
            tenant_id=attempt.tenant_id,
            dag_id=attempt.dag_id,
            run_id=attempt.run_id,
            task_id=attempt.task_id,
            try_number=attempt.try_number,
            operator=attempt.task.operator,
            image=checked.image,
            source_mode=_in_source_mode(checked),
            resources=checked.resources,
            execution=_without_own_keys(self.execution),
            service_account_chosen=checked.service_account_chosen,
        )

    def held(self, hook: str, reason: str, *, broken: bool = False, asked: bool = True) -> Held:
        return Held(
            self.attempt,
            hook,
            reason,
            tuple(self.reviews),
            broken=broken,
            asked=asked,
            settings=self.settings,
            execution=self.execution,
        )

    def refused(self, hook: str, reason: str) -> Refused:
        return Refused(
            self.attempt, hook, reason, tuple(self.reviews), settings=self.settings, execution=self.execution
        )


def _in_source_mode(checked: Checked) -> bool:
    """The spec's `source_mode`: the task's code is the DAG's source, which we carry, and not in an image."""
    return checked.attempt.task.operator == "python" and not checked.image


def _without_own_keys(execution: Execution) -> Execution:
    """Return what a hook is shown: without the labels and annotations that are the control plane's own (R3.2)."""
    labels, annotations = execution.labels, execution.annotations
    for key in (*labels, *annotations):
        if is_reserved(key):
            break
    else:
        return execution
    return replace(
        execution,
        labels={key: value for key, value in labels.items() if not is_reserved(key)},
        annotations={key: value for key, value in annotations.items() if not is_reserved(key)},
    )
