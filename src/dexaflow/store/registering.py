"""DAGs and their versions."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from sqlalchemy import Engine

from dexaflow.base.errors import DagError, NotFound
from dexaflow.base.steps import Step, reached
from dexaflow.model.dags import DagSpec
from dexaflow.store.transaction import Tx, from_iso, iso

__all__ = [
    "DagFile",
    "NextRun",
    "keep_errors",
    "known_files",
    "register_file",
    "remove_file",
    "spec_if_readable",
    "spec_of",
    "version_row",
]

log = structlog.get_logger()

# (spec, latest scheduled logical date or None, registered at) -> when the schedule makes its next run
NextRun = Callable[[DagSpec, datetime | None, datetime], datetime | None]


@dataclass(frozen=True, slots=True)
class DagFile:
    """One loaded file: where it stands, the snapshot it was loaded from, its DAGs.

    `tenants` are those of the configuration; None: nobody says so.
    """

    tenant_id: str
    file: str
    snapshot: str
    dags: Sequence[DagSpec]
    tenants: Collection[str] | None = None


def keep_errors(tx: Tx, tenant_id: str, file: str, errors: Sequence[DagError]) -> None:
    """Replace what is known to be wrong with one file."""
    tx.run("DELETE FROM dag_errors WHERE tenant_id = :tenant_id AND file = :file", tenant_id=tenant_id, file=file)
    tx.many(
        "INSERT INTO dag_errors (tenant_id, file, line, cause, seen_at)"
        " VALUES (:tenant_id, :file, :line, :cause, :now)",
        [{"tenant_id": tenant_id, "file": file, "line": e.line, "cause": e.cause, "now": tx.now_iso} for e in errors],
    )


def register_file(
    tx: Tx, loaded: DagFile, errors: Sequence[DagError], next_run: NextRun
) -> tuple[tuple[DagError, ...], tuple[str, ...]]:
    """Make a file's DAGs the latest versions; what it no longer holds becomes inactive.

    Returns all its errors, and the ids of the DAGs that are registered.

    A DAG whose name another tenant or file has is an error here and changes nothing there. A tenant keeps its names
    while a file is gone, until the configuration no longer knows the tenant; runs stay their tenant's.

    A DAG named in `errors`
    (by being absent from `loaded.dags` while its file failed) keeps its last good version when the file as a whole
    could not be loaded; that case never comes here, see `keep_errors`.
    """
    found = list(errors)
    names: set[str] = set()
    for spec in loaded.dags:
        problem = _register(tx, loaded, spec, next_run)
        if problem:
            found.append(DagError(loaded.file, spec.line, problem))
        else:
            names.add(spec.dag_id)
    if not errors:
        for row in tx.all(
            "SELECT dag_id FROM dags WHERE tenant_id = :t AND file = :f AND is_active",
            t=loaded.tenant_id,
            f=loaded.file,
        ):
            if row.dag_id not in names:
                _deactivate(tx, row.dag_id)
    keep_errors(tx, loaded.tenant_id, loaded.file, found)
    reached(Step.VERSION_WRITTEN)
    return tuple(found), tuple(sorted(names))


def remove_file(tx: Tx, tenant_id: str, file: str) -> None:
    """A file is gone: its DAGs make no more runs; runs under way go on with their version."""
    for row in tx.all("SELECT dag_id FROM dags WHERE tenant_id = :t AND file = :f AND is_active", t=tenant_id, f=file):
        _deactivate(tx, row.dag_id)
    keep_errors(tx, tenant_id, file, ())


def known_files(tx: Tx) -> list[tuple[str, str]]:
    """Return (tenant, file) of all that has DAGs now or an error: what must be found again, or else be published gone.

    What is wrong with a file is known without any DAG of it, and must go with the file too.
    """
    rows = tx.all("SELECT tenant_id, file FROM dags WHERE is_active UNION SELECT tenant_id, file FROM dag_errors")
    return [(r.tenant_id, r.file) for r in rows]


def _deactivate(tx: Tx, dag_id: str) -> None:
    tx.run(
        "UPDATE dags SET is_active = false, next_run_at = NULL, updated_at = :now WHERE dag_id = :d",
        d=dag_id, now=tx.now_iso,
    )  # fmt: skip


def _register(tx: Tx, loaded: DagFile, spec: DagSpec, next_run: NextRun) -> str | None:
    row = tx.one("SELECT * FROM dags WHERE dag_id = :d", d=spec.dag_id)
    if row is not None and row.is_active and (row.tenant_id, row.file) != (loaded.tenant_id, loaded.file):
        same = row.tenant_id == loaded.tenant_id
        where = f" by {row.file}" if same else ""  # another tenant's files are not ours to name
        return f"dag_id '{spec.dag_id}' is already taken{where}; choose another"
    if row is not None and row.tenant_id != loaded.tenant_id:
        if loaded.tenants is None or row.tenant_id in loaded.tenants:
            return f"dag_id '{spec.dag_id}' is already taken, by a DAG whose file is gone; choose another"
        log.info("dag_moved", dag_id=spec.dag_id, tenant_id=loaded.tenant_id, before=row.tenant_id)
    document = json.dumps(spec.to_json(), sort_keys=True, separators=(",", ":"))
    latest = tx.one(
        "SELECT id, number, snapshot, file, spec FROM dag_versions WHERE dag_id = :d ORDER BY number DESC LIMIT 1",
        d=spec.dag_id,
    )
    if latest is not None and (latest.snapshot, latest.file, latest.spec) == (loaded.snapshot, loaded.file, document):
        version_id = latest.id
    else:
        inserted = tx.one(
            "INSERT INTO dag_versions (dag_id, number, snapshot, file, spec, created_at)"
            " VALUES (:d, :number, :snapshot, :file, :spec, :now) RETURNING id",
            d=spec.dag_id, number=1 if latest is None else latest.number + 1,
            snapshot=loaded.snapshot, file=loaded.file, spec=document, now=tx.now_iso,
        )  # fmt: skip
        assert inserted is not None
        version_id = inserted.id
    if row is not None and row.is_active and row.version_id == version_id:
        return None  # as it was
    registered = tx.now if row is None else from_iso(row.registered_at)
    last = None if row is None or row.last_logical_date is None else from_iso(row.last_logical_date)
    due = next_run(spec, last, registered)
    values = {
        "d": spec.dag_id, "t": loaded.tenant_id, "f": loaded.file, "v": version_id, "now": tx.now_iso,
        "due": None if due is None else iso(due),
    }  # fmt: skip
    if row is None:
        tx.run(
            "INSERT INTO dags (dag_id, tenant_id, file, version_id, registered_at, updated_at, next_run_at)"
            " VALUES (:d, :t, :f, :v, :now, :now, :due)",
            **values,
        )
    else:
        tx.run(
            "UPDATE dags SET tenant_id = :t, file = :f, version_id = :v, is_active = true, updated_at = :now,"
            " next_run_at = :due WHERE dag_id = :d",
            **values,
        )
    return None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a DAG, ready to run."""

    id: int
    dag_id: str
    snapshot: str
    file: str
    spec: DagSpec


