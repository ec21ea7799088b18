"""Runs are indexed by their version: which versions are still needed is told without walking through all runs."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_runs_version_id"), "runs", ["version_id"], if_not_exists=True)
