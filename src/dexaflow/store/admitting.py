"""What came of asking about an attempt: each a guarded move, with the reviews written in the same transaction."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from dexaflow.admission.decisions import Changes
from dexaflow.admission.results import Admitted, Held, Outcome, Refused, Review
from dexaflow.base.steps import Step, reached
from dexaflow.base.text import NO_REASON
from dexaflow.model.attempt import Attempt
from dexaflow.model.execution import Execution, Resources
from dexaflow.model.states import Event, State
from dexaflow.policy.checked import Rejection, Setting
from dexaflow.store.slots import slots_taken
from dexaflow.store.transaction import Row, Tx, move
from dexaflow.store.tries import RetryRule, attempt_of

__all__ = [
    "HeldNow",
    "Launching",
    "all_held",
    "attempt_if",
    "broken_wait",
    "changes_document",
    "dispatch_failed",
    "due_holds",
    "hold",
    "last_failure",
    "last_turn",
    "launch",
    "next_hold_due",
    "placement_document",
    "postpone",
    "probe_candidate",
    "record",
    "refuse",
    "reject",
    "requeue",
    "retry_wait",
    "say_trouble",
]

WAITS_FOR_SLOTS = "admitted; waits for pool slots"
WAITS_FOR_UNPAUSE = "admitted; waits for its DAG to be unpaused"
_ATTEMPT = "attempt_id, run_id, task_id, dag_id, tenant_id, try_number, version_id"  # what `attempt_of` needs
_DECIDED: Mapping[str, Any] = {"next_ask_at": None, "next_ask_due": None, "broken_seconds": 0.0, "broken_since": None}


def placement_document(
    image: str, resources: Resources, execution: Execution, settings: Sequence[Setting], *, dedicated: bool
) -> str:
    """Return what an attempt would run with and who set it (R9.2), as JSON text."""
    return _json(
        {
            "image": image,
            "resources": {"requests": dict(resources.requests), "limits": dict(resources.limits)},
            "execution": {
                "service_account": execution.service_account,
                "node_selector": dict(execution.node_selector),
                "tolerations": execution.tolerations,
                "labels": dict(execution.labels),
                "annotations": dict(execution.annotations),
                "priority_class_name": execution.priority_class_name,
            },
            "settings": [{"field": field, "key": key, "value": value, "by": by} for field, key, value, by in settings],
            "dedicated": dedicated,
        }
    )


def changes_document(changes: Changes) -> str:
    """Return a hook's changes as JSON text with only what is set; `{}` for none."""
    found: dict[str, Any] = {}
    for name in ("node_selector", "labels", "annotations"):
        if value := getattr(changes, name):
            found[name] = dict(value)
    if changes.tolerations:
        found["tolerations"] = [{k: v for k, v in asdict(t).items() if v} for t in changes.tolerations]
    for name in ("priority_class_name", "service_account"):
        if value := getattr(changes, name):
            found[name] = value
    return _json(found)


def _json(document: Any) -> str:
    # Not `json` and `asdict`: together they took most of the time that it takes to record an attempt.
    return msgspec.json.encode(document).decode()


def record(tx: Tx, attempt: Attempt, reviews: Sequence[Review]) -> None:
    """Keep every hook's part of one ask; an answer equal to the hook's last one to this attempt is counted in it."""
    for review in reviews:
        changes = changes_document(review.changes) if review.changes else "{}"
        # Equal but for the incident's id: the author sees one entry, the latest id leads to the log (R9.2).
        reason = review.reason.replace(review.incident, "*") if review.incident else review.reason
        last = tx.one(
            "SELECT id, outcome, reason, incident, changes FROM reviews WHERE attempt_id = :a AND hook = :h"
            " ORDER BY id DESC LIMIT 1",
            a=attempt.id, h=review.hook,
        )  # fmt: skip
        if last is not None and (
            last.outcome, last.reason.replace(last.incident, "*") if last.incident else last.reason, last.changes
        ) == (str(review.outcome), reason, changes):  # fmt: skip
            tx.run(
                "UPDATE reviews SET count = count + 1, last_at = :now, seconds = :seconds, uid = :uid,"
                " reason = :reason, incident = :incident WHERE id = :id",
                id=last.id, now=tx.now_iso, seconds=review.seconds, uid=review.uid, reason=review.reason,
                incident=review.incident,
            )  # fmt: skip
        else:
            tx.run(
                "INSERT INTO reviews (attempt_id, run_id, task_id, try_number, hook, outcome, reason, changes, uid,"
                " incident, seconds, first_at, last_at, count) VALUES (:a, :r, :t, :n, :h, :outcome, :reason, :changes,"
                " :uid, :incident, :seconds, :now, :now, 1)",
                a=attempt.id, r=attempt.run_id, t=attempt.task_id, n=attempt.try_number, h=review.hook,
                outcome=str(review.outcome), reason=review.reason, changes=changes, uid=review.uid,
                incident=review.incident, seconds=review.seconds, now=tx.now_iso,
            )  # fmt: skip


