"""`dexaflow config`: is this configuration right, and what can it say?"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dexaflow.cli.output import FAILED, Output, keep_stdout, print_error, print_json, print_text

if TYPE_CHECKING:
    from dexaflow.base.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(help="Check the server's configuration, or print what it can say.", no_args_is_help=True)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The YAML file.", metavar="FILE", show_default=False)],
    output: Annotated[Output, typer.Option(help="How to print the result.")] = Output.TABLE,
) -> None:
    """List everything that is wrong with FILE and the DEXAFLOW_* variables, as the server would at boot.

    The modules of execution.admission.hooks are imported, as at boot: their code runs.

    Exit code 0 when the server would start, 1 when it would not.
    """
    from dexaflow.base.errors import ConfigErrors
    from dexaflow.config import load_config
    from dexaflow.server.hooks import hook_problems

    keep_stdout()
    found: list[ConfigError] = []
    try:
        config = load_config(file, os.environ, base_dir=file.absolute().parent, check_hooks=hook_problems)
        admission = config.execution.admission
        found += hook_problems(admission.hooks, admission.webhook.url is not None)
    except ConfigErrors as errors:
        found += errors.problems
    problems = [(problem.key, problem.problem, problem.fix) for problem in found]
    if output is Output.JSON:
        print_json([{"key": key, "problem": problem, "fix": fix} for key, problem, fix in problems])
    elif problems:
        for key, problem, fix in problems:
            print_error(f"{key}: {problem}; {fix}")
    else:
        print_text("The configuration is fine.")
    if problems:
        raise typer.Exit(FAILED)


@app.command()
def reference() -> None:
    """Print the reference of all keys, in Markdown: docs/configuration.md."""
    from dexaflow.config import reference as page

    print_text(page().rstrip("\n"))