_MAX_KNOWN = 512
# By database. The rest of the key tells a version from one whose id was given out again after it was removed.
_known: WeakKeyDictionary[Engine, dict[tuple[Any, ...], Version]] = WeakKeyDictionary()


def version_row(tx: Tx, version_id: int) -> Version:
    """Return one version. Raises `NotFound`."""
    row = tx.one("SELECT id, dag_id, number, snapshot, file FROM dag_versions WHERE id = :v", v=version_id)
    if row is None:
        raise NotFound(f"there is no DAG version {version_id}")
    # A version is never changed, and its document may have megabytes: it is read once, not with each attempt.
    known = _known.setdefault(tx.conn.engine, {})
    key = (row.id, row.dag_id, row.number, row.snapshot, row.file)
    version = known.get(key)
    if version is None:
        document = tx.one("SELECT spec FROM dag_versions WHERE id = :v", v=version_id)
        assert document is not None
        spec = DagSpec.from_json(json.loads(document.spec))
        if len(known) >= _MAX_KNOWN:
            known.clear()
        version = known[key] = Version(row.id, row.dag_id, row.snapshot, row.file, spec)
    return version


def spec_of(tx: Tx, version_id: int) -> DagSpec:
    """Return the DAG of one version. Raises `NotFound`, or `ValueError` when another Dexaflow wrote it differently."""
    return version_row(tx, version_id).spec


def spec_if_readable(tx: Tx, version_id: int) -> DagSpec | None:
    """Return the DAG of one version, or None and a line in the log: for loops, in which one DAG must not stop all."""
    try:
        return spec_of(tx, version_id)
    except (NotFound, ValueError, LookupError, TypeError) as error:
        log.error("version_unreadable", version_id=version_id, cause=f"{type(error).__name__}: {error}")
        return None