def reject(tx: Tx, attempt: Attempt, rejection: Rejection) -> bool:
    """An own check said no: fails at once, unretried, naming the rule (R1.2)."""
    row = None
    for state in (State.QUEUED, State.HELD):
        row = row or move(
            tx, attempt.id, Event.REJECTED, state, reason=f"{rejection.rule}: {rejection.message}", hook="",
            ended_at=tx.now_iso, held_at=None, **_DECIDED,
        )  # fmt: skip
    return row is not None


def refuse(tx: Tx, refused: Refused, placement: str | None) -> bool:
    """A hook said no: fails at once, unretried, with the reason and the hook's name (R1.4)."""
    record(tx, refused.attempt, refused.reviews)
    row = None
    for state in (State.QUEUED, State.HELD):
        row = row or move(
            tx, refused.attempt.id, Event.REFUSED, state, reason=refused.reason or NO_REASON, hook=refused.hook,
            ended_at=tx.now_iso, held_at=None, placement=placement, **_DECIDED,
        )  # fmt: skip
    reached(Step.REFUSAL_WRITTEN)
    return row is not None


def broken_wait(tx: Tx, attempt_id: str) -> float:
    """Return the seconds an attempt has waited broken so far; 0 when its last answer was a decision."""
    row = tx.one(
        "SELECT broken_seconds, broken_since FROM task_instances WHERE attempt_id = :a AND state = 'held'", a=attempt_id
    )
    if row is None or row.broken_since is None:
        return 0.0
    return float(row.broken_seconds) + max(0.0, tx.up - float(row.broken_since))


def hold(tx: Tx, held: Held, *, next_ask_due: float, turn: int, placement: str | None, first_turn: bool) -> bool:
    """The attempt waits without slots, token or process, and says why and until when (R6.1).

    Args:
        next_ask_due: When it is asked again, on the `up` clock.
        turn: Its place in the order of asking (R7.4).
        first_turn: Keep an earlier turn if it has one: no question was put this time.
    """
    record(tx, held.attempt, held.reviews)
    waited = broken_wait(tx, held.attempt.id) if held.broken else 0.0
    was = tx.one("SELECT state, turn, hook FROM task_instances WHERE attempt_id = :a", a=held.attempt.id)
    if was is None:
        return False
    keep = first_turn and was.state == State.HELD and was.turn and was.hook == held.hook
    columns: dict[str, Any] = {
        "reason": held.reason or NO_REASON, "hook": held.hook,
        "next_ask_at": tx.at(next_ask_due), "next_ask_due": next_ask_due,
        "turn": was.turn if keep else turn,
        "broken_seconds": waited, "broken_since": tx.up if held.broken else None,
    }  # fmt: skip
    if placement is not None:
        columns["placement"] = placement
    if was.state == State.HELD:
        row = move(tx, held.attempt.id, Event.HELD, State.HELD, **columns)
    else:
        row = move(tx, held.attempt.id, Event.HELD, State.QUEUED, held_at=tx.now_iso, queued_at=None, **columns)
    reached(Step.HOLD_WRITTEN)
    return row is not None


def last_failure(tx: Tx, held: Held) -> str:
    """Return what an author may know of the latest question that failed (R7.2): how, and its id in the server log."""
    reviews = [r for r in held.reviews if r.hook == held.hook and r.outcome is Outcome.ERROR]
    if reviews:
        reason, incident = reviews[-1].reason, reviews[-1].incident
    else:
        row = tx.one(
            "SELECT reason, incident FROM reviews WHERE attempt_id = :a AND hook = :h AND outcome = 'error'"
            " ORDER BY id DESC LIMIT 1",
            a=held.attempt.id, h=held.hook,
        )  # fmt: skip
        if row is None:
            return "the request failed"
        reason, incident = row.reason, row.incident
    return f"{reason} (incident {incident})" if incident else reason


