"""The database: schema, migrations, and every statement."""
