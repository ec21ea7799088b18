"""Classic mistakes, each put into the product in memory: the simulation has to see every one of them.

A mutation patches what it spoils for as long as its `with` lasts, and says in which worlds it can show.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from simulation.drawing import Drawn

from dexaflow.admission import breaker, changes, gate
from dexaflow.admission.changes import Applied, apply_changes
from dexaflow.admission.gate import Gate
from dexaflow.admission.results import _SEAL, Admitted, Outcome, Review, Verdict
from dexaflow.dispatch import dispatcher, waiting
from dexaflow.dispatch import line as line_module
from dexaflow.dispatch.dispatcher import Dispatcher
from dexaflow.dispatch.line import Line
from dexaflow.model.attempt import Attempt
from dexaflow.model.states import State
from dexaflow.policy.checked import Checked
from dexaflow.reports.watch import Watch
from dexaflow.store import admitting, bridge, leading, reporting, slots
from dexaflow.store.slots import Slots
from dexaflow.store.transaction import Tx, from_iso
from dexaflow.tokens import verify
from dexaflow.tokens.lifetime import LIFETIME_SECONDS
from dexaflow.tokens.mint import Minter
from dexaflow.tokens.token import AgentToken, Claims
from dexaflow.tokens.verify import Verifier
from simulation import plane

__all__ = ["MUTATIONS", "Mutation"]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake: how to make it, which check has to see it, and in which worlds it can show at all."""

    name: str
    make: Callable[[], AbstractContextManager[Any]]
    seen_by: tuple[str, ...]
    worlds: Callable[[Drawn], bool] = lambda drawn: bool(drawn.hooks)


MUTATIONS: list[Mutation] = []


def _is_long(drawn: Drawn) -> bool:
    return bool(drawn.hooks) and drawn.busy > 900.0


def _refuses(drawn: Drawn) -> bool:
    return any(hook.refuses > 0.1 for hook in drawn.hooks)


def _breaks(drawn: Drawn) -> bool:
    return any(weather.broken > 0.4 for hook in drawn.hooks for weather in hook.weather)


def _befalls(*what: str) -> Callable[[Drawn], bool]:
    return lambda drawn: bool(drawn.hooks) and any(event.what in what for event in drawn.events)


def _restarts(drawn: Drawn) -> bool:
    return _befalls("crash", "crash soon")(drawn)


