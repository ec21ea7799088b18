"""What SQLite's planner is told about the tables: what a long history looks like, whatever is in them now.

Without statistics the planner takes the index of all states for `state = 'held'`, since any equality looks good to it,
and walks through ten thousand held attempts where the index of held ones has the answer at its first entry. Statistics
that follow the data (ANALYZE) would be right sometimes; these are the same for every database, so that a statement runs
as it ran under test.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection

__all__ = ["tell_planner"]

# By index: how many rows are in it, then how many of them share its first column, its first two, and so on.
_EXPECTED: Final[Mapping[str, str]] = {
    "sqlite_autoindex_task_instances_1": "1000000 1",  # attempt_id
    "sqlite_autoindex_task_instances_2": "1000000 10 1",  # run_id, task_id
    "ix_ti_dag": "1000000 10000 2000",
    # So many of one state that the indexes of a single state are better, and so few that it is better than walking
    # through all tasks for a page of those in one of several states.
    "ix_ti_state": "1000000 20000 10 1",
    "ix_ti_launch": "1000000 1",
    "ix_ti_scheduled": "1000 500 10 1",
    "ix_ti_occupying": "100 50 25",
    "ix_ti_retry": "100 1",
    "ix_ti_held_due": "10000 1000 1",
    "ix_ti_held_hook": "10000 5000 1",
}


def tell_planner(conn: Connection) -> None:
    """Give SQLite these statistics in place of any others; for another database do nothing."""
    if conn.dialect.name != "sqlite":
        return
    wanted = {("task_instances", index, rows) for index, rows in _EXPECTED.items()}
    kept = [r.name for r in conn.exec_driver_sql("SELECT name FROM sqlite_schema WHERE name GLOB 'sqlite_stat*'")]
    if kept == ["sqlite_stat1"]:
        if {tuple(r) for r in conn.exec_driver_sql("SELECT tbl, idx, stat FROM sqlite_stat1")} == wanted:
            return
    else:
        conn.exec_driver_sql("ANALYZE leader")  # makes the table that the statistics are in
    for table in {*kept, "sqlite_stat1"}:  # some builds of SQLite keep samples in another, which count for more
        conn.exec_driver_sql(f"DELETE FROM {table}")
    for row in sorted(wanted):
        conn.exec_driver_sql("INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES (?, ?, ?)", row)
    conn.exec_driver_sql("ANALYZE sqlite_schema")  # reads them anew
