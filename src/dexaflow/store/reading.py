"""Reading the database for people: every list paged, every statement one short transaction.

A `Reader` is synchronous and may be called from several threads; it writes nothing. Cost follows the page and the
filter: what is asked about one run is found by that run's index.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Row,
    Select,
    and_,
    exists,
    func,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from dexaflow.base.errors import NotFound, StoreError, not_found
from dexaflow.model.dags import DagSpec
from dexaflow.model.states import State
from dexaflow.store.reading_filters import (
    AttemptFilter,
    DagFilter,
    ReviewFilter,
    RunFilter,
    contains,
    one_of,
    ordering,
    starts_with,
    within,
)
from dexaflow.store.reading_rows import (
    AttemptRow,
    DagErrorRow,
    DagRow,
    Page,
    PoolRow,
    ResultRow,
    ReviewRow,
    RunRow,
    VersionRow,
    WatchedTask,
)
from dexaflow.store.reading_statements import (
    HELD,
    attempt_row,
    attempt_select,
    dag_row,
    dag_select,
    has_errors,
    names,
    of_task,
    parse_spec,
    patterns,
    run_page,
    run_row,
    run_select,
    watched_select,
    watched_task,
    with_slots,
)
from dexaflow.store.reading_waits import room_for
from dexaflow.store.schema import (
    attempt_history,
    dag_errors,
    dag_versions,
    dags,
    pools,
    results,
    reviews,
    runs,
    task_instances,
)

__all__ = ["Reader"]

_MAX_LISTED = 20  # names that one message lists


class Reader:
    """Reads for people and programs; nothing here changes anything.

    Every method raises `StoreError` when the database cannot be read; those that name one thing raise `NotFound`.

    Args:
        engine: Where from; it stays the caller's to dispose of.
        parallelism: How many attempts may be on their way at once; None: nobody says so.
        tenants: Those of the configuration, also while nothing of theirs is in the database.
    """

    def __init__(self, engine: Engine, *, parallelism: int | None = None, tenants: Iterable[str] = ()) -> None:
        self._engine = engine
        self._parallelism = parallelism
        self._tenants = frozenset(tenants)

    # -- tenants ----------------------------------------------------------------------------------------------------

    def check_tenant(self, tenant_id: str) -> None:
        """Raise `NotFound` when no tenant of that name is configured, nor any DAG or DAG file of one known."""
        if tenant_id in self._tenants:
            return
        with self._reading() as conn:
            kept = {
                str(r.tenant_id)
                for table in (dags, dag_errors)
                for r in conn.execute(select(table.c.tenant_id).distinct())
            }
        if tenant_id not in kept:
            raise NotFound(f"there is no tenant '{tenant_id}'; there is {_listed(sorted(self._tenants | kept))}")

    # -- DAGs -------------------------------------------------------------------------------------------------------

    def dags(self, asked: DagFilter, *, limit: int, offset: int = 0) -> Page[DagRow]:
        """Return DAGs with their latest versions."""
        where: list[ColumnElement[bool]] = []
        if asked.active_only:
            where.append(dags.c.is_active.is_(True))
        if asked.paused is not None:
            where.append(dags.c.is_paused.is_(asked.paused))
        if asked.tenant_id is not None:
            where.append(dags.c.tenant_id == asked.tenant_id)
        if asked.pattern is not None:
            where.append(contains(dags.c.dag_id, asked.pattern))
        if asked.prefix is not None:
            where.append(starts_with(dags.c.dag_id, asked.prefix))
        if asked.has_errors is not None:
            where.append(has_errors() if asked.has_errors else ~has_errors())
        order = ordering(asked.order, dict(dags.c.items()))
        found, total = self._page(dag_select(), where, order, limit, offset, count_from=dags)
        return Page([dag_row(r) for r in found], total)

    def dag(self, dag_id: str) -> DagRow:
        """Return one DAG, also one whose file is gone. Raises `NotFound`."""
        row = self._first(dag_select().where(dags.c.dag_id == dag_id))
        if row is None:
            raise not_found("DAG", dag_id)
        return dag_row(row)

    def versions(self, dag_id: str, *, limit: int, offset: int = 0, newest_first: bool = False) -> Page[VersionRow]:
        """Return the kept versions of a DAG."""
        columns = [dag_versions.c[name] for name in names(VersionRow)]
        order = [dag_versions.c.number.desc() if newest_first else dag_versions.c.number.asc()]
        found, total = self._page(select(*columns), [dag_versions.c.dag_id == dag_id], order, limit, offset,
                                  count_from=dag_versions)  # fmt: skip
        return Page([VersionRow(**r._mapping) for r in found], total)

    def version(self, dag_id: str, number: int) -> VersionRow:
        """Return one version of a DAG by its number. Raises `NotFound`."""
        columns = [dag_versions.c[name] for name in names(VersionRow)]
        row = self._first(select(*columns).where(dag_versions.c.dag_id == dag_id, dag_versions.c.number == number))
        if row is None:
            raise NotFound(f"DAG '{dag_id}' has no version {number}")
        return VersionRow(**row._mapping)

    def spec(self, version_id: int) -> DagSpec:
        """Return the DAG of one version. Raises `NotFound`."""
        row = self._first(select(dag_versions.c.spec).where(dag_versions.c.id == version_id))
        if row is None:
            raise NotFound(f"there is no DAG version {version_id}")
        return parse_spec(row.spec)

    def dag_errors(
        self, *, tenant_id: str | None = None, file: str | None = None, pattern: str | None = None, limit: int,
        offset: int = 0,
    ) -> Page[DagErrorRow]:  # fmt: skip
        """Return what is wrong with DAG files now (R2.2), by tenant, file and line."""
        where: list[ColumnElement[bool]] = []
        if tenant_id is not None:
            where.append(dag_errors.c.tenant_id == tenant_id)
        if file is not None:
            where.append(dag_errors.c.file == file)
        if pattern is not None:
            where.append(contains(dag_errors.c.file, pattern))
        order = [dag_errors.c.tenant_id, dag_errors.c.file, dag_errors.c.line, dag_errors.c.id]
        found, total = self._page(select(dag_errors), where, order, limit, offset, count_from=dag_errors)
        return Page([DagErrorRow(**r._mapping) for r in found], total)

    def dag_error(self, error_id: int) -> DagErrorRow:
        """Return one of them. Raises `NotFound`."""
        row = self._first(select(dag_errors).where(dag_errors.c.id == error_id))
        if row is None:
            raise NotFound(f"there is no import error {error_id}; it may have been put right")
        return DagErrorRow(**row._mapping)

    # -- runs -------------------------------------------------------------------------------------------------------

    def runs(self, asked: RunFilter, *, limit: int, offset: int = 0) -> Page[RunRow]:
        """Return runs."""
        where: list[ColumnElement[bool]] = [
            *one_of(runs.c.dag_id, asked.dag_ids),
            *one_of(runs.c.state, asked.states),
            *one_of(runs.c.run_type, asked.run_types),
        ]
        if asked.version_numbers is not None:
            numbers = one_of(dag_versions.c.number, asked.version_numbers)
            where.append(exists().where(dag_versions.c.id == runs.c.version_id, *numbers).correlate(runs))
        if asked.tenant_id is not None:
            where.append(runs.c.tenant_id == asked.tenant_id)
        where.extend(
            patterns(
                (runs.c.dag_id, asked.dag_id_pattern, asked.dag_id_prefix),
                (runs.c.run_id, asked.run_id_pattern, asked.run_id_prefix),
                (runs.c.triggered_by, asked.triggered_by_pattern, asked.triggered_by_prefix),
            )
        )
        where.extend(within(runs.c[name], span) for name, span in asked.times.items())
        order = ordering(asked.order, dict(runs.c.items()))
        found, total = self._page(run_select(), where, order, limit, offset, count_from=runs)
        return Page([run_row(r) for r in found], total)

    def run(self, run_id: str) -> RunRow:
        """Return one run. Raises `NotFound`."""
        row = self._first(run_select().where(runs.c.run_id == run_id))
        if row is None:
            raise not_found("run", run_id)
        return run_row(row)

    def active_runs(self, dag_id: str) -> int:
        """Return how many runs of a DAG are under way."""
        row = self._first(
            select(func.count().label("n")).select_from(runs).where(runs.c.dag_id == dag_id, runs.c.state == "running")
        )
        return 0 if row is None else int(row.n)

    # -- task instances ---------------------------------------------------------------------------------------------

    def attempts(self, asked: AttemptFilter, *, limit: int, offset: int = 0) -> Page[AttemptRow]:
        """Return task instances: the present try of each."""
        ti = task_instances.c
        where: list[ColumnElement[bool]] = [
            *one_of(ti.dag_id, asked.dag_ids),
            *one_of(ti.run_id, asked.run_ids),
            *one_of(ti.task_id, asked.task_ids),
            *one_of(ti.pool, asked.pools),
            *one_of(ti.operator, asked.operators),
            *one_of(ti.try_number, asked.try_numbers),
        ]
        if asked.states is not None and list(asked.states) == ["held"]:
            where.append(HELD)
        else:
            where.extend(one_of(ti.state, asked.states))
        if asked.version_numbers is not None:
            numbers = one_of(dag_versions.c.number, asked.version_numbers)
            where.append(exists().where(dag_versions.c.id == ti.version_id, *numbers).correlate(task_instances))
        if asked.tenant_id is not None:
            where.append(ti.tenant_id == asked.tenant_id)
        if asked.hook is not None:
            where.append(ti.hook == asked.hook)
        where.extend(
            patterns(
                (ti.dag_id, asked.dag_id_pattern, asked.dag_id_prefix),
                (ti.run_id, asked.run_id_pattern, asked.run_id_prefix),
                (ti.task_id, asked.task_id_pattern, asked.task_id_prefix),
                (ti.pool, asked.pool_pattern, asked.pool_prefix),
            )
        )
        of_run: list[ColumnElement[bool]] = []
        for name, span in asked.times.items():
            if name in ti:
                where.append(within(ti[name], span))
            else:
                of_run.append(within(runs.c[name], span))
        if of_run:
            where.append(exists().where(runs.c.run_id == ti.run_id, *of_run).correlate(task_instances))
        columns = {**{name: runs.c[name] for name in ("logical_date", "run_after")}, **dict(ti.items())}
        order = ordering(asked.order, columns)
        with self._reading() as conn:
            found, total = run_page(conn, attempt_select(task_instances), where, order, limit, offset, task_instances)
            room = room_for(conn, found, self._parallelism)
        return Page([attempt_row(r, room) for r in found], total)

    def attempt(self, run_id: str, task_id: str, try_number: int | None = None) -> AttemptRow:
        """Return one try of a task instance, the present one unless another is named. Raises `NotFound`."""
        present = attempt_select(task_instances, placement=True).where(*of_task(task_instances, run_id, task_id))
        with self._reading() as conn:
            row = conn.execute(present).first()
            room = None if row is None else room_for(conn, [row], self._parallelism)
        if row is None:
            self.run(run_id)
            raise NotFound(f"run '{run_id}' has no task '{task_id}'; `dexaflow tasks list {run_id}` shows them")
        if try_number is None or row.try_number == try_number:
            return attempt_row(row, room)
        earlier = self._first(
            attempt_select(attempt_history, placement=True).where(
                *of_task(attempt_history, run_id, task_id), attempt_history.c.try_number == try_number
            )
        )
        if earlier is None:
            raise NotFound(
                f"task '{task_id}' of run '{run_id}' has no try {try_number}; its latest try is {row.try_number}"
            )
        return attempt_row(earlier)

    def tries(self, run_id: str, task_id: str) -> Sequence[AttemptRow]:
        """Return every try of a task instance, the first one first. Raises `NotFound`."""
        with self._reading() as conn:
            earlier = conn.execute(
                attempt_select(attempt_history)
                .where(*of_task(attempt_history, run_id, task_id))
                .order_by(attempt_history.c.try_number)
            ).all()
            present = conn.execute(
                attempt_select(task_instances).where(*of_task(task_instances, run_id, task_id))
            ).first()
            room = None if present is None else room_for(conn, [present], self._parallelism)
        if present is None:
            raise NotFound(f"run '{run_id}' has no task '{task_id}'; `dexaflow tasks list {run_id}` shows them")
        # A try that never came to be due gives its number to the next one: the present try counts.
        return [attempt_row(r) for r in earlier if r.try_number != present.try_number] + [attempt_row(present, room)]

    def states(self, run_id: str) -> Mapping[str, str]:
        """Return the state of every task of a run."""
        with self._reading() as conn:
            found = conn.execute(
                select(task_instances.c.task_id, task_instances.c.state).where(task_instances.c.run_id == run_id)
            ).all()
        return {r.task_id: r.state for r in found}

    def upstream(self, row: AttemptRow) -> Mapping[str, str]:
        """Return the tasks directly upstream of a task that waits for them, with their states; else nothing."""
        if row.state != State.NONE:
            return {}
        task = next((t for t in self.spec(row.version_id).tasks if t.task_id == row.task_id), None)
        states = self.states(row.run_id)
        return {} if task is None else {up: states[up] for up in task.upstream if up in states}

    def state_counts(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """Return how many tasks of each run are in which state."""
        counts: dict[str, dict[str, int]] = {run_id: {} for run_id in run_ids}
        if not run_ids:
            return counts
        ti = task_instances.c
        with self._reading() as conn:
            for r in conn.execute(
                select(ti.run_id, ti.state, func.count().label("n"))
                .where(ti.run_id.in_(list(run_ids)))
                .group_by(ti.run_id, ti.state)
            ):
                counts[r.run_id][r.state] = int(r.n)
        return counts

    def watched(self, run_id: str) -> tuple[RunRow, Sequence[WatchedTask]]:
        """Return a run and what may change about its tasks, in one snapshot. Raises `NotFound`."""
        with self._reading() as conn:
            run = conn.execute(run_select().where(runs.c.run_id == run_id)).first()
            tasks = conn.execute(
                watched_select().where(task_instances.c.run_id == run_id).order_by(task_instances.c.task_id)
            ).all()
            room = room_for(conn, tasks, self._parallelism)
        if run is None:
            raise not_found("run", run_id)
        return run_row(run), [watched_task(t, room) for t in tasks]

    # -- admission --------------------------------------------------------------------------------------------------

    def reviews_of(self, attempt_id: str, *, limit: int = 1000) -> Sequence[ReviewRow]:
        """Return what hooks answered about one try, in order; the latest `limit` entries."""
        columns = [reviews.c[name] for name in names(ReviewRow)]
        with self._reading() as conn:
            found = conn.execute(
                select(*columns).where(reviews.c.attempt_id == attempt_id).order_by(reviews.c.id.desc()).limit(limit)
            ).all()
        return [ReviewRow(**r._mapping) for r in reversed(found)]

    def reviews(self, run_id: str, asked: ReviewFilter, *, limit: int, offset: int = 0) -> Page[ReviewRow]:
        """Return what hooks answered about the attempts of one run, in order. Raises `NotFound`."""
        self.run(run_id)
        where: list[ColumnElement[bool]] = [reviews.c.run_id == run_id]
        for column, value in (
            (reviews.c.task_id, asked.task_id),
            (reviews.c.try_number, asked.try_number),
            (reviews.c.hook, asked.hook),
            (reviews.c.outcome, asked.outcome),
        ):
            if value is not None:
                where.append(column == value)
        columns = [reviews.c[name] for name in names(ReviewRow)]
        found, total = self._page(select(*columns), where, [reviews.c.id], limit, offset, count_from=reviews)
        return Page([ReviewRow(**r._mapping) for r in found], total)

    # -- pools, results ---------------------------------------------------------------------------------------------

    def pools(
        self, *, limit: int, offset: int = 0, pattern: str | None = None, prefix: str | None = None,
        descending: bool = False,
    ) -> Page[PoolRow]:  # fmt: skip
        """Return pools by name, with what their slots are doing."""
        where = patterns((pools.c.pool, pattern, prefix))
        order = [pools.c.pool.desc() if descending else pools.c.pool.asc()]
        with self._reading() as conn:
            found, total = run_page(conn, select(pools), where, order, limit, offset, pools)
            return Page(with_slots(conn, found), total)

    def pool(self, name: str) -> PoolRow:
        """Return one pool. Raises `NotFound`."""
        with self._reading() as conn:
            found = conn.execute(select(pools).where(pools.c.pool == name)).all()
            if not found:
                raise not_found("pool", name)
            return with_slots(conn, found)[0]

    def result(self, run_id: str, task_id: str) -> ResultRow | None:
        """Return what a task returned, or None: nothing yet, or nothing at all."""
        ti = task_instances
        row = self._first(
            select(
                results.c.task_id, results.c.value, ti.c.ended_at, runs.c.logical_date, runs.c.run_after,
                runs.c.dag_id, runs.c.run_id,
            )
            .select_from(
                results.join(runs, runs.c.run_id == results.c.run_id).join(
                    ti, and_(ti.c.run_id == results.c.run_id, ti.c.task_id == results.c.task_id)
                )
            )
            .where(results.c.run_id == run_id, results.c.task_id == task_id)
        )  # fmt: skip
        return None if row is None else ResultRow(**row._mapping)

    # -- how --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as conn:
                yield conn
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or type(error).__name__
            raise StoreError(f"the database cannot be read: {cause}; try again, or see the server's log") from error

    def _first(self, statement: Select[Any]) -> Row[Any] | None:
        with self._reading() as conn:
            row: Row[Any] | None = conn.execute(statement).first()
            return row

    def _page(
        self,
        statement: Select[Any],
        where: Sequence[ColumnElement[bool]],
        order: Sequence[ColumnElement[Any]],
        limit: int,
        offset: int,
        count_from: FromClause,
    ) -> tuple[Sequence[Row[Any]], int]:
        with self._reading() as conn:
            return run_page(conn, statement, where, order, limit, offset, count_from)


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:_MAX_LISTED])
    if len(names) > _MAX_LISTED:
        shown.append(f"{len(names) - _MAX_LISTED} more")
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown) or "none yet"
