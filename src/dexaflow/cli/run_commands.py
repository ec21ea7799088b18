"""`dexaflow runs`: trigger, list, show, watch, cancel, clear and annotate runs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dexaflow.cli.options import Data, Run, Shown, Tenant
from dexaflow.cli.output import (
    USAGE,
    Output,
    errors_in_one_line,
    print_error,
    print_fields,
    print_json,
    print_table,
    print_text,
)
from dexaflow.model.states import RunState

if TYPE_CHECKING:
    from dexaflow.api.own import shapes
    from dexaflow.cli.client import Client

__all__ = ["app"]

app = typer.Typer(help="Trigger, see, watch, cancel and clear runs.", no_args_is_help=True)


@app.command()
def trigger(
    dag: Annotated[str, typer.Argument(help="A DAG's id.", metavar="DAG", show_default=False)],
    conf: Annotated[
        str | None,
        typer.Option(help="The run's conf: a JSON object, @FILE, or @- for standard input.", show_default=False),
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="Its id; without it a new one.", show_default=False)] = None,
    logical_date: Annotated[
        str | None,
        typer.Option(help="Its logical date, as 2026-01-31T06:00:00+01:00; local without a zone.", show_default=False),
    ] = None,
    note: Annotated[str, typer.Option(help="A note for whoever looks at the run.", show_default=False)] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Then watch it, as `dexaflow runs watch` does.")] = False,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """Make a run of a DAG and print its id."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.run_inputs import conf_from, moment_from

    with errors_in_one_line(USAGE):
        body: dict[str, Any] = {"note": note, "run_id": run_id}  # Any: JSON
        if conf is not None:
            body["conf"] = conf_from(conf)
        if logical_date is not None:
            body["logical_date"] = moment_from(logical_date)
    with connected(data) as client:
        made: shapes.Run = client.send("POST", own("dags", dag, "runs"), body)
        if output is Output.JSON and not watch:
            print_json(made)
        elif output is Output.TABLE:
            from dexaflow.base.text import shown

            print_text(shown(made["run_id"]))
        _say_if_paused(client, made["dag_id"])
        if watch:
            _watch(client, made["run_id"], output)


def _say_if_paused(client: "Client", dag_id: str) -> None:
    from dexaflow.cli.client import own

    dag: shapes.DagOut = client.get(own("dags", dag_id))
    if dag["is_paused"]:
        print_error(f"DAG {dag_id} is paused: its runs wait; `dexaflow dags unpause {dag_id}` lets them go on")


