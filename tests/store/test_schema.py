"""The migrations make the tables that `schema.py` describes, and nothing less safe."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, MetaData, PrimaryKeyConstraint, UniqueConstraint, inspect
from sqlalchemy.schema import CreateTable

from dexaflow.base.errors import StoreError
from dexaflow.store.migrating import migrate
from dexaflow.store.schema import metadata
from tests.store.world import World, a_task


def test_the_migrations_make_what_the_schema_says(engine: Engine) -> None:
    with engine.connect() as conn:
        assert compare_metadata(MigrationContext.configure(conn), metadata) == []
    for table in metadata.tables.values():
        made = {i["name"] for i in inspect(engine).get_indexes(table.name)}
        assert {i.name for i in table.indexes} <= made


def test_a_database_of_a_newer_dexaflow_is_one_clear_line(engine: Engine) -> None:
    with engine.begin() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match="newer Dexaflow"):
        migrate(engine)


def test_migrating_twice_changes_nothing(world: World, engine: Engine) -> None:
    world.queued(a_task())
    before = _everything(engine)
    migrate(engine)
    assert _everything(engine) == before


def _everything(engine: Engine) -> list[object]:
    with engine.connect() as conn:
        found = MetaData()
        found.reflect(conn)
        return [(str(CreateTable(table)), conn.execute(table.select()).all()) for table in found.sorted_tables]


@pytest.mark.parametrize(
    "change",
    [
        "state = 'running'",  # without a launch
        "state = 'held'",  # without a next ask
        "launch_id = 'x'",  # a launch before it was admitted
        "state = 'unheard of'",
        "try_number = 0",
        "pool_slots = 0",
    ],
)
def test_what_must_never_be_is_refused_by_the_database_itself(world: World, change: str) -> None:
    world.queued(a_task())
    with pytest.raises(StoreError):
        world.do(lambda tx: tx.run(f"UPDATE task_instances SET {change}"))


def test_every_foreign_key_leads_an_index() -> None:
    """Without one, the removal of each row that is pointed at walks through the whole table that points."""
    for table in metadata.tables.values():
        leading = {next(iter(index.columns)).name for index in table.indexes} | {
            next(iter(key.columns)).name
            for key in table.constraints
            if isinstance(key, PrimaryKeyConstraint | UniqueConstraint) and key.columns
        }
        for column in table.columns:
            assert not column.foreign_keys or column.name in leading, f"{table.name}.{column.name}"
