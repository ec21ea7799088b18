"""What many commands take, said once."""

from pathlib import Path
from typing import Annotated

import typer

from dexaflow.cli.output import Output

__all__ = ["Data", "Run", "Shown", "Task", "Tenant", "Try"]

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The server's data folder, instead of DEXAFLOW_URL and DEXAFLOW_TOKEN."
        "  [default: DEXAFLOW_DATA or .dexaflow]",
        metavar="DIR",
        show_default=False,
    ),
]
Shown = Annotated[Output, typer.Option("--output", help="How to print the result.")]
Run = Annotated[
    str, typer.Argument(help="A run's id; DAG@latest is the newest run of a DAG.", metavar="RUN", show_default=False)
]
Task = Annotated[str, typer.Argument(help="A task's id.", metavar="TASK", show_default=False)]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's.", show_default=False)]
Try = Annotated[
    int | None, typer.Option("--try", help="Number of the try; without it the latest.", min=1, show_default=False)
]
