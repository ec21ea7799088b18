"""DAGs in which only what matters is said."""

from collections.abc import Iterable, Mapping

from dexaflow.model.dags import DagSpec, TaskSpec

__all__ = ["a_dag", "a_task"]


def a_task(
    task_id: str = "extract",
    upstream: Iterable[str] = (),
    trigger_rule: str = "all_success",
    *,
    retries: int = 0,
    retry_delay: float = 300.0,
) -> TaskSpec:
    return TaskSpec(
        task_id=task_id,
        operator="python",
        upstream=tuple(sorted(upstream)),
        trigger_rule=trigger_rule,
        retries=retries,
        retry_delay=retry_delay,
    )


def a_dag(upstream: Mapping[str, Iterable[str]], rules: Mapping[str, str] | None = None) -> DagSpec:
    """Build a DAG from each task's upstream tasks; `rules` are the trigger rules that are not all_success."""
    given = rules or {}
    return DagSpec("nightly", tuple(a_task(t, ups, given.get(t, "all_success")) for t, ups in upstream.items()))
