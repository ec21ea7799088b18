"""How Alembic runs: on the connection it is handed, inside the caller's transaction."""

from alembic import context

from dexaflow.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
