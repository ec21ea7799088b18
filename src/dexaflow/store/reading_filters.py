"""What readers may ask for: filters as values, turned into conditions that both databases understand.

An empty filter field asks for nothing. A list that is given but empty matches nothing: a filter for a state that we do
not have must not become no filter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, false, func, or_

from dexaflow.store.transaction import iso

__all__ = [
    "AttemptFilter",
    "DagFilter",
    "Order",
    "ReviewFilter",
    "RunFilter",
    "Span",
    "contains",
    "ordering",
    "starts_with",
    "within",
]

Order = Sequence[tuple[str, bool]]  # (column, descending), the first counts most
NO_TIMES: Mapping[str, "Span"] = {}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time; each end open, closed or absent. Aware times."""

    gte: datetime | None = None
    gt: datetime | None = None
    lte: datetime | None = None
    lt: datetime | None = None


@dataclass(frozen=True, slots=True)
class DagFilter:
    """Which DAGs. `pattern` and `prefix` are Airflow's, on the `dag_id`."""

    pattern: str | None = None
    prefix: str | None = None
    paused: bool | None = None
    active_only: bool = True
    tenant_id: str | None = None
    has_errors: bool | None = None
    order: Order = (("dag_id", False),)


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs. The keys of `times` are columns of `runs`."""

    dag_ids: Sequence[str] | None = None
    tenant_id: str | None = None
    states: Sequence[str] | None = None
    run_types: Sequence[str] | None = None
    version_numbers: Sequence[int] | None = None
    dag_id_pattern: str | None = None
    dag_id_prefix: str | None = None
    run_id_pattern: str | None = None
    run_id_prefix: str | None = None
    triggered_by_pattern: str | None = None
    triggered_by_prefix: str | None = None
    times: Mapping[str, Span] = field(default_factory=lambda: NO_TIMES)
    order: Order = (("queued_at", False), ("run_id", False))


@dataclass(frozen=True, slots=True)
class AttemptFilter:
    """Which task instances, by their present try. The keys of `times` are columns of `task_instances` or `runs`."""

    dag_ids: Sequence[str] | None = None
    run_ids: Sequence[str] | None = None
    task_ids: Sequence[str] | None = None
    tenant_id: str | None = None
    states: Sequence[str] | None = None
    hook: str | None = None
    pools: Sequence[str] | None = None
    operators: Sequence[str] | None = None
    try_numbers: Sequence[int] | None = None
    version_numbers: Sequence[int] | None = None
    dag_id_pattern: str | None = None
    dag_id_prefix: str | None = None
    run_id_pattern: str | None = None
    run_id_prefix: str | None = None
    task_id_pattern: str | None = None
    task_id_prefix: str | None = None
    pool_pattern: str | None = None
    pool_prefix: str | None = None
    times: Mapping[str, Span] = field(default_factory=lambda: NO_TIMES)
    order: Order = (("run_id", False), ("task_id", False))


@dataclass(frozen=True, slots=True)
class ReviewFilter:
    """Which reviews of one run."""

    task_id: str | None = None
    try_number: int | None = None
    hook: str | None = None
    outcome: str | None = None


def contains(column: ColumnElement[str], term: str) -> ColumnElement[bool]:
    """Airflow's `*_pattern`: part of the text, ignoring case, `%` and `_` as in LIKE, `|` for or, `~` for all."""
    return or_(*(column.is_not(None) if part == "~" else column.ilike(f"%{part}%") for part in term.split("|")))


def starts_with(column: ColumnElement[str], term: str) -> ColumnElement[bool]:
    """Airflow's `*_prefix_pattern`: the beginning of the text, exactly, `|` for or, `~` for all."""
    return or_(
        *(column.is_not(None) if part == "~" else func.substr(column, 1, len(part)) == part for part in term.split("|"))
    )


def within(column: ColumnElement[str], span: Span) -> ColumnElement[bool]:
    """The time of `column` lies in `span`; a column without a time does not."""
    ends: list[ColumnElement[bool]] = []
    if span.gte is not None:
        ends.append(column >= iso(span.gte))
    if span.gt is not None:
        ends.append(column > iso(span.gt))
    if span.lte is not None:
        ends.append(column <= iso(span.lte))
    if span.lt is not None:
        ends.append(column < iso(span.lt))
    return and_(*ends) if ends else column.is_not(None)


def one_of(column: ColumnElement[Any], values: Sequence[Any] | None) -> list[ColumnElement[bool]]:
    """Conditions for a list filter: none when it was not given, never true when it is empty."""
    if values is None:
        return []
    return [column.in_(list(values))] if values else [false()]


def ordering(order: Order, columns: Mapping[str, ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    """Return the columns to sort by. Raises `KeyError` for a name that is not in `columns`."""
    return [columns[name].desc() if descending else columns[name].asc() for name, descending in order]
