"""What a million finished task instances do to scheduling and to lists: nothing, if all goes well."""

import shutil
import tempfile
from pathlib import Path

from sqlalchemy import Connection, text

from bench.database import Database
from bench.past import LISTINGS, PARALLELISM, TASKS, register
from bench.rounds import Figures, fresh, rounds
from bench.scale import Scale
from bench.table import Line, line

__all__ = ["against_an_empty_database"]

DAGS, TASKS_OF_RUN = 20, 10
PRESENT_RUNS = 2_000  # in both: as many as fill every page that is listed

# Everything by number, in one statement for each table; the oldest first, as it would have come.
_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :after) "
_DAG = f"printf('past_%02d', i % {DAGS})"
_VERSION = f"(SELECT version_id FROM dags WHERE dag_id = {_DAG})"
_RUN = "printf('past-%012d', i)"
_AT = "strftime('%Y-%m-%dT%H:%M:%S.000000Z', 1700000000 + i * 60, 'unixepoch')"
_STATE = "CASE WHEN i % 10 = 0 THEN 'failed' ELSE 'success' END"
_INSERT_RUNS = (
    "INSERT INTO runs (run_id, dag_id, tenant_id, version_id, run_type, state, run_after, queued_at, started_at,"
    f" ended_at, dirty) {_NUMBERS} SELECT {_RUN}, {_DAG}, 'acme', {_VERSION}, 'manual', {_STATE}, {_AT}, {_AT}, {_AT},"
    f" {_AT}, false FROM n"
)
_NUMBER = f"i * {TASKS_OF_RUN} + task"
_TASKS = f", t(task) AS (SELECT 0 UNION ALL SELECT task + 1 FROM t WHERE task + 1 < {TASKS_OF_RUN})"
_PLACEMENT = (
    '{"image":"ghcr.io/acme/etl:2024-11","resources":{"requests":{},"limits":{}},"execution":{"labels":{"a":"b"}}}'
)
_INSERT_TASKS = (
    "INSERT INTO task_instances (attempt_id, run_id, task_id, dag_id, tenant_id, version_id, try_number, max_tries,"
    " state, operator, pool, pool_slots, scheduled_at, queued_at, launched_at, started_at, ended_at, launch_id,"
    f" exit_code, placement) {_NUMBERS}{_TASKS} SELECT printf('a-%034d', {_NUMBER}), {_RUN}, printf('t%03d', task),"
    f" {_DAG}, 'acme', {_VERSION}, 1, 1, CASE WHEN task = 9 THEN {_STATE} ELSE 'success' END, 'bash', 'default_pool',"
    f" 1, {_AT}, {_AT}, {_AT}, {_AT}, {_AT}, printf('l-%034d', {_NUMBER}), 0, '{_PLACEMENT}' FROM n, t ORDER BY i, task"
)
_INSERT_REVIEWS = (
    "INSERT INTO reviews (attempt_id, run_id, task_id, try_number, hook, outcome, reason, changes, uid, incident,"
    f" seconds, first_at, last_at, count) {_NUMBERS}{_TASKS} SELECT printf('a-%034d', {_NUMBER}), {_RUN},"
    f" printf('t%03d', task), 1, 'webhook', 'admit', '', '{{}}', printf('u-%034d', {_NUMBER}), '', 0.01, {_AT}, {_AT},"
    " 1 FROM n, t ORDER BY i, task"
)


def _fill(conn: Connection, first: int, after: int) -> None:
    """Add finished runs, with all that belongs to them; indexes are made again afterwards, which is much faster."""
    tables = "('runs', 'task_instances', 'reviews')"
    indexes = conn.execute(
        text(f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN {tables}")
    ).all()
    for index in indexes:
        conn.execute(text(f"DROP INDEX {index.name}"))
    for statement in (_INSERT_RUNS, _INSERT_TASKS, _INSERT_REVIEWS):
        conn.exec_driver_sql(statement, {"first": first, "after": after})
    for index in indexes:
        conn.exec_driver_sql(index.sql)


def _build(folder: Path, past: int, present: int) -> Path:
    """Make a database with so many runs in the past, besides those that fill a page, and hold a hundred attempts."""
    folder.mkdir()
    database = Database(folder)
    for number in range(DAGS):
        register(database, f"past_{number:02}", TASKS_OF_RUN)
    register(database, "work", TASKS)
    with database.engine.begin() as conn:
        _fill(conn, 1_000_000 - past, 1_000_000 + present)
        conn.execute(text(
            "UPDATE task_instances SET state = 'held', hook = 'webhook', reason = 'frozen', held_at = ended_at,"
            " launch_id = NULL, next_ask_due = 1e9, next_ask_at = ended_at, ended_at = NULL WHERE run_id IN"
            " (SELECT run_id FROM runs ORDER BY queued_at DESC LIMIT 10)"
        ))  # fmt: skip
    database.engine.dispose()
    return folder


def against_an_empty_database(scale: Scale) -> list[Line]:
    """The same work on two databases, of which one has a past."""
    with tempfile.TemporaryDirectory(prefix="dexaflow-bench-") as name:
        root = Path(name)
        present = min(PRESENT_RUNS, scale.past_runs)
        folders = {"empty": _build(root / "empty", 0, present),
                   "million": _build(root / "million", scale.past_runs, present)}  # fmt: skip
        figures: dict[str, list[Figures]] = {side: [] for side in folders}

        def measure(side: str) -> float:
            work = folders[side]
            if side == "empty":  # so that it does not come to have a past of its own
                work = Path(shutil.copytree(work, root / f"copy-{len(figures[side])}"))
            found = fresh(["bench.past", str(work), str(scale.past_work), str(scale.past_pages)])
            figures[side].append(found)
            return found["scheduling"]

        found = rounds(list(folders), measure, scale.repeats)

    tasks = scale.past_runs * TASKS_OF_RUN

    def ratios(name: str) -> list[float]:
        return [
            sum(f[name] for f in figures["million"][i : i + 2]) / sum(f[name] for f in figures["empty"][i : i + 2])
            for i in range(0, 2 * scale.repeats, 2)
        ]

    return [
        line(f"scheduling with {tasks:,} finished task instances, CPU, against none", [r["million"] / r["empty"]
             for r in found], unit="x", in_flight=PARALLELISM, at_most=1.2),
        line("  an attempt from scheduled to success, without asking", [r["million"] for r in found], unit="us",
             in_flight=PARALLELISM),
        *(line(f"listing with {tasks:,} finished task instances, CPU, against none: {name}", ratios(name), unit="x",
               in_flight=1, at_most=1.2) for name in LISTINGS),
    ]  # fmt: skip
