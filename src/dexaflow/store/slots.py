"""Pool slots: counted from the states themselves, so that none can leak, and given first come, first served."""

from collections.abc import Mapping
from dataclasses import dataclass

from dexaflow.base.steps import Step, reached
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import Event, State
from dexaflow.store.registering import spec_if_readable
from dexaflow.store.transaction import Row, Tx, move
from dexaflow.store.tries import attempt_of

__all__ = ["Slots", "slots_taken", "take_slots"]


@dataclass(frozen=True, slots=True)
class Slots:
    """What is taken: attempts at once over all pools, and slots by pool."""

    attempts: int
    by_pool: Mapping[str, int]


def slots_taken(tx: Tx) -> Slots:
    """Count what is taken now, from the states themselves: a count that is derived cannot leak."""
    rows = tx.all(
        "SELECT pool, SUM(pool_slots) AS slots, COUNT(*) AS n FROM task_instances"
        " WHERE state IN ('queued','launching','running') GROUP BY pool"
    )
    return Slots(sum(r.n for r in rows), {r.pool: int(r.slots) for r in rows})


def take_slots(tx: Tx, parallelism: int) -> list[Attempt]:
    """Queue scheduled attempts, first come first served in each pool, as far as slots and `parallelism` go.

    An attempt that does not fit yet lets nobody of its pool pass, so that a large one is not starved by small ones; one
    that can never fit is left aside, its reason saying so.
    """
    taken = slots_taken(tx)
    room = parallelism - taken.attempts
    if room <= 0:
        return []
    wanting: list[Row] = []
    for pool in tx.all("SELECT pool, slots FROM pools"):
        free = pool.slots - taken.by_pool.get(pool.pool, 0)
        if free <= 0:
            continue
        for row in tx.all(
            "SELECT t.attempt_id, t.scheduled_at, t.pool_slots, t.version_id"
            " FROM task_instances t JOIN dags d ON d.dag_id = t.dag_id"
            " WHERE t.state = 'scheduled' AND t.pool = :pool AND t.pool_slots <= :size AND NOT d.is_paused"
            " ORDER BY t.scheduled_at, t.attempt_id LIMIT :limit",
            pool=pool.pool, size=pool.slots, limit=min(free, room),
        ):  # fmt: skip
            if row.pool_slots > free:
                break
            free -= row.pool_slots
            wanting.append(row)
    wanting.sort(key=lambda r: (r.scheduled_at, r.attempt_id))
    queued: list[Attempt] = []
    specs: dict[int, DagSpec | None] = {}
    for row in wanting[:room]:
        if row.version_id not in specs:
            specs[row.version_id] = spec_if_readable(tx, row.version_id)
        spec = specs[row.version_id]
        if spec is None:
            continue
        moved = move(tx, row.attempt_id, Event.SLOTS_TAKEN, State.SCHEDULED, queued_at=tx.now_iso, reason="", hook="")
        if moved is not None:
            queued.append(attempt_of(tx, moved, spec))
            reached(Step.QUEUED_WRITTEN)
    return queued
