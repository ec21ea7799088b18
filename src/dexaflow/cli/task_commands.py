"""`dexaflow tasks`: the tasks of a run, their logs, and why each is where it is."""

from typing import TYPE_CHECKING, Annotated

import typer

from dexaflow.cli.options import Data, Run, Shown, Task, Try
from dexaflow.cli.output import Output, print_fields, print_json, print_table, print_text
from dexaflow.model.states import State

if TYPE_CHECKING:
    from dexaflow.api.own import shapes

__all__ = ["app"]

app = typer.Typer(help="See the tasks of a run, their logs, and why each is where it is.", no_args_is_help=True)


@app.command("list")
def list_tasks(
    run: Run,
    state: Annotated[
        list[State] | None, typer.Option(help="Only in this state; may be repeated.", show_default=False)
    ] = None,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """List the tasks of a run by their present tries."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import local_now
    from dexaflow.cli.naming import run_id_of
    from dexaflow.cli.task_rows import TASK_COLUMNS, task_row

    with connected(data) as client:
        found = client.rows(own("runs", run_id_of(client, run), "tasks"), "tasks", {"state": state})
    if output is Output.JSON:
        print_json(found)
        return
    now = local_now()
    tasks: list[shapes.TaskOut] = found["tasks"]
    print_table(TASK_COLUMNS, [task_row(task, now) for task in tasks], empty="No tasks.")


@app.command()
def show(run: Run, task: Task, number: Try = None, data: Data = None, output: Shown = Output.TABLE) -> None:
    """Show one try of a task."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import full, local_now, span, until
    from dexaflow.cli.naming import run_id_of

    with connected(data) as client:
        path = own("runs", run_id_of(client, run), "tasks", task)
        found: shapes.TaskOut = client.get(path, {"try_number": number})
    if output is Output.JSON:
        print_json(found)
        return
    now = local_now()
    asked = found["next_ask_at"]
    fields: dict[str, object] = {
        "task": found["task_id"],
        "run": found["run_id"],
        "dag": found["dag_id"],
        "tenant": found["tenant_id"],
        "try": f"{found['try_number']} of {found['max_tries']}",
        "state": found["state"],
        "hook": found["hook"] or None,
        "reason": found["reason"] or None,
        "asked again": None if asked is None else f"{full(asked)} ({until(asked, now)})",
        "next try": full(found["retry_at"]),
        "operator": found["operator"],
        "pool": f"{found['pool']}, {found['pool_slots']} {'slot' if found['pool_slots'] == 1 else 'slots'}",
        "scheduled": full(found["scheduled_at"]),
        "took slots": full(found["queued_at"]),
        "held": full(found["held_at"]),
        "launched": full(found["launched_at"]),
        "started": full(found["started_at"]),
        "ended": full(found["ended_at"]),
        "took": span(found["seconds"]),
        "exit code": found["exit_code"],
        "host": found["host"] or None,
        "log": f"{found['log_bytes']} bytes",
        "attempt": found["attempt_id"],
    }
    print_fields(fields)


@app.command()
def logs(
    run: Run,
    task: Task,
    number: Try = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the try has ended.")] = False,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """Print the log of one try.

    Into a pipe or a file it goes byte by byte as the task wrote it; on a terminal nothing in it can move the cursor,
    hide or colour anything.
    """
    from dexaflow.cli.client import connected
    from dexaflow.cli.logs import print_log
    from dexaflow.cli.naming import run_id_of

    with connected(data) as client:
        print_log(client, run_id_of(client, run), task, number, follow=follow, as_json=output is Output.JSON)


@app.command()
def explain(run: Run, task: Task, number: Try = None, data: Data = None, output: Shown = Output.TABLE) -> None:
    """Tell the walk of one try: slots, own checks, each hook's answer, launch, agent, end; and who set what.

    It says what waits for what, what is asked next and when, and, for the pod that the try would get, key by key
    whether the author, a platform default, the resource unit or which hook set it.
    """
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.explaining import POD_COLUMNS, pod_rows, pod_title, walk
    from dexaflow.cli.moments import local_now
    from dexaflow.cli.naming import run_id_of

    with connected(data) as client:
        path = own("runs", run_id_of(client, run), "tasks", task, "explain")
        found: shapes.Explanation = client.get(path, {"try_number": number})
    if output is Output.JSON:
        print_json(found)
        return
    print_fields(walk(found, local_now()))
    print_text("")
    print_text(pod_title(found))
    if rows := pod_rows(found):
        print_text("")
        print_table(POD_COLUMNS, rows)
