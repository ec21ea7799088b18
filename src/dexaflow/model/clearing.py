"""Which tasks of a run a clearing is about: those named, with what depends on them, in some states."""

from collections.abc import Mapping, Sequence

from dexaflow.base.errors import NotFound
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import State

__all__ = ["tasks_to_clear"]

_FAILED = frozenset({State.FAILED, State.UPSTREAM_FAILED})


def tasks_to_clear(
    spec: DagSpec,
    states: Mapping[str, str],
    task_ids: Sequence[str] | None,
    *,
    downstream: bool = False,
    upstream: bool = False,
    only_failed: bool = False,
    only_running: bool = False,
) -> tuple[str, ...]:
    """Return the tasks to clear, sorted. A task that is still waiting for its turn has nothing to clear.

    Args:
        states: The state of each task of the run.
        task_ids: None for all.
        downstream: Also everything that depends on them.
        upstream: Also everything that they depend on.
        only_failed: Only those that failed, or failed upstream.
        only_running: Only those that run.

    Raises:
        NotFound: a task that the DAG does not have.
    """
    above: dict[str, set[str]] = {t.task_id: set(t.upstream) for t in spec.tasks}
    named = set(above if task_ids is None else task_ids)
    if unknown := sorted(named - above.keys()):
        known = ", ".join(sorted(above))
        raise NotFound(f"DAG '{spec.dag_id}' has no task '{unknown[0]}'; its tasks are {known}"[:500])
    chosen = set(named)
    if downstream:
        below: dict[str, set[str]] = {task_id: set() for task_id in above}
        for task_id, others in above.items():
            for other in others:
                below[other].add(task_id)
        chosen |= _reached(named, below)
    if upstream:
        chosen |= _reached(named, above)

    def fits(state: str | None) -> bool:
        if state is None or state == State.NONE:
            return False
        return (not only_failed or state in _FAILED) and (not only_running or state == State.RUNNING)

    return tuple(sorted(t for t in chosen if fits(states.get(t))))


def _reached(start: set[str], edges: Mapping[str, set[str]]) -> set[str]:
    reached, todo = set(start), list(start)
    while todo:
        more = edges[todo.pop()] - reached
        reached |= more
        todo.extend(more)
    return reached
