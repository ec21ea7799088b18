"""Since when a DAG is paused, and by whom"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("dags", sa.Column("paused_at", sa.String(length=40), nullable=True))
    op.add_column("dags", sa.Column("paused_by", sa.String(length=100), server_default="", nullable=False))
