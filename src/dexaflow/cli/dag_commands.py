"""`dexaflow dags`: the DAGs of the server, and a check of DAG files without one."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dexaflow.cli.options import Data, Shown, Tenant
from dexaflow.cli.output import (
    FAILED,
    USAGE,
    Output,
    errors_in_one_line,
    print_error,
    print_fields,
    print_json,
    print_table,
    print_text,
)

if TYPE_CHECKING:
    from dexaflow.api.own import shapes
    from dexaflow.cli.dag_check import Checked

__all__ = ["app"]

app = typer.Typer(help="See, check, pause and unpause DAGs.", no_args_is_help=True)

Dag = Annotated[str, typer.Argument(help="A DAG's id.", metavar="DAG", show_default=False)]


@app.command("list")
def list_dags(
    tenant: Tenant = None,
    everything: Annotated[bool, typer.Option("--all", help="Also DAGs whose file is gone.")] = False,
    data: Data = None,
    output: Shown = Output.TABLE,
) -> None:
    """List the DAGs. What is wrong with DAG files is in `dexaflow dags errors`."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import local_now, short

    with connected(data) as client:
        found = client.rows(own("dags"), "dags", {"tenant_id": tenant, "include_inactive": everything})
        errors = client.get(own("dag-errors"), {"tenant_id": tenant, "limit": 1})["total_entries"]
    if output is Output.JSON:
        print_json(found)
        return
    now = local_now()
    dags: list[shapes.DagOut] = found["dags"]
    print_table(
        ("dag", "tenant", "schedule", "state", "next run", "tasks", "file"),
        [
            (
                dag["dag_id"],
                dag["tenant_id"],
                _schedule(dag),
                _state(dag),
                "-" if dag["is_paused"] else short(dag["next_run_at"], now),
                dag["task_count"],
                dag["file"],
            )
            for dag in dags
        ],
        empty="No DAGs.",
    )
    if errors:
        files = "1 problem" if errors == 1 else f"{errors} problems"
        print_error(f"there {'is' if errors == 1 else 'are'} {files} with DAG files: `dexaflow dags errors`")


def _schedule(dag: "shapes.DagOut") -> str:
    if dag["schedule"] is None:
        return "-"
    return dag["schedule"] if dag["timezone"] == "UTC" else f"{dag['schedule']} {dag['timezone']}"


def _state(dag: "shapes.DagOut") -> str:
    words = ["paused"] if dag["is_paused"] else []
    words += ["file gone"] if not dag["is_active"] else []
    words += ["file has errors"] if dag["has_errors"] else []
    return ", ".join(words) or "active"


def _paused(dag: "shapes.DagOut") -> str | None:
    from dexaflow.cli.moments import full

    if not dag["is_paused"]:
        return None
    since = f"since {full(dag['paused_at'])}" if dag["paused_at"] else "since nobody noted when"
    return since + (f" by {dag['paused_by']}" if dag["paused_by"] else "")


@app.command()
def show(dag: Dag, data: Data = None, output: Shown = Output.TABLE) -> None:
    """Show a DAG and its tasks, as the latest version has them."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import full, span

    with connected(data) as client:
        found: shapes.DagWithTasks = client.get(own("dags", dag))
    if output is Output.JSON:
        print_json(found)
        return
    print_fields(
        {
            "dag": found["dag_id"],
            "tenant": found["tenant_id"],
            "file": found["file"],
            "version": found["version"],
            "description": found["description"] or "-",
            "tags": found["tags"],
            "schedule": _schedule(found),
            "start date": full(found["start_date"]),
            "catchup": found["catchup"],
            "max active runs": found["max_active_runs"],
            "dagrun timeout": span(found["dagrun_timeout"]),
            "state": _state(found),
            "paused": _paused(found),
            "next run": full(found["next_run_at"]),
            "registered": full(found["registered_at"]),
            "updated": full(found["updated_at"]),
        }
    )
    print_text("")
    print_table(
        ("task", "operator", "after", "rule", "retries", "pool", "timeout", "sets", "line"),
        [
            (
                task["task_id"],
                task["operator"],
                task["upstream"],
                task["trigger_rule"],
                task["retries"],
                f"{task['pool']} x{task['pool_slots']}" if task["pool_slots"] > 1 else task["pool"],
                span(task["execution_timeout"]),
                _what_it_sets(task),
                task["line"] or None,
            )
            for task in found["tasks"]
        ],
        empty="No tasks.",
    )


def _what_it_sets(task: "shapes.DagTask") -> list[str]:
    """Return what the author set about the task's pod."""
    found = [f"image={task['image']}"] if task["image"] else []
    for field, value in {**(task["resources"] or {}), **task["execution"]}.items():
        if isinstance(value, Mapping):
            found += [f"{field}.{key}={item}" for key, item in value.items()]
        elif isinstance(value, list):
            found += [f"{field}: {len(value)}"] if value else []
        elif value:
            found.append(f"{field}={value}")
    return found + [f"${name}" for name in task["environment"]]


