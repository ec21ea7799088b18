"""`dexaflow lite`: the whole of Lite in one process."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["lite"]

_DATA = Path(os.environ.get("DEXAFLOW_DATA") or ".dexaflow")


def lite(
    dags: Annotated[
        Path, typer.Option(help="Folder of DAG files (tenant `default`), unless the configuration names tenants.")
    ] = Path("dags"),
    config: Annotated[Path | None, typer.Option(help="Configuration file; see `dexaflow config reference`.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.  [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on, 0 for any free one.  [default: 8080]", min=0, max=65535)
    ] = None,
    data: Annotated[Path, typer.Option(help="Data folder; kept 0700.")] = _DATA,
) -> None:
    """Run workflows here: one process, SQLite, tasks as local processes.

    SIGTERM or Ctrl-C stops it in order; running tasks go on and are adopted by the next start.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the server listens to it, Ctrl-C ends a start at once, as SIGTERM does: an exception may come where it
        # is lost, in the midst of an import or a callback, and each step of a start survives its process's death.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dexaflow import server

    def ready(url: str, token: str) -> None:
        if sys.stderr.isatty():  # the token is printed only to a terminal (R10.4)
            print(f"Dexaflow Lite is at {url}\nAPI token: {token}", file=sys.stderr, flush=True)

    server.run(config, dags=dags, data=data, host=host, port=port, on_ready=ready)