def mutation(
    *seen_by: str, worlds: Callable[[Drawn], bool] = lambda drawn: bool(drawn.hooks)
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    def keep(make: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        MUTATIONS.append(Mutation(make.__name__, contextmanager(make), seen_by, worlds))
        return make

    return keep


@mutation("NothingUnchecked")
def the_retry_that_does_not_ask() -> Iterator[None]:
    review = Gate.review

    async def mistaken(self: Gate, checked: Checked, **how: Any) -> Verdict:
        hooks = self._hooks
        if checked.attempt.try_number > 1:
            self._hooks = []
        try:
            return await review(self, checked, **how)
        finally:
            self._hooks = hooks

    with patch.object(Gate, "review", mistaken):
        yield


@mutation("NothingUnchecked")
def the_decision_reused_for_the_next_try() -> Iterator[None]:
    review = Gate.review
    known: dict[tuple[str, str], Admitted] = {}

    async def mistaken(self: Gate, checked: Checked, **how: Any) -> Verdict:
        key = checked.attempt.run_id, checked.attempt.task_id
        old = known.get(key)
        if old is not None:
            return Admitted(
                checked, old.execution, old.settings, (), self._clock.monotonic(),
                dedicated=old.dedicated, seal=_SEAL,
            )  # fmt: skip
        verdict = await review(self, checked, **how)
        if isinstance(verdict, Admitted):
            known[key] = verdict
        return verdict

    with patch.object(Gate, "review", mistaken):
        yield


@mutation("NothingLost", "SlotsAreExact", "NothingUnchecked", "RefusedNeverRan", worlds=_refuses)
def the_slot_kept_on_refuse() -> Iterator[None]:
    def mistaken(tx: Tx, refused: Any, placement: str | None) -> bool:
        admitting.record(tx, refused.attempt, refused.reviews)
        return True

    with patch.object(line_module, "refuse", mistaken):
        yield


@mutation("RefusedNeverRan", worlds=_refuses)
def the_refused_attempt_that_is_retried() -> Iterator[None]:
    def mistaken(tx: Tx, refused: Any, placement: str | None) -> bool:
        moved = admitting.refuse(tx, refused, placement)
        tx.run(
            "UPDATE task_instances SET state = 'up_for_retry', retry_due = :up WHERE attempt_id = :a"
            " AND state = 'failed' AND try_number < max_tries",
            a=refused.attempt.id, up=tx.up + 1.0,
        )  # fmt: skip
        return moved

    with patch.object(line_module, "refuse", mistaken):
        yield


@mutation("NothingLost", "BreakerKeepsQuiet", "HeldIsAskedAgain", worlds=_breaks)
def the_lost_probe() -> Iterator[None]:
    def mistaken(before: breaker.Breaker, ticket: breaker.Ticket, end: breaker.End, now: float) -> breaker.Breaker:
        return before if ticket.probe else breaker.settle(before, ticket, end, now)

    with patch.object(gate, "settle", mistaken), patch.object(breaker, "PROBE_LOST_SECONDS", 1e9):
        yield


@mutation("BreakerKeepsQuiet", worlds=_breaks)
def everybody_probes_at_once() -> Iterator[None]:
    def mistaken(before: breaker.Breaker, now: float) -> bool:
        return before.opened_at is not None and now >= before.opened_at + breaker.OPEN_SECONDS

    with (
        patch.object(breaker, "probe_due", mistaken),
        patch.object(gate, "probe_due", mistaken),
        patch.object(Dispatcher, "_others_wait", lambda *_: False),
    ):
        yield


@mutation("BreakerKeepsQuiet", worlds=_breaks)
def the_breaker_that_opens_too_late() -> Iterator[None]:
    with patch.object(breaker, "FAILURES_TO_OPEN", 8):
        yield


@mutation("BreakerKeepsQuiet", worlds=_breaks)
def the_breaker_that_opens_for_too_short() -> Iterator[None]:
    with patch.object(breaker, "OPEN_SECONDS", 20.0):
        yield


@mutation("NothingUnchecked")
def the_late_answer_that_revives() -> Iterator[None]:
    def mistaken(tx: Tx, admitted: Admitted, *, launch_id: str, placement: str, parallelism: int) -> Any:
        written = admitting.launch(tx, admitted, launch_id=launch_id, placement=placement, parallelism=parallelism)
        if written is None:
            tx.run(
                "UPDATE task_instances SET state = 'launching', launch_id = :l, launched_at = :now"
                " WHERE attempt_id = :a",
                l=launch_id, now=tx.now_iso, a=admitted.attempt.id,
            )  # fmt: skip
            return admitting.Launching(launch_id)
        return written

    with patch.object(line_module, "launch", mistaken):
        yield


@mutation("NothingUnchecked", worlds=lambda drawn: drawn.slow_store > 0.1 and _befalls("cancel")(drawn))
def the_cancel_that_is_overtaken_by_a_launch() -> Iterator[None]:
    started = reporting.started

    def mistaken(tx: Tx, attempt_id: str, launch_id: str, host: str, pid: int) -> Any:
        tx.run(
            "UPDATE task_instances SET state = 'launching' WHERE attempt_id = :a AND launch_id = :l"
            " AND state = 'skipped'",
            a=attempt_id, l=launch_id,
        )  # fmt: skip
        return started(tx, attempt_id, launch_id, host, pid)

    with patch.object(reporting, "started", mistaken):
        yield


@mutation("NothingTwice", "NothingUnchecked", worlds=_restarts)
def the_running_attempt_that_is_launched_again_after_a_restart() -> Iterator[None]:
    recover = leading.recover

    def mistaken(tx: Tx) -> leading.Found:
        tx.run(
            "UPDATE task_instances SET state = 'scheduled', launch_id = NULL, stop = NULL"
            " WHERE state IN ('running', 'launching')"
        )
        return recover(tx)

    with patch.object(leading, "recover", mistaken):
        yield


@mutation("NothingTwice")
def the_launch_started_twice() -> Iterator[None]:
    launch = Line._launch

    async def mistaken(self: Line, admitted: Admitted) -> Any:
        start = self._executor.start

        async def twice(what: Any) -> None:
            await start(what)
            await start(what)

        with patch.object(self._executor, "start", twice):
            return await launch(self, admitted)

    with patch.object(Line, "_launch", mistaken):
        yield


@mutation("HeldIsAskedAgain", "NothingLost", "BrokenWaitingEnds", worlds=_restarts)
def the_held_attempt_forgotten_after_a_restart() -> Iterator[None]:
    recover = leading.recover

    def mistaken(tx: Tx) -> leading.Found:
        found = recover(tx)
        tx.run("UPDATE task_instances SET next_ask_due = 1e12 WHERE state = 'held'")
        return found

    with patch.object(leading, "recover", mistaken), patch.object(Dispatcher, "_probe", _no_probe):
        yield


async def _no_probe(self: Dispatcher, group: Any) -> float:
    return 1.0


@mutation("NothingLost", "SlotsAreExact", worlds=_restarts)
def the_queued_attempt_forgotten_after_a_restart() -> Iterator[None]:
    recover = leading.recover

    def mistaken(tx: Tx) -> leading.Found:
        queued = [r.attempt_id for r in tx.all("SELECT attempt_id FROM task_instances WHERE state = 'queued'")]
        found = recover(tx)
        for attempt_id in queued:
            tx.run("UPDATE task_instances SET state = 'queued' WHERE attempt_id = :a", a=attempt_id)
        return found

    with patch.object(leading, "recover", mistaken):
        yield


@mutation("NothingUnchecked", worlds=lambda drawn: bool(drawn.hooks) and drawn.fail_open)
def fail_open_that_is_not_recorded() -> Iterator[None]:
    with patch.object(admitting, "record", _recording(lambda review: review.outcome is not Outcome.FAIL_OPEN)):
        yield


@mutation("ReviewsAreWhole")
def the_recheck_that_is_not_recorded() -> Iterator[None]:
    record = admitting.record

    def mistaken(tx: Tx, attempt: Attempt, reviews: Any) -> None:
        if not tx.all("SELECT 1 FROM task_instances WHERE attempt_id = :a AND state = 'held'", a=attempt.id):
            record(tx, attempt, reviews)

    with patch.object(admitting, "record", mistaken):
        yield


def _recording(kept: Callable[[Review], bool]) -> Callable[[Tx, Attempt, Any], None]:
    record = admitting.record

    def mistaken(tx: Tx, attempt: Attempt, reviews: Any) -> None:
        record(tx, attempt, [review for review in reviews if kept(review)])

    return mistaken


@mutation("ReviewsAreWhole")
def the_review_counted_twice() -> Iterator[None]:
    record = admitting.record

    def mistaken(tx: Tx, attempt: Attempt, reviews: Any) -> None:
        record(tx, attempt, reviews)
        record(tx, attempt, reviews[:1])

    with patch.object(admitting, "record", mistaken):
        yield


def _changes_anything(drawn: Drawn) -> bool:
    return any(hook.changes for hook in drawn.hooks)


@mutation("NothingElseChanged", worlds=_changes_anything)
def the_change_that_is_dropped() -> Iterator[None]:
    def mistaken(asked: Any, execution: Any, settings: Any, **how: Any) -> Any:
        applied = apply_changes(asked, execution, settings, **how)
        if isinstance(applied, Applied):
            return applied._replace(execution=replace(applied.execution, node_selector=execution.node_selector))
        return applied

    with patch.object(changes, "apply_changes", mistaken):
        yield


@mutation("NothingElseChanged", worlds=_changes_anything)
def the_change_that_nobody_asked_for() -> Iterator[None]:
    def mistaken(asked: Any, execution: Any, settings: Any, **how: Any) -> Any:
        applied = apply_changes(asked, execution, settings, **how)
        if isinstance(applied, Applied) and applied.changed:
            labels = {**applied.execution.labels, "changed-by": how["by"].replace(":", "-")}
            return applied._replace(execution=replace(applied.execution, labels=labels))
        return applied

    with patch.object(changes, "apply_changes", mistaken):
        yield


@mutation("NothingElseChanged", worlds=_changes_anything)
def the_page_that_shows_what_the_author_wrote() -> Iterator[None]:
    placement = admitting.placement_document

    def mistaken(image: str, resources: Any, execution: Any, settings: Any, *, dedicated: bool) -> str:
        own = replace(execution, labels={k: v for k, v in execution.labels.items() if k == "team"})
        return placement(image, resources, own, settings, dedicated=dedicated)

    with patch.object(line_module, "placement_document", mistaken):
        yield


@mutation("BrokenWaitingEnds", worlds=lambda drawn: _is_long(drawn) and drawn.hooks[0].holds > 0)
def fifteen_minutes_counted_from_the_hold() -> Iterator[None]:
    """Not from when the hook began to be broken."""

    def mistaken(tx: Tx, attempt_id: str) -> float:
        row = tx.one("SELECT held_at FROM task_instances WHERE attempt_id = :a AND state = 'held'", a=attempt_id)
        return 0.0 if row is None else (tx.now - from_iso(row.held_at)).total_seconds()

    with patch.object(admitting, "broken_wait", mistaken):
        yield


@mutation("BrokenWaitingEnds", worlds=_is_long)
def fifteen_minutes_that_begin_again_with_every_failure() -> Iterator[None]:
    with patch.object(admitting, "broken_wait", lambda tx, attempt_id: 0.0):
        yield


@mutation("BrokenWaitingEnds", worlds=_is_long)
def ten_minutes_for_fifteen() -> Iterator[None]:
    with patch.object(waiting, "BROKEN_LIMIT_SECONDS", 600.0):
        yield


@mutation("HeldIsAskedAgain", "NothingLost")
def the_recheck_that_backs_off() -> Iterator[None]:
    def mistaken(*, up: float, recheck: float, **how: Any) -> waiting.NextAsk:
        ask = waiting.next_ask(up=up, recheck=recheck, **how)
        return replace(ask, due=ask.due + recheck)

    with patch.object(dispatcher, "next_ask", mistaken):
        yield


@mutation("HeldIsAskedAgain")
def the_recheck_that_does_not_wait() -> Iterator[None]:
    def mistaken(*, up: float, recheck: float, **how: Any) -> waiting.NextAsk:
        ask = waiting.next_ask(up=up, recheck=recheck, **how)
        return replace(ask, due=up + 0.3)

    with patch.object(dispatcher, "next_ask", mistaken):
        yield


@mutation("SlotsAreExact")
def the_held_attempt_that_takes_no_slot() -> Iterator[None]:
    """It is admitted, and launched whether its pool has room or not."""
    with patch.object(admitting, "slots_taken", lambda tx: Slots(0, {})):
        yield


@mutation(
    "NothingUnchecked",
    worlds=lambda drawn: bool(drawn.hooks) and any(e.what == "stall" and e.seconds > 60 for e in drawn.events),
)
def the_admit_that_never_grows_old() -> Iterator[None]:
    with patch.object(Admitted, "good_at", lambda self, now: True):
        yield


@mutation("NothingUnchecked", worlds=lambda drawn: bool(drawn.hooks) and drawn.fail_open)
def fail_open_for_what_may_be_a_refusal() -> Iterator[None]:
    broken = Gate._broken

    def mistaken(self: Gate, hook: Any, walk: Any, request: Any, failure: Any, seconds: float) -> Any:
        failure.ambiguous = False
        return broken(self, hook, walk, request, failure, seconds)

    with patch.object(Gate, "_broken", mistaken):
        yield


@mutation(
    "NothingUnchecked", "NothingTwice", "SlotsAreExact", "NothingElseChanged", "BreakerKeepsQuiet", "ReviewsAreWhole",
    "HeldIsAskedAgain", "NothingLost", "TriesAreTheAuthors", "PeopleAreHeard",
    worlds=lambda drawn: any(e.what == "second plane" for e in drawn.events),
)  # fmt: skip
def the_term_that_nobody_asks_for() -> Iterator[None]:
    with patch.object(bridge, "require_term", lambda tx, term: None):
        yield


@mutation("NothingTwice", worlds=_befalls("clear"))
def the_try_that_is_failed_before_its_process_is_dead() -> Iterator[None]:
    end = Watch._end

    async def mistaken(self: Watch, launch_id: str, why: str | None) -> None:
        async def later(*_: Any, **__: Any) -> None:
            return None

        with patch.object(self._executor, "kill", later):
            await end(self, launch_id, why)

    with patch.object(Watch, "_end", mistaken):
        yield


@mutation("OneProbesInTurn", worlds=_breaks)
def the_same_one_that_probes_every_time() -> Iterator[None]:
    def mistaken(tx: Tx, hook: str, *, besides: frozenset[str]) -> Attempt | None:
        latest = tx.one(
            "SELECT attempt_id FROM task_instances WHERE state = 'held' AND hook = :h ORDER BY turn DESC LIMIT 1",
            h=hook,
        )  # fmt: skip
        return None if latest is None else admitting.attempt_if(tx, latest.attempt_id, State.HELD)

    with patch.object(admitting, "probe_candidate", mistaken):
        yield


@mutation("OneProbesInTurn", worlds=lambda drawn: _breaks(drawn) and drawn.busy >= 80.0 and drawn.slow_store > 0.1)
def the_fresh_attempt_that_takes_the_probe() -> Iterator[None]:
    with patch.object(Dispatcher, "_others_wait", lambda *_: False):
        yield


@mutation("OneProbesInTurn", worlds=_breaks)
def the_probe_that_waits_for_a_recheck() -> Iterator[None]:
    with patch.object(Dispatcher, "_probe", _no_probe):
        yield


@mutation("OneProbesInTurn", worlds=_breaks)
def the_turn_that_is_kept_by_whoever_has_had_it() -> Iterator[None]:
    hold = admitting.hold

    def mistaken(tx: Tx, held: Any, *, first_turn: bool, **how: Any) -> bool:
        return hold(tx, held, first_turn=True, **how)

    with patch.object(admitting, "hold", mistaken):
        yield


@mutation("TokensOpenTheirOwnDoor", worlds=lambda drawn: drawn.sleepers > 0)
def the_token_that_never_expires() -> Iterator[None]:
    with patch("dexaflow.tokens.mint.LIFETIME_SECONDS", 1e9):
        yield


@mutation("TokensOpenTheirOwnDoor", worlds=lambda drawn: drawn.sleepers > 0)
def the_heartbeat_that_renews_nothing() -> Iterator[None]:
    renew = Minter.renew

    def mistaken(self: Minter, claims: Claims) -> AgentToken:
        with patch.object(self, "_up", lambda: claims.until - LIFETIME_SECONDS):
            return renew(self, claims)

    with patch.object(Minter, "renew", mistaken):
        yield


@mutation("TokensOpenTheirOwnDoor", worlds=_befalls("clock step"))
def the_token_that_ages_by_the_wall_clock() -> Iterator[None]:
    def by_the_wall(up: Any) -> Callable[[], float]:
        clock = up.__self__._clock
        return lambda: float(clock.now().timestamp())

    minting, verifying = Minter.__init__, Verifier.__init__
    with (
        patch.object(Minter, "__init__", lambda self, key, up: minting(self, key, by_the_wall(up))),
        patch.object(Verifier, "__init__", lambda self, keys, up: verifying(self, keys, by_the_wall(up))),
    ):
        yield


@mutation("TokensOpenTheirOwnDoor", worlds=_befalls("stolen tokens"))
def the_signature_that_nobody_looks_at() -> Iterator[None]:
    with patch.dict(verify._OPTIONS, verify_signature=False):
        yield


@mutation("TokensOpenTheirOwnDoor", worlds=_befalls("stolen tokens"))
def the_token_that_starts_another_launch() -> Iterator[None]:
    class AnyLaunch(str):
        """Equal to whatever launch is named."""

        __slots__ = ()

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = str.__hash__

    judge = Verifier.verify

    def mistaken(self: Verifier, token: str) -> Claims:
        claims = judge(self, token)
        claims.launch_id = AnyLaunch(claims.launch_id)
        return claims

    with patch.object(Verifier, "verify", mistaken):
        yield


@mutation("TokensOpenTheirOwnDoor", worlds=_befalls("stolen tokens"))
def the_launch_that_counts_after_its_end() -> Iterator[None]:
    def mistaken(tx: Tx, attempt_id: str, launch_id: str) -> reporting.Beat | None:
        row = tx.one("SELECT stop FROM task_instances WHERE attempt_id = :a", a=attempt_id)
        return None if row is None else reporting.Beat(row.stop)

    with patch.object(reporting, "heartbeat", mistaken):
        yield


def _is_crowded(drawn: Drawn) -> bool:
    return bool(drawn.hooks) and drawn.places < 64


@mutation("TenantsShareThePace", worlds=_is_crowded)
def the_pace_that_goes_to_whoever_is_due_longest() -> Iterator[None]:
    def mistaken(tx: Tx, *, limit: int, besides: frozenset[str], **how: Any) -> list[Attempt]:
        rows = tx.all("SELECT attempt_id FROM task_instances WHERE state = 'held' AND next_ask_due <= :up"
                      " ORDER BY next_ask_due", up=tx.up)  # fmt: skip
        chosen = [row.attempt_id for row in rows if row.attempt_id not in besides][:limit]
        return [a for a in (admitting.attempt_if(tx, one, State.HELD) for one in chosen) if a is not None]

    with patch.object(admitting, "due_holds", mistaken):
        yield


@mutation("TenantsShareThePace", worlds=_is_crowded)
def the_tenant_that_may_take_every_place() -> Iterator[None]:
    due_holds = admitting.due_holds

    def mistaken(tx: Tx, *, per_tenant: int, **how: Any) -> list[Attempt]:
        return due_holds(tx, per_tenant=64, **how)

    with patch.object(admitting, "due_holds", mistaken):
        yield


@mutation("TenantsShareThePace", worlds=_is_crowded)
def the_pace_that_nobody_keeps() -> Iterator[None]:
    due_holds = admitting.due_holds

    def mistaken(tx: Tx, *, limit: int, per_tenant: int, **how: Any) -> list[Attempt]:
        return due_holds(tx, limit=64, per_tenant=64, **how)

    with patch.object(admitting, "due_holds", mistaken):
        yield


@mutation("TenantsShareThePace", worlds=_is_crowded)
def the_tenant_that_always_comes_first() -> Iterator[None]:
    def mistaken(tx: Tx, *, limit: int, besides: frozenset[str], busy: Any, per_tenant: int) -> list[Attempt]:
        chosen: list[str] = []
        for tenant in ("acme", "globex", "initech"):
            rows = tx.all("SELECT attempt_id FROM task_instances WHERE state = 'held' AND next_ask_due <= :up"
                          " AND tenant_id = :t ORDER BY next_ask_due", up=tx.up, t=tenant)  # fmt: skip
            due = [row.attempt_id for row in rows if row.attempt_id not in besides]
            chosen += due[: max(0, per_tenant - busy.get(tenant, 0))]
        return [a for a in (admitting.attempt_if(tx, one, State.HELD) for one in chosen[:limit]) if a is not None]

    with patch.object(admitting, "due_holds", mistaken):
        yield


@mutation("BreakerKeepsQuiet", worlds=_breaks)
def the_failures_that_no_answer_makes_good() -> Iterator[None]:
    settle = breaker.settle

    def mistaken(found: Any, ticket: Any, end: breaker.End, now: float) -> Any:
        return found if end is breaker.End.ANSWERED and not ticket.probe else settle(found, ticket, end, now)

    with patch.object(gate, "settle", mistaken):
        yield


@mutation("BreakerKeepsQuiet", worlds=lambda drawn: _breaks(drawn) and drawn.fail_open)
def the_open_breaker_that_lets_a_refusal_by() -> Iterator[None]:
    not_asked = Gate._not_asked

    def mistaken(self: Gate, hook: Any, walk: Any) -> Any:
        hook.may_have_refused = False
        return not_asked(self, hook, walk)

    with patch.object(Gate, "_not_asked", mistaken):
        yield


def _as_if_unpaused(verb: Callable[..., Any]) -> Callable[..., Any]:
    def mistaken(tx: Tx, *args: Any, **how: Any) -> Any:
        paused = [row.dag_id for row in tx.all("SELECT dag_id FROM dags WHERE is_paused")]
        tx.run("UPDATE dags SET is_paused = false")
        try:
            return verb(tx, *args, **how)
        finally:
            tx.many("UPDATE dags SET is_paused = true WHERE dag_id = :d", [{"d": dag_id} for dag_id in paused])

    return mistaken


@mutation("PeopleAreHeard", worlds=_befalls("pause"))
def the_paused_dag_that_takes_slots() -> Iterator[None]:
    with patch.object(slots, "take_slots", _as_if_unpaused(slots.take_slots)):
        yield


@mutation("PeopleAreHeard", worlds=_befalls("pause"))
def the_paused_dag_whose_held_attempts_begin() -> Iterator[None]:
    with patch.object(line_module, "launch", _as_if_unpaused(admitting.launch)):
        yield


@mutation("PeopleAreHeard", worlds=_befalls("cancel"))
def the_stop_that_the_agent_knows_better() -> Iterator[None]:
    attempt_ended = reporting.attempt_ended

    def mistaken(tx: Tx, attempt_id: str, *args: Any, **how: Any) -> Any:
        tx.run("UPDATE task_instances SET stop = NULL WHERE attempt_id = :a AND stop <> 'cleared'", a=attempt_id)
        return attempt_ended(tx, attempt_id, *args, **how)

    with patch.object(reporting, "attempt_ended", mistaken):
        yield


@mutation("TriesAreTheAuthors")
def the_try_after_the_last() -> Iterator[None]:
    with patch.object(plane, "seconds_to_retry", lambda task, number, most: 1.0 if number <= most else None):
        yield


@mutation("TriesAreTheAuthors")
def the_retry_that_never_comes() -> Iterator[None]:
    with patch.object(plane, "seconds_to_retry", lambda task, number, most: None):
        yield


@mutation("TriesAreTheAuthors")
def the_retry_that_does_not_wait() -> Iterator[None]:
    with patch.object(plane, "seconds_to_retry", lambda task, number, most: 0.0 if number < most else None):
        yield