@app.command("errors")
def list_errors(tenant: Tenant = None, data: Data = None, output: Shown = Output.TABLE) -> None:
    """List what is wrong with DAG files now: file, line and cause."""
    from dexaflow.cli.client import connected, own
    from dexaflow.cli.moments import local_now, short

    with connected(data) as client:
        found = client.rows(own("dag-errors"), "errors", {"tenant_id": tenant})
    if output is Output.JSON:
        print_json(found)
        return
    now = local_now()
    errors: list[shapes.DagErrorOut] = found["errors"]
    print_table(
        ("tenant", "file", "line", "cause", "seen"),
        [(e["tenant_id"], e["file"], e["line"] or None, e["cause"], short(e["seen_at"], now)) for e in errors],
        empty="All DAG files are fine.",
    )


@app.command()
def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="DAG files and folders of them; without any the tenants' folders of --config, or --dags.",
            metavar="[PATH]...",
            show_default=False,
        ),
    ] = None,
    dags: Annotated[Path, typer.Option(help="Folder of DAG files, from which they import each other.")] = Path("dags"),
    config: Annotated[
        Path | None, typer.Option(help="Check against the policy of this configuration.", show_default=False)
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(help="Seconds for one file to load.  [default: loading.timeout]", min=0.1, show_default=False),
    ] = None,
    output: Shown = Output.TABLE,
) -> None:
    """Load DAG files as the server would and list what is wrong with them; no server is needed.

    Each file is loaded in a process of its own with a time limit; then come own checks: Kubernetes' rules and reserved
    prefixes always, allowlists and resource unit as --config has them. Prints file:line: cause, a line each.
    Exit code 0 when all is fine, 1 when something is wrong, 2 when it cannot be checked.
    """
    import asyncio
    import os

    from dexaflow.cli.dag_check import check_files, files_to_check
    from dexaflow.config import load_config

    with errors_in_one_line(USAGE):
        base = Path.cwd() if config is None else config.absolute().parent
        loaded = load_config(config, os.environ, base_dir=base)
        files = files_to_check(paths or [], list(loaded.tenant_folders(dags).values()))
        limit = loaded.loading.timeout if timeout is None else timeout
    checked = asyncio.run(check_files(files, loaded.policy(), timeout=limit))
    _print_checked(checked, output)
    if checked.problems:
        raise typer.Exit(FAILED)


def _print_checked(checked: "Checked", output: Output) -> None:
    from dexaflow.base.text import shown

    if output is Output.JSON:
        print_json(
            {
                "files": checked.files,
                "dags": [{"dag_id": dag_id, "file": file} for dag_id, file in checked.dags],
                "problems": [{"file": p.file, "line": p.line, "cause": p.cause} for p in checked.problems],
            }
        )
        return
    for problem in checked.problems:
        print_text(shown(str(problem)))
    if not checked.problems:
        dags = "1 DAG" if len(checked.dags) == 1 else f"{len(checked.dags)} DAGs"
        files = "1 file" if checked.files == 1 else f"{checked.files} files"
        print_text(f"{dags} in {files}: all fine.")


@app.command()
def pause(dag: Dag, data: Data = None, output: Shown = Output.TABLE) -> None:
    """Pause a DAG: its schedule makes no runs, and tasks of its runs that have not begun wait."""
    _set_paused(dag, data, output, paused=True)


@app.command()
def unpause(dag: Dag, data: Data = None, output: Shown = Output.TABLE) -> None:
    """Let a paused DAG go on."""
    _set_paused(dag, data, output, paused=False)


def _set_paused(dag: str, data: Path | None, output: Output, *, paused: bool) -> None:
    from dexaflow.base.text import shown
    from dexaflow.cli.client import connected, own

    with connected(data) as client:
        found: shapes.DagWithTasks = client.send("PATCH", own("dags", dag), {"is_paused": paused})
    if output is Output.JSON:
        print_json(found)
    else:
        print_text(f"{shown(found['dag_id'])} is {'paused' if found['is_paused'] else 'active'}.")