def dispatch_failed(tx: Tx, held: Held, *, reason: str, retry_due: float | None) -> bool:
    """It has waited 15 minutes on a broken hook: a failed try, the task's retries apply (R7.2)."""
    record(tx, held.attempt, held.reviews)
    columns: dict[str, Any] = {"reason": reason, "hook": held.hook, "ended_at": tx.now_iso, "held_at": None, **_DECIDED}
    if retry_due is None:
        return move(tx, held.attempt.id, Event.DISPATCH_FAILED, State.HELD, **columns) is not None
    return (
        move(
            tx, held.attempt.id, Event.FAILED_RETRY, State.HELD, retry_due=retry_due, retry_at=tx.at(retry_due),
            **columns,
        )
        is not None
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Launching:
    """The launch is written; or the pool was full and the attempt is scheduled again (`launch_id` None)."""

    launch_id: str | None


def launch(tx: Tx, admitted: Admitted, *, launch_id: str, placement: str, parallelism: int) -> Launching | None:
    """Write the launch (R1.7): queued -> launching with the slots it has, held -> launching taking its slots.

    Returns None when the attempt was moved meanwhile (cancelled, cleared, another term): nothing may start.
    """
    attempt = admitted.attempt
    record(tx, attempt, admitted.reviews)
    columns = {
        "launch_id": launch_id, "launched_at": tx.now_iso, "placement": placement, "reason": "", "hook": "",
        "held_at": None, **_DECIDED,
    }  # fmt: skip
    if move(tx, attempt.id, Event.ADMITTED, State.QUEUED, **columns) is not None:
        reached(Step.LAUNCH_WRITTEN)
        return Launching(launch_id)
    waiting = tx.one(
        "SELECT pool, pool_slots FROM task_instances WHERE attempt_id = :a AND state = 'held'", a=attempt.id
    )
    if waiting is None:
        return None
    taken = slots_taken(tx)
    pool = tx.one("SELECT slots FROM pools WHERE pool = :p", p=waiting.pool)
    size = 0 if pool is None else pool.slots
    # Pausing a DAG lets nothing more of it begin, whatever was waiting for a hook meanwhile.
    paused = tx.one("SELECT 1 FROM dags WHERE dag_id = :d AND is_paused", d=attempt.dag_id) is not None
    if not paused and taken.attempts < parallelism and taken.by_pool.get(waiting.pool, 0) + waiting.pool_slots <= size:
        row = move(tx, attempt.id, Event.ADMITTED, State.HELD, queued_at=tx.now_iso, **columns)
        return None if row is None else Launching(launch_id)
    why = WAITS_FOR_UNPAUSE if paused else WAITS_FOR_SLOTS
    full = {**columns, "launch_id": None, "launched_at": None, "reason": why}
    row = move(tx, attempt.id, Event.ADMITTED_POOL_FULL, State.HELD, **full)
    return None if row is None else Launching(None)


def requeue(tx: Tx, attempt_id: str) -> bool:
    """Send a queued attempt back to be asked anew: its admit grew too old, or asking it failed on our side."""
    return move(tx, attempt_id, Event.REQUEUED, State.QUEUED, queued_at=None) is not None


def postpone(tx: Tx, attempt_id: str, until: float, turn: int) -> bool:
    """Ask a held attempt later than it is due: asking it failed on our side, and must not be tried without a pause.

    It has had its `turn` all the same: a question whose end could not be written may have been put.
    """
    return bool(
        tx.run(
            "UPDATE task_instances SET next_ask_due = :due, next_ask_at = :at, turn = :turn"
            " WHERE attempt_id = :a AND state = 'held'",
            a=attempt_id, due=until, at=tx.at(until), turn=turn,
        )
    )  # fmt: skip


def say_trouble(tx: Tx, attempt_id: str, reason: str) -> None:
    """Let a queued attempt's author see that asking it fails on our side; what holds a held one stays shown."""
    tx.run("UPDATE task_instances SET reason = :r WHERE attempt_id = :a AND state = 'queued'", a=attempt_id, r=reason)


def attempt_if(tx: Tx, attempt_id: str, *states: State) -> Attempt | None:
    """Return the attempt if it is still in one of `states`."""
    row = tx.one(
        f"SELECT {_ATTEMPT}, state FROM task_instances WHERE attempt_id = :a",
        a=attempt_id,
    )
    return None if row is None or State(row.state) not in states else attempt_of(tx, row)


@dataclass(frozen=True, slots=True)
class HeldNow:
    """One held attempt, as the dispatcher keeps track of it."""

    attempt_id: str
    hook: str
    tenant_id: str
    held_at: str


def all_held(tx: Tx) -> list[HeldNow]:
    """Return every held attempt; read once, when a control plane begins."""
    return [
        HeldNow(r.attempt_id, r.hook, r.tenant_id, r.held_at)
        for r in tx.all("SELECT attempt_id, hook, tenant_id, held_at FROM task_instances WHERE state = 'held'")
    ]


def _tenants_that_hold(tx: Tx) -> Iterator[str]:
    """Give the tenants that have held attempts: one probe of the index each, however many attempts there are."""
    tenant = ""
    while True:
        found = tx.one(
            "SELECT MIN(tenant_id) AS tenant_id FROM task_instances WHERE state = 'held' AND tenant_id > :after",
            after=tenant,
        )
        if found is None or found.tenant_id is None:
            return
        tenant = found.tenant_id
        yield tenant


def due_holds(
    tx: Tx, *, limit: int, besides: frozenset[str], busy: Mapping[str, int], per_tenant: int
) -> list[Attempt]:
    """Return held attempts that are due to be asked again, `limit` at most, shared evenly between tenants (R6.2).

    The tenant with the fewest attempts being asked comes next, with the one that is due longest; so the places that
    become free one by one are shared too. The cost follows what is due.

    Args:
        besides: Attempts that are being asked already.
        busy: By tenant, how many held attempts are being asked.
        per_tenant: At most so many at once for one tenant, so that there is always a place for another's.
    """
    if limit <= 0:
        return []
    due: dict[str, list[Row]] = {}
    for tenant in _tenants_that_hold(tx):
        room = min(limit, per_tenant - busy.get(tenant, 0))
        if room <= 0:
            continue
        rows = tx.all(
            f"SELECT {_ATTEMPT} FROM task_instances WHERE state = 'held' AND tenant_id = :t AND next_ask_due <= :up"
            " ORDER BY next_ask_due LIMIT :limit",
            t=tenant, up=tx.up, limit=room + len(besides),
        )  # fmt: skip
        wanting = [r for r in rows if r.attempt_id not in besides][:room]
        if wanting:
            due[tenant] = wanting[::-1]
    queue = [(busy.get(tenant, 0), tenant) for tenant in due]
    heapq.heapify(queue)
    chosen: list[Row] = []
    while queue and len(chosen) < limit:
        asked, tenant = heapq.heappop(queue)
        chosen.append(due[tenant].pop())
        if due[tenant]:
            heapq.heappush(queue, (asked + 1, tenant))
    return [attempt_of(tx, row) for row in chosen]


def next_hold_due(tx: Tx) -> float | None:
    """Return when the next held attempt that is not due yet comes due, on the `up` clock."""
    dues: list[float] = []
    for tenant in _tenants_that_hold(tx):
        first = tx.one(
            "SELECT MIN(next_ask_due) AS due FROM task_instances"
            " WHERE state = 'held' AND tenant_id = :t AND next_ask_due > :up",
            t=tenant,
            up=tx.up,
        )
        if first is not None and first.due is not None:
            dues.append(float(first.due))
    return min(dues, default=None)


def probe_candidate(tx: Tx, hook: str, *, besides: frozenset[str]) -> Attempt | None:
    """Return the attempt held by `hook` that was asked longest ago (R7.4), or None when nobody waits."""
    rows = tx.all(
        "SELECT attempt_id FROM task_instances WHERE state = 'held' AND hook = :h ORDER BY turn LIMIT :limit",
        h=hook, limit=1 + len(besides),
    )  # fmt: skip
    for row in rows:
        if row.attempt_id not in besides:
            return attempt_if(tx, row.attempt_id, State.HELD)
    return None


def last_turn(tx: Tx) -> int:
    """Return the latest turn of asking that any held attempt has had."""
    row = tx.one("SELECT MAX(turn) AS turn FROM task_instances WHERE state = 'held'")
    return 0 if row is None or row.turn is None else int(row.turn)


def retry_wait(tx: Tx, attempt: Attempt, retry: RetryRule) -> float | None:
    """Return the seconds until the attempt's next try, or None when none is left."""
    row = tx.one("SELECT max_tries FROM task_instances WHERE attempt_id = :a", a=attempt.id)
    return None if row is None else retry(attempt.task, attempt.try_number, row.max_tries)
