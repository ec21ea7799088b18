"""Composition root, and the library of R8.1.

A program of your own runs the server with hooks of its own::

    from dexaflow import server
    from dexaflow.admission import Request, admit, refuse

    def freeze(request: Request):
        return refuse("acme is frozen until 06:00 UTC") if request.tenant_id == "acme" else admit()

    server.run("dexaflow.yaml", admission=[freeze])
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dexaflow.base.errors import DexaflowError, ServerFailed

if TYPE_CHECKING:
    from dexaflow.config.schema import Config

__all__ = ["ServerFailed", "run"]

_CTRL_C = 130  # as shells have it, and `dexaflow lite`


def run(
    config: "Config | str | Path | None" = None,
    *,
    admission: Sequence[Any] = (),
    dags: str | Path = "dags",
    data: str | Path = ".dexaflow",
    host: str | None = None,
    port: int | None = None,
    on_ready: Callable[[str, str], None] | None = None,
) -> None:
    """Run Lite until SIGTERM or SIGINT.

    Args:
        config: A configuration, the path of its YAML file, or None for the environment and defaults alone.
        admission: Hooks in process, async or plain, asked in this order before those of the configuration (R8.1).
        dags: The folder of DAG files, where the configuration names no tenants.
        data: Lite's own folder; made if need be (R10.4).
        host: Address to listen on; None: what the configuration says, 127.0.0.1 by default.
        port: Port to listen on, 0 for any free one; None: what the configuration says.
        on_ready: Called once with URL and API token when the server answers.

    When the program ends after that, it is given five seconds: threads and exit handlers that hooks have left behind
    do not keep it any longer.

    Raises:
        ServerFailed: it cannot start, or go on. Its ``causes`` are everything that is wrong with the configuration, or
            the one thing that stopped it. Left uncaught, it ends the program as `dexaflow lite` would: one line for
            each of them, which says what to do, and status 1.
        SystemExit: with 130, at Ctrl-C before the server was up.
    """
    try:
        from dexaflow.server.calling import check_arguments, check_place

        check_place()
        check_arguments(
            config=config, admission=admission, dags=dags, data=data, host=host, port=port, on_ready=on_ready
        )
        _run(config, admission, dags, data, host, port, on_ready)
    except DexaflowError as error:
        raise ServerFailed(error) from None
    except KeyboardInterrupt:  # before the server was up: from then on Ctrl-C stops it in order
        raise SystemExit(_CTRL_C) from None


def _run(
    config: "Config | str | Path | None",
    admission: Sequence[Any],
    dags: str | Path,
    data: str | Path,
    host: str | None,
    port: int | None,
    on_ready: Callable[[str, str], None] | None,
) -> None:
    import uvloop

    from dexaflow.config.loading import load_config
    from dexaflow.config.schema import Config
    from dexaflow.observe.logs import catch_strays, configure_logs
    from dexaflow.server.hooks import hook_problems
    from dexaflow.server.leaving import leave_in_time
    from dexaflow.server.lite import LiteOptions, serve

    if not isinstance(config, Config):
        path = None if config is None else Path(config)
        base = Path.cwd() if path is None else path.absolute().parent
        check_hooks = partial(hook_problems, given=admission)
        config = load_config(path, os.environ, base_dir=base, check_hooks=check_hooks)
    configure_logs(form=config.logging.format, level=config.logging.level)
    catch_strays()
    options = LiteOptions(dags=Path(dags), data=Path(data), host=host, port=port)
    status = 1
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, options, admission=admission, on_ready=on_ready))
        status = 0
    finally:
        leave_in_time(status)
