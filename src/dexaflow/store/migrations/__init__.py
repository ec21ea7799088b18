"""Alembic's environment and the migrations, forward only."""
