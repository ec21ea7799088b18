"""Lists of a long history: how many rows there are is kept, and tasks are indexed in the order of their lists."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_ti_state", table_name="task_instances")
    op.create_index("ix_ti_state", "task_instances", ["state", "run_id", "task_id"])
    op.create_index(op.f("ix_runs_dag_id_started_at_run_id"), "runs", ["dag_id", "started_at", "run_id"])
    op.create_table(
        "totals",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_totals")),
    )
    if op.get_bind().dialect.name != "sqlite":
        return  # a table that is not in `totals` is counted
    for table in ("runs", "task_instances"):  # whoever makes one of these tables anew makes its triggers anew
        op.execute(f"INSERT INTO totals (name, count) SELECT '{table}', COUNT(*) FROM {table}")
        for event, change in (("INSERT", "+ 1"), ("DELETE", "- 1")):
            op.execute(
                f"CREATE TRIGGER tr_{table}_{event.lower()} AFTER {event} ON {table} BEGIN"
                f" UPDATE totals SET count = count {change} WHERE name = '{table}'; END"
            )
