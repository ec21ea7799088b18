"""Bringing a database up to this version's schema. Migrations only go forward."""

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from dexaflow.base.errors import StoreError
from dexaflow.base.steps import Step, reached
from dexaflow.store.planning import tell_planner

__all__ = ["migrate"]


def migrate(engine: Engine) -> None:
    """Apply what is missing, in one transaction.

    Raises:
        StoreError: the database was written by a newer Dexaflow.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    script = ScriptDirectory.from_config(config)
    with engine.begin() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current == script.get_current_head():
            tell_planner(connection)
            return
        if current is not None and current not in {r.revision for r in script.walk_revisions()}:
            raise StoreError(
                f"the database is of a newer Dexaflow (schema {current}); upgrade this installation, or use other data"
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        tell_planner(connection)
        reached(Step.SCHEMA_CHANGED)
