"""`dexaflow holds`: which attempts hooks hold, and having them asked now."""

from typing import TYPE_CHECKING, Annotated

import typer

from dexaflow.base.text import NO_REASON
from dexaflow.cli.options import Data, Shown, Tenant
from dexaflow.cli.output import USAGE, Output, fail, print_json, print_table, print_text

if TYPE_CHECKING:
    from dexaflow.api.own import shapes

__all__ = ["app"]

app = typer.Typer(help="See which attempts hooks hold, and have them asked now.", no_args_is_help=True)


@app.command("list")
def list_holds(
    hook: Annotated[str | None, typer.Option(help="Only what this hook holds.", show_default=False)] = None,
    tenant: Tenant = None,
    dag: Annotated[str | None, typer.Option(help="Only attempts of this DAG.", show_default=False)] = None,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """List held attempts, the oldest first: who holds them, why, for how long, and when each is asked again."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import ago, local_now, short, until

    with connected(data) as client:
        found = client.rows(own("holds"), "holds", {"hook": hook, "tenant_id": tenant, "dag_id": dag})
    if output is Output.JSON:
        print_json(found)
        return
    now = local_now()
    holds: list[shapes.Hold] = found["holds"]
    print_table(
        ("tenant", "dag", "run", "task", "try", "hook", "reason", "held for", "asked again"),
        [
            (
                hold["tenant_id"],
                hold["dag_id"],
                hold["run_id"],
                hold["task_id"],
                hold["try_number"],
                hold["hook"],
                hold["reason"] or NO_REASON,
                ago(hold["held_at"], now),
                f"{short(hold['next_ask_at'], now)} ({until(hold['next_ask_at'], now)})"
                if hold["next_ask_at"]
                else None,
            )
            for hold in holds
        ],
        empty="Nothing is held.",
        spare=("tenant", "try"),
    )


@app.command("ask-now")
def ask_now(
    run: Annotated[
        str | None,
        typer.Argument(help="A run's id; DAG@latest is the newest run of a DAG.", metavar="RUN", show_default=False),
    ] = None,
    task: Annotated[str | None, typer.Argument(help="A task's id.", metavar="TASK", show_default=False)] = None,
    hook: Annotated[str | None, typer.Option(help="All that this hook holds.", show_default=False)] = None,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """Have one held attempt (RUN TASK), or all that a hook holds (--hook), asked now instead of when it is due."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.naming import run_id_of

    if (run is None or task is None) if hook is None else (run is not None or task is not None):
        fail("give RUN and TASK, or --hook HOOK; `dexaflow holds list` shows what is held", USAGE)
    with connected(data) as client:
        body = {"hook": hook} if run is None else {"run_id": run_id_of(client, run), "task_id": task}
        found: shapes.AskedNow = client.send("POST", own("holds", "ask-now"), body)
        hooks: shapes.Hooks = client.get(own("hooks"))
    if output is Output.JSON:
        print_json(found)
        return
    count = found["count"]
    attempts = "1 held attempt is" if count == 1 else f"{count} held attempts are"
    print_text(f"{attempts} {_asked(hooks, hook) if count else 'asked now.'}")


def _asked(hooks: "shapes.Hooks", hook: str | None) -> str:
    """Say when: an open breaker lets nothing through, whoever asks for it (R7.4)."""
    from dexaflow.cli.moments import span

    for status in hooks["hooks"]:
        wait = status["next_probe_seconds"]
        if wait and hook in (None, status["name"]):
            return f"due, but the breaker of {status['name']} is open: in {span(wait)} one attempt is tried."
    return "asked now."
