"""`dexaflow pools`: how many tasks may run at once."""

from typing import Annotated

import typer

from dexaflow.cli.options import Data, Shown
from dexaflow.cli.output import USAGE, Output, errors_in_one_line, print_json, print_table, print_text

__all__ = ["app"]

app = typer.Typer(help="See and set pools: how many slots tasks may take at once.", no_args_is_help=True)

_MAX_NAME = 250  # the server's

Name = Annotated[str, typer.Argument(help="A pool's name.", metavar="NAME", show_default=False)]


@app.command("list")
def list_pools(data: Data = None, output: Shown = Output.TABLE) -> None:
    """List pools and what their slots are doing. A held attempt takes none."""
    from dexaflow.cli.client import airflow, connected

    with connected(data) as client:
        found = client.rows(airflow("pools"), "pools")
    if output is Output.JSON:
        print_json(found)
        return
    print_table(
        ("pool", "slots", "open", "queued", "running", "waiting", "description"),
        [
            (
                pool["name"],
                pool["slots"],
                pool["open_slots"],
                pool["queued_slots"],
                pool["running_slots"],
                pool["scheduled_slots"],
                pool["description"] or None,
            )
            for pool in found["pools"]
        ],
        empty="No pools.",
    )


@app.command("set")
def set_pool(
    name: Name,
    slots: Annotated[
        int, typer.Argument(help="How many slots it has.", metavar="SLOTS", min=0, max=2**31 - 1, show_default=False)
    ],
    description: Annotated[
        str | None, typer.Option(help="What it is for; without it what was there stays.", show_default=False)
    ] = None,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """Make a pool, or change the one of that name."""
    from dexaflow.base.text import shown
    from dexaflow.cli.client import connected, own

    with errors_in_one_line(USAGE):
        _check_new_name(name)
    with connected(data) as client:
        found = client.send("PUT", own("pools", name), {"slots": slots, "description": description})
    if output is Output.JSON:
        print_json(found)
    else:
        has = "1 slot" if found["slots"] == 1 else f"{found['slots']} slots"
        print_text(f"Pool {shown(found['name'])} has {has}, {found['open_slots']} of them open.")


def _check_new_name(name: str) -> None:
    from dexaflow.base.errors import UsageError
    from dexaflow.base.text import quoted

    if name in ("", ".", "..") or len(name) > _MAX_NAME or any(c == "/" or ord(c) < 0x20 or c == "\x7f" for c in name):
        can = f"a name has 1 to {_MAX_NAME} characters, no / and no control characters among them"
        raise UsageError(f"{quoted(name)} cannot be the name of a pool; {can}")


@app.command()
def delete(name: Name, data: Data = None) -> None:
    """Remove a pool that is not in use."""
    from dexaflow.base.text import shown
    from dexaflow.cli.client import airflow, connected

    with connected(data) as client:
        client.send("DELETE", airflow("pools", name))
    print_text(f"Pool {shown(name)} is deleted.")
