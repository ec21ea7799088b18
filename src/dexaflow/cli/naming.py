"""How people name a run."""

from typing import TYPE_CHECKING

from dexaflow.base.errors import UsageError
from dexaflow.base.text import quoted
from dexaflow.cli.client import Client, own

if TYPE_CHECKING:
    from dexaflow.api.own import shapes

__all__ = ["run_id_of"]

LATEST = "@latest"  # no id holds an @


def run_id_of(client: Client, run: str) -> str:
    """Return the id of the run that was named: by its id, or as `DAG@latest`, or `@latest` for the newest of all.

    Raises:
        UsageError: that DAG has no run.
    """
    if not run.endswith(LATEST):
        return run
    dag_id = run.removesuffix(LATEST)
    page: shapes.RunPage = client.get(own("runs"), {"dag_id": dag_id or None, "limit": 1})
    if not page["runs"]:
        whose = f"DAG {quoted(dag_id)} has no run" if dag_id else "there is no run"
        raise UsageError(f"{whose}; `dexaflow runs trigger` makes one")
    return page["runs"][0]["run_id"]