@app.command("list")
def list_runs(
    dag: Annotated[str | None, typer.Option(help="Only runs of this DAG.", show_default=False)] = None,
    state: Annotated[
        list[RunState] | None, typer.Option(help="Only in this state; may be repeated.", show_default=False)
    ] = None,
    tenant: Tenant = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 25,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """List runs, the newest first."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import dated, local_now, short, span

    with connected(data) as client:
        found = client.rows(own("runs"), "runs", {"dag_id": dag, "tenant_id": tenant, "state": state}, limit)
    if output is Output.JSON:
        print_json(found)
        return
    now = local_now()
    runs: list[shapes.Run] = found["runs"]
    print_table(
        ("run", "dag", "tenant", "state", "logical date", "queued", "took", "tasks", "by"),
        [
            (
                run["run_id"],
                run["dag_id"],
                run["tenant_id"],
                run["state"],
                dated(run["logical_date"]),
                short(run["queued_at"], now),
                span(run["seconds"]),
                _counts(run),
                run["triggered_by"] or run["run_type"],
            )
            for run in runs
        ],
        empty="No runs.",
        spare=("tenant", "by", "logical date"),
    )
    if len(runs) < found["total_entries"]:
        print_error(f"these are {len(runs)} of {found['total_entries']} runs; --limit shows more")


def _counts(run: "shapes.Run") -> str:
    return ", ".join(f"{count} {state}" for state, count in run["task_states"].items()) or "-"


@app.command()
def show(run: Run, data: Data = None, output: Shown = Output.TABLE) -> None:
    """Show a run and its tasks."""
    import json

    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import full, local_now, span
    from dexaflow.cli.naming import run_id_of
    from dexaflow.cli.task_rows import TASK_COLUMNS, task_row

    with connected(data) as client:
        run_id = run_id_of(client, run)
        found: shapes.RunWithTasks = client.get(own("runs", run_id))
        if len(found["tasks"]) < found["task_count"]:
            found["tasks"] = client.rows(own("runs", run_id, "tasks"), "tasks")["tasks"]
    if output is Output.JSON:
        print_json(found)
        return
    now = local_now()
    print_fields(
        {
            "run": found["run_id"],
            "dag": f"{found['dag_id']}, version {found['version']}",
            "tenant": found["tenant_id"],
            "state": found["state"],
            "waits": found["waits_because"] or None,
            "trigger": f"{found['run_type']} by {found['triggered_by']}"
            if found["triggered_by"]
            else found["run_type"],
            "logical date": full(found["logical_date"]),
            "data interval": f"{full(found['data_interval_start'])} to {full(found['data_interval_end'])}"
            if found["data_interval_start"]
            else None,
            "queued": full(found["queued_at"]),
            "started": full(found["started_at"]),
            "ended": full(found["ended_at"]),
            "took": span(found["seconds"]),
            "conf": json.dumps(found["conf"], ensure_ascii=False) if found["conf"] else None,
            "note": found["note"] or None,
            "tasks": _counts(found),
        }
    )
    print_text("")
    print_table(TASK_COLUMNS, [task_row(task, now) for task in found["tasks"]], empty="No tasks.")


@app.command()
def watch(run: Run, data: Data = None, output: Shown = Output.TABLE) -> None:
    """Show a run's progress as it happens, until it ends; a restart of the server does not end it.

    A live table on a terminal, a line for each change elsewhere. Exit code 0 when the run succeeds, 1 when it fails,
    2 when it cannot be watched, 130 on Ctrl-C.
    """
    from dexaflow.cli.client import connected
    from dexaflow.cli.naming import run_id_of

    with connected(data) as client:
        _watch(client, run_id_of(client, run), output)


def _watch(client: "Client", run_id: str, output: Output) -> None:
    """Watch a run to its end and leave with the exit status that tells it."""
    from dexaflow.cli.client import ApiProblem, NoServer
    from dexaflow.cli.watching import watch_run

    try:
        state = watch_run(client, run_id, as_json=output is Output.JSON)
    except ApiProblem as problem:
        raise NoServer(str(problem)) from problem  # not 1: that says that the run failed
    if state not in ("success", "failed"):
        raise NoServer(f"run {run_id} was removed while it was watched; history.retention says when runs are")
    raise typer.Exit(0 if state == "success" else 1)


@app.command()
def cancel(run: Run, data: Data = None, output: Shown = Output.TABLE) -> None:
    """End a run: what waits is skipped, holds end at once, what runs is killed."""
    from dexaflow.base.text import shown
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.naming import run_id_of

    with connected(data) as client:
        found: shapes.RunWithTasks = client.send("POST", own("runs", run_id_of(client, run), "cancel"))
    if output is Output.JSON:
        print_json(found)
    else:
        print_text(f"Run {shown(found['run_id'])} is cancelled: {shown(_counts(found))}.")


@app.command()
def clear(
    run: Run,
    task: Annotated[
        list[str] | None, typer.Option(help="This task; may be repeated. Without it all.", show_default=False)
    ] = None,
    downstream: Annotated[bool, typer.Option("--downstream", help="And all that depends on them.")] = False,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Only those that failed.")] = False,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """Give tasks of a run a new try, with nothing carried over; a hold ends at once."""
    from dexaflow.base.text import shown
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.naming import run_id_of

    body = {"task_ids": task or None, "downstream": downstream, "only_failed": only_failed}
    with connected(data) as client:
        found: shapes.Cleared = client.send("POST", own("runs", run_id_of(client, run), "clear"), body)
    if output is Output.JSON:
        print_json(found)
    elif found["task_ids"]:
        print_text(f"Cleared: {', '.join(shown(task_id) for task_id in found['task_ids'])}.")
    else:
        print_text("Nothing to clear: none of these tasks has begun" + (" and failed." if only_failed else "."))


@app.command()
def note(
    run: Run,
    text: Annotated[str, typer.Argument(help="The note; an empty one removes it.", metavar="TEXT", show_default=False)],
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """Set a run's note."""
    from dexaflow.base.text import shown
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.naming import run_id_of

    with connected(data) as client:
        found: shapes.RunWithTasks = client.send("PATCH", own("runs", run_id_of(client, run)), {"note": text})
    if output is Output.JSON:
        print_json(found)
    else:
        print_text(f"Noted: {shown(found['note'])}" if found["note"] else "The note is removed.")
