"""What Airflow's client may ask of runs and task instances: query strings and the bodies of the batch lists."""

from typing import Annotated

from pydantic import Field

from dexaflow.api.airflow.states import STATE_WORDS, in_our_words, run_states
from dexaflow.api.asking import (
    MAX_INT,
    SORTING,
    AirflowPage,
    Moment,
    Name,
    Pattern,
    among,
    order_of,
    sortable,
    spans_of,
)
from dexaflow.model.states import RunState
from dexaflow.store.reading_filters import AttemptFilter, RunFilter

__all__ = ["AttemptQuery", "RunQuery", "all_or_one"]

RUN_TIMES = {
    "run_after": "run_after",
    "logical_date": "logical_date",
    "start_date": "started_at",
    "end_date": "ended_at",
}
RUN_ORDER = {
    "id": "queued_at", "queued_at": "queued_at", "state": "state", "dag_id": "dag_id", "run_id": "run_id",
    "dag_run_id": "run_id", "logical_date": "logical_date", "run_after": "run_after", "start_date": "started_at",
    "end_date": "ended_at", "run_type": "run_type",
}  # fmt: skip
ATTEMPT_ORDER = {
    "id": "attempt_id", "state": "state", "start_date": "started_at", "end_date": "ended_at", "task_id": "task_id",
    "run_id": "run_id", "dag_id": "dag_id", "logical_date": "logical_date", "run_after": "run_after", "pool": "pool",
    "try_number": "try_number", "operator": "operator", "task_display_name": "task_id", "queued_when": "queued_at",
    "scheduled_when": "scheduled_at",
}  # fmt: skip

RunType = Annotated[str, Field(max_length=50)]
Number = Annotated[int, Field(ge=0, le=MAX_INT)]


def all_or_one(name: str) -> tuple[str, ...] | None:
    """Return the filter for a name in the path; None for Airflow's wildcard `~`."""
    return None if name == "~" else (name,)


class Times(AirflowPage):
    """Stretches of time, on runs and on task instances alike."""

    run_after_gte: Moment | None = None
    run_after_gt: Moment | None = None
    run_after_lte: Moment | None = None
    run_after_lt: Moment | None = None
    logical_date_gte: Moment | None = None
    logical_date_gt: Moment | None = None
    logical_date_lte: Moment | None = None
    logical_date_lt: Moment | None = None
    start_date_gte: Moment | None = None
    start_date_gt: Moment | None = None
    start_date_lte: Moment | None = None
    start_date_lt: Moment | None = None
    end_date_gte: Moment | None = None
    end_date_gt: Moment | None = None
    end_date_lte: Moment | None = None
    end_date_lt: Moment | None = None
    dag_id_pattern: Pattern | None = None
    dag_id_prefix_pattern: Pattern | None = None
    run_id_pattern: Pattern | None = None
    run_id_prefix_pattern: Pattern | None = None


class RunQuery(Times):
    """Which runs."""

    order_by: Annotated[list[Annotated[str, sortable(RUN_ORDER)]], SORTING]
    state: Annotated[list[Annotated[str, among(RunState)]], Field(default_factory=list, max_length=20)]
    run_type: Annotated[list[RunType], Field(default_factory=list, max_length=20)]
    dag_version: Annotated[list[Number], Field(default_factory=list, max_length=100)]
    triggering_user_name_pattern: Pattern | None = None
    triggering_user_name_prefix_pattern: Pattern | None = None

    def filter(self, dag_id: str) -> RunFilter:
        """Return the filter. Raises `Problem`."""
        return RunFilter(
            dag_ids=all_or_one(dag_id),
            states=run_states(self.state),
            run_types=self.run_type or None,
            version_numbers=self.dag_version or None,
            dag_id_pattern=self.dag_id_pattern,
            dag_id_prefix=self.dag_id_prefix_pattern,
            run_id_pattern=self.run_id_pattern,
            run_id_prefix=self.run_id_prefix_pattern,
            triggered_by_pattern=self.triggering_user_name_pattern,
            triggered_by_prefix=self.triggering_user_name_prefix_pattern,
            times=spans_of(self, RUN_TIMES),
            order=order_of(self.order_by, RUN_ORDER, RunFilter().order, "run_id"),
        )


class AttemptQuery(Times):
    """Which task instances, in Airflow's states."""

    order_by: Annotated[list[Annotated[str, sortable(ATTEMPT_ORDER)]], SORTING]
    state: Annotated[list[Annotated[str, among(STATE_WORDS)]], Field(default_factory=list, max_length=20)]
    task_id: Name | None = None
    pool: Annotated[list[Name], Field(default_factory=list, max_length=100)]
    operator: Annotated[list[Name], Field(default_factory=list, max_length=20)]
    try_number: Annotated[list[Number], Field(default_factory=list, max_length=100)]
    version_number: Annotated[list[Number], Field(default_factory=list, max_length=100)]
    map_index: Annotated[list[int], Field(default_factory=list, max_length=100)]
    task_display_name_pattern: Pattern | None = None
    task_display_name_prefix_pattern: Pattern | None = None
    pool_name_pattern: Pattern | None = None
    pool_name_prefix_pattern: Pattern | None = None

    def filter(self, dag_id: str, run_id: str) -> AttemptFilter:
        """Return the filter. Raises `Problem`."""
        unmapped = not self.map_index or -1 in self.map_index  # no task of ours is mapped
        return AttemptFilter(
            dag_ids=all_or_one(dag_id),
            run_ids=all_or_one(run_id),
            task_ids=None if self.task_id is None else (self.task_id,),
            states=in_our_words(self.state) if unmapped else (),
            pools=self.pool or None,
            operators=self.operator or None,
            try_numbers=self.try_number or None,
            version_numbers=self.version_number or None,
            dag_id_pattern=self.dag_id_pattern,
            dag_id_prefix=self.dag_id_prefix_pattern,
            run_id_pattern=self.run_id_pattern,
            run_id_prefix=self.run_id_prefix_pattern,
            task_id_pattern=self.task_display_name_pattern,
            task_id_prefix=self.task_display_name_prefix_pattern,
            pool_pattern=self.pool_name_pattern,
            pool_prefix=self.pool_name_prefix_pattern,
            times=spans_of(self, RUN_TIMES),
            order=_attempt_order(self.order_by),
        )


def _attempt_order(asked: list[str]) -> tuple[tuple[str, bool], ...]:
    order = list(order_of(asked, ATTEMPT_ORDER, AttemptFilter().order, "run_id"))
    if "task_id" not in (c for c, _ in order):
        order.append(("task_id", order[-1][1]))
    return tuple(order)
