"""`dexaflow hooks`: how the configured hooks are."""

from typing import TYPE_CHECKING

import typer

from dexaflow.cli.options import Data, Shown
from dexaflow.cli.output import Output, print_json, print_table

if TYPE_CHECKING:
    from dexaflow.api.own import shapes

__all__ = ["app"]

app = typer.Typer(help="See how the configured admission hooks are.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """See how the configured admission hooks are."""


@app.command("list")
def list_hooks(data: Data = None, output: Shown = Output.TABLE) -> None:
    """List hooks in the order in which they are asked: breaker, failures in a row, next probe, last cause, holds.

    The last cause is that of the latest failure since the server's start, and `failed` how long ago that was.
    """
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import span

    with connected(data) as client:
        found: shapes.Hooks = client.get(own("hooks"))
    if output is Output.JSON:
        print_json(found)
        return
    print_table(
        ("hook", "breaker", "failures", "next probe", "last cause", "failed", "held", "oldest"),
        [
            (
                hook["name"],
                hook["breaker"],
                hook["failures"],
                None if hook["next_probe_seconds"] is None else f"in {span(max(0.0, hook['next_probe_seconds']))}",
                hook["last_cause"] or None,
                None if hook["last_failure_seconds"] is None else f"{span(hook['last_failure_seconds'])} ago",
                hook["held"],
                span(hook["oldest_hold_seconds"]) if hook["held"] else None,
            )
            for hook in found["hooks"]
        ],
        empty="No hook is configured: every attempt that passes own checks is admitted.",
    )
