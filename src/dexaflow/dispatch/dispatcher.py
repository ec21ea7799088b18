"""The dispatcher: walks queued attempts down the line, and asks held ones again, paced and fair (R6.2).

Every attempt that is being asked is in `_asking`, so that none is asked twice at once. How many held attempts are
asked at once is bounded: that is the pace. No lock or transaction is held while a hook is asked.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog

from dexaflow.admission.gate import Gate
from dexaflow.admission.results import Held
from dexaflow.base.clock import Clock
from dexaflow.base.errors import StoreError, TermLost
from dexaflow.base.steps import Step, reached
from dexaflow.dispatch.line import Ended, Line, Moved, Started, TooOld, Waits
from dexaflow.dispatch.waiting import next_ask
from dexaflow.model.attempt import Attempt
from dexaflow.observe.logs import attempt_fields
from dexaflow.observe.troubles import Troubles
from dexaflow.store import admitting, people
from dexaflow.store.bridge import Store
from dexaflow.store.transaction import Tx, from_iso
from dexaflow.store.tries import RetryRule

__all__ = ["MAX_RECHECKS", "Dispatcher", "HeldEntry", "HoldCount", "hold_counts"]

log = structlog.get_logger()
MAX_RECHECKS = 64  # held attempts asked at once
SWEEP_SECONDS = 5.0
_GATHER_SECONDS = 0.005  # what comes due, or becomes free at the pace's limit, within it is found by one look
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0  # after a walk that failed on our side; doubled each time in a row
_TROUBLE = "it could not be asked about, which is a fault of the control plane; it is tried again (see the server log)"
_MAX_ANEW = 3  # times one walk is begun again because its admit grew too old, before it goes back to the scheduler


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """A held attempt, as metrics and the choice of a probe need it; the store has the truth."""

    hook: str
    held_at: datetime


def _due_now(hook: str, tx: Tx) -> int:
    return people.ask_now(tx, attempt_id=None, hook=hook)


def _candidate(hook: str, besides: frozenset[str], tx: Tx) -> Attempt | None:
    return admitting.probe_candidate(tx, hook, besides=besides)


class Dispatcher:
    """Call `run()` inside a task group; hand queued attempts to `dispatch()`."""

    def __init__(
        self,
        line: Line,
        gate: Gate,
        store: Store,
        *,
        clock: Clock,
        up: Callable[[], float],
        recheck: float,
        jitter: Callable[[], float],
        retry: RetryRule,
        wake_scheduler: Callable[[], None],
        max_rechecks: int = MAX_RECHECKS,
    ) -> None:
        self._line = line
        self._gate = gate
        self._store = store
        self._clock = clock
        self._up = up
        self._recheck = recheck
        self._jitter = jitter
        self._retry = retry
        self._wake_scheduler = wake_scheduler
        self._max_rechecks = max_rechecks
        self._asking: dict[str, Attempt] = {}
        self._rechecking: set[str] = set()
        self._held: dict[str, HeldEntry] = {}
        self._held_by_hook: dict[str, int] = {}
        self._turn = 0
        self._hooks = frozenset(s.name for s in gate.status())
        self._probing: dict[str, str] = {}  # hook -> the attempt sent to probe it
        self._again: dict[str, Attempt] = {}  # queued anew while an earlier walk of theirs has not come back
        self._failures: dict[str, int] = {}  # walks in a row that failed on our side
        self._troubles = Troubles(__name__)
        self._woken = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._waiting_to_start: list[Attempt] = []
        self._stop = asyncio.Event()
        self.quiet = asyncio.Event()  # set while nothing is being asked
        self.quiet.set()

    # What others call, on the loop

    def dispatch(self, attempt: Attempt) -> None:
        """Walk a queued attempt. Returns at once."""
        if self._stop.is_set():
            return  # found queued by the next start, and asked anew
        if attempt.id in self._asking:
            self._again[attempt.id] = attempt
            return
        if self._group is None:
            self._waiting_to_start.append(attempt)
            return
        self._asking[attempt.id] = attempt
        self.quiet.clear()
        self._group.create_task(self._walk(attempt, recheck=False))

    def wake(self) -> None:
        """A hold became due, or a breaker changed: look now."""
        self._woken.set()

    def unheld(self, attempt_id: str) -> None:
        """A hold ended by a person's hand."""
        self._forget(attempt_id)

    def held(self) -> Mapping[str, HeldEntry]:
        """Return what is held now, by attempt."""
        return self._held

    def stop_asking(self) -> None:
        """Put no new question; what is being asked may end (SIGTERM)."""
        self._stop.set()
        self._woken.set()

    @property
    def asking(self) -> int:
        """How many attempts are being asked now."""
        return len(self._asking)

    # The loop of held attempts

    async def run(self) -> None:
        """Dispatch until cancelled. Raises `TermLost` when another control plane leads."""
        for entry in await self._what_is_held():
            self._remember(entry.attempt_id, entry.hook, from_iso(entry.held_at))
        async with asyncio.TaskGroup() as group:
            self._group = group
            for attempt in self._waiting_to_start:
                self.dispatch(attempt)
            self._waiting_to_start.clear()
            try:
                await self._ask_held(group)
            finally:
                self._group = None

    async def _what_is_held(self) -> list[admitting.HeldNow]:
        """Return what an earlier control plane left held, also when the database cannot be used at first."""
        while True:
            try:
                held = await self._store.do(admitting.all_held)
                self._turn = await self._store.do(admitting.last_turn)
                for hook in sorted({entry.hook for entry in held} - self._hooks):
                    await self._store.do(partial(_due_now, hook))  # nobody is asked there any more: the others are, now
                return held
            except TermLost:
                raise
            except StoreError as error:
                self._troubles.error("hold_round_failed", cause=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _ask_held(self, group: asyncio.TaskGroup) -> None:
        while not self._stop.is_set():
            self._woken.clear()
            try:
                wait = await self._one_round(group)
            except TermLost:
                raise
            except Exception as error:  # noqa: BLE001 - a full disk passes; holds must be asked again when it has
                self._troubles.error("hold_round_failed", cause=str(error))
                wait = 1.0
            try:
                async with asyncio.timeout(wait):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _one_round(self, group: asyncio.TaskGroup) -> float:
        """Ask what is due as far as the pace allows. Returns seconds until the next look."""
        wait = min(SWEEP_SECONDS, await self._probe(group))
        room = self._max_rechecks - len(self._rechecking)
        if room > 0:
            besides = frozenset(self._asking)
            busy = Counter(self._asking[a].tenant_id for a in self._rechecking)
            share = self._max_rechecks * 3 // 4

            def look(tx: Tx) -> tuple[list[Attempt], float | None]:
                due = admitting.due_holds(tx, limit=room, besides=besides, busy=busy, per_tenant=share)
                return due, admitting.next_hold_due(tx)

            due, next_due = await self._store.do(look)
            for attempt in due:
                self._recheck_one(group, attempt, probe="")
            if due:
                await asyncio.sleep(_GATHER_SECONDS)
            if len(due) == room:  # at the pace's limit: the end of an ask wakes us
                return wait
            if next_due is not None:
                wait = min(wait, max(0.01, next_due - self._up()))
        return wait

    async def _probe(self, group: asyncio.TaskGroup) -> float:
        """Where a breaker may be probed, ask whoever was asked longest ago (R7.4). Returns seconds until then."""
        wait = SWEEP_SECONDS
        now = self._clock.monotonic()
        for hook in [h for h, n in self._held_by_hook.items() if n > 0 and h in self._hooks and h not in self._probing]:
            at = self._gate.next_probe(hook)
            if at is None:
                continue
            if at > now:
                wait = min(wait, at - now)
                continue
            besides = frozenset(self._asking)
            candidate = await self._store.do(partial(_candidate, hook, besides))
            if candidate is not None:
                self._recheck_one(group, candidate, probe=hook)
            elif not any(self._held_on(a, hook) for a in besides):
                for attempt_id in [a for a, e in self._held.items() if e.hook == hook and a not in besides]:
                    self._forget(attempt_id)  # the store knows better: nobody waits there
        return max(0.01, wait)

    def _held_on(self, attempt_id: str, hook: str) -> bool:
        entry = self._held.get(attempt_id)
        return entry is not None and entry.hook == hook

    def _recheck_one(self, group: asyncio.TaskGroup, attempt: Attempt, *, probe: str) -> None:
        if attempt.id in self._asking or self._stop.is_set():
            return
        self._asking[attempt.id] = attempt
        self.quiet.clear()
        self._rechecking.add(attempt.id)
        if probe:
            self._probing[probe] = attempt.id
        reached(Step.RECHECK_DUE)
        group.create_task(self._walk(attempt, recheck=True, probe=probe))

    # One attempt

    async def _walk(self, attempt: Attempt, *, recheck: bool, probe: str = "") -> None:
        """Walk an attempt; `probe` names the hook that it is sent to probe."""
        try:
            await self._walk_to_an_end(attempt, recheck=recheck, probe=probe)
            self._failures.pop(attempt.id, None)
        except TermLost:
            raise
        except Exception as error:  # noqa: BLE001 - one attempt's trouble is not another's
            self._troubles.error("walk_failed", cause=f"{type(error).__name__}: {error}", **attempt_fields(attempt))
            await self._set_aside(attempt)
        finally:
            if probe:
                self._probing.pop(probe, None)
            self._asking.pop(attempt.id, None)
            self._rechecking.discard(attempt.id)
            if not self._asking:
                self.quiet.set()
            self._woken.set()
        again = self._again.pop(attempt.id, None)
        if again is not None:
            self.dispatch(again)

    async def _walk_to_an_end(self, attempt: Attempt, *, recheck: bool, probe: str) -> None:
        for _ in range(_MAX_ANEW):
            walked = await self._line.walk(
                attempt, may_probe=lambda hook: hook == probe or not self._others_wait(hook, attempt.id)
            )
            if not isinstance(walked, TooOld) or self._stop.is_set():
                break
        match walked:
            case Waits():
                await self._hold(walked, had_slots=not recheck)
            case Started():
                self._forget(attempt.id)
                log.info("attempt_launched", launch_id=walked.launch_id, **attempt_fields(attempt))
            case Ended() | Moved():
                self._forget(attempt.id)
                self._wake_scheduler()
                why = walked.why if isinstance(walked, Ended) else "moved meanwhile"
                log.info("attempt_not_launched", why=why, **attempt_fields(attempt))
            case TooOld():
                await self._store.do(lambda tx: admitting.requeue(tx, attempt.id))  # a held one stays held, and due
                self._wake_scheduler()

    def _others_wait(self, hook: str, attempt_id: str) -> bool:
        waiting = self._held_by_hook.get(hook, 0)
        return waiting > (1 if self._held_on(attempt_id, hook) else 0)

    async def _set_aside(self, attempt: Attempt) -> None:
        """Have an attempt asked anew after a pause: asking it, or writing what came of it, failed on our side.

        Meanwhile it counts as being asked, so that neither a hook nor a full disk is tried without a pause. It is not
        let go before its next step is written: until the database can be used again, or this control plane stops.
        """
        failures = self._failures[attempt.id] = self._failures.get(attempt.id, 0) + 1
        pause = min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * 2 ** (failures - 1))

        turn = self._next_turn()

        def next_step(tx: Tx) -> bool:
            waited = admitting.broken_wait(tx, attempt.id)  # what came of this walk is not kept: what is kept counts
            ask = next_ask(
                up=tx.up, recheck=self._recheck, jitter=self._jitter(), broken=waited > 0, broken_wait=waited
            )  # fmt: skip
            return admitting.requeue(tx, attempt.id) or admitting.postpone(tx, attempt.id, ask.due, turn)

        if failures > 1:  # once may be a hiccup; then its author should know
            with suppress(StoreError):
                await self._store.do(lambda tx: admitting.say_trouble(tx, attempt.id, _TROUBLE))
        while not await self._stopped_within(pause):
            try:
                waits = await self._store.do(next_step)
            except TermLost:
                raise
            except Exception as error:  # noqa: BLE001 - tried until it works
                self._troubles.error(
                    "requeue_failed", cause=f"{type(error).__name__}: {error}", **attempt_fields(attempt)
                )
                pause = _PAUSE_SECONDS
                continue
            if not waits:  # it was cancelled or cleared, or is launching: the watch looks after it
                self._failures.pop(attempt.id, None)
                self._forget(attempt.id)
            self._wake_scheduler()
            return

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    def _next_turn(self) -> int:
        """Return the place of an attempt that has just been asked: behind all others (R7.4).

        When it has been asked, and not when that began: it may have waited long for a connection or an earlier hook.
        """
        self._turn += 1
        return self._turn

    async def _hold(self, waits: Waits, *, had_slots: bool) -> None:
        held, jitter, turn = waits.held, self._jitter(), self._next_turn()
        retry = self._retry

        reason = ""

        def write(tx: Tx) -> str:
            nonlocal reason
            waited = admitting.broken_wait(tx, held.attempt.id) if held.broken else 0.0
            ask = next_ask(
                up=tx.up, recheck=self._recheck, jitter=jitter, broken=held.broken, broken_wait=waited
            )  # fmt: skip
            if ask.failed:
                said = admitting.last_failure(tx, held)
                reason = f"dispatch_failed: waited 15 minutes on admission hook {held.hook}: {said}"
                wait = admitting.retry_wait(tx, held.attempt, retry)
                due = None if wait is None else tx.up + wait
                return "failed" if admitting.dispatch_failed(tx, held, reason=reason, retry_due=due) else "moved"
            kept = admitting.hold(
                tx, held, next_ask_due=ask.due, turn=turn, placement=waits.placement, first_turn=not held.asked
            )
            return "held" if kept else "moved"

        written = await self._store.do(write)
        reached(Step.HELD)
        if written == "held":
            self._note_hold(held)
        else:
            self._forget(held.attempt.id)
            if written == "failed":
                log.warning("dispatch_failed", hook=held.hook, reason=reason, **attempt_fields(held.attempt))
            else:
                log.info("hold_ended", why=written, hook=held.hook, **attempt_fields(held.attempt))
        if had_slots or written != "held":  # slots are free, or a run may go on; a recheck changes nothing for others
            self._wake_scheduler()

    def _note_hold(self, held: Held) -> None:
        entry = self._held.get(held.attempt.id)
        if entry is None or entry.hook != held.hook:
            self._forget(held.attempt.id)
            self._remember(held.attempt.id, held.hook, self._clock.now() if entry is None else entry.held_at)
            level = log.warning if held.broken else log.info
            level("attempt_held", hook=held.hook, reason=held.reason, **attempt_fields(held.attempt))

    def _remember(self, attempt_id: str, hook: str, held_at: datetime) -> None:
        self._held[attempt_id] = HeldEntry(hook, held_at)
        self._held_by_hook[hook] = self._held_by_hook.get(hook, 0) + 1

    def _forget(self, attempt_id: str) -> None:
        entry = self._held.pop(attempt_id, None)
        if entry is not None:
            self._held_by_hook[entry.hook] -= 1


@dataclass(frozen=True, slots=True)
class HoldCount:
    """The held attempts of one hook (R9.1)."""

    hook: str
    held: int
    oldest_seconds: float


def hold_counts(held: Mapping[str, HeldEntry], now: datetime) -> list[HoldCount]:
    """Return how many attempts each hook holds, and for how long the one held longest has been."""
    oldest: dict[str, tuple[int, datetime]] = {}
    for entry in list(held.values()):  # Prometheus asks from another thread
        count, since = oldest.get(entry.hook, (0, entry.held_at))
        oldest[entry.hook] = (count + 1, min(since, entry.held_at))
    return [HoldCount(hook, count, max(0.0, (now - since).total_seconds())) for hook, (count, since) in oldest.items()]
