"""How many there are of what, now: for metrics. The cost follows what has not ended."""

from collections.abc import Mapping

from dexaflow.model.states import ENDED, State
from dexaflow.store.slots import slots_taken
from dexaflow.store.transaction import Tx

__all__ = ["attempts_in_state", "pool_slots"]

_UNENDED = tuple(str(state) for state in State if state not in ENDED)


def attempts_in_state(tx: Tx) -> Mapping[str, int]:
    """Return how many task instances are in each state that is not an end."""
    counts = dict.fromkeys(_UNENDED, 0)
    for state in _UNENDED:  # one range of the index each
        row = tx.one("SELECT COUNT(*) AS n FROM task_instances WHERE state = :s", s=state)
        counts[state] = 0 if row is None else int(row.n)
    return counts


def pool_slots(tx: Tx) -> Mapping[str, tuple[int, int]]:
    """Return, by pool, the slots taken and the slots there are."""
    taken = slots_taken(tx).by_pool
    return {p.pool: (taken.get(p.pool, 0), int(p.slots)) for p in tx.all("SELECT pool, slots FROM pools")}
