"""The command line, put together. Each group of commands is a module; heavy imports wait until a command runs."""

from typing import Annotated

import typer

from dexaflow import __version__
from dexaflow.cli import (
    admission_commands,
    config_commands,
    dag_commands,
    endpoint_commands,
    hold_commands,
    hook_commands,
    pool_commands,
    run_commands,
    task_commands,
)
from dexaflow.cli.lite_command import lite

__all__ = ["app", "main"]

app = typer.Typer(
    name="dexaflow",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help in half the time, and [FILE] in a help text stays what it is
    help="Workflows whose every task attempt passes admission first.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"dexaflow {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Workflows whose every task attempt passes admission first."""


app.command()(lite)
app.add_typer(dag_commands.app, name="dags")
app.add_typer(run_commands.app, name="runs")
app.add_typer(task_commands.app, name="tasks")
app.add_typer(pool_commands.app, name="pools")
app.add_typer(hold_commands.app, name="holds")
app.add_typer(hook_commands.app, name="hooks")
app.add_typer(config_commands.app, name="config")
app.add_typer(admission_commands.app, name="admission")
app.add_typer(endpoint_commands.app, name="endpoint")


def main() -> None:
    """Run the command line: one clear line instead of a traceback, exit status 1, for every error of ours."""
    from dexaflow.base.errors import ConfigErrors, DexaflowError, ServerFailed
    from dexaflow.cli.output import print_error

    try:
        app()
    except ServerFailed:
        raise  # it prints its lines by itself
    except ConfigErrors as errors:
        for problem in errors.problems:
            print_error(str(problem))
        raise SystemExit(1) from None
    except DexaflowError as error:
        print_error(str(error))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
