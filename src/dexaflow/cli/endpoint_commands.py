"""`dexaflow endpoint`: a hook function behind a URL."""

from pathlib import Path
from typing import Annotated

import typer

from dexaflow.cli.output import USAGE, errors_in_one_line, keep_stdout, print_text

__all__ = ["app"]

app = typer.Typer(help="Serve an admission hook as a webhook endpoint.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Serve an admission hook as a webhook endpoint."""


@app.command()
def serve(
    hook: Annotated[str, typer.Argument(help="The hook, as package.module:name.", metavar="HOOK", show_default=False)],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8443,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM chain of the certificate.", show_default=False)] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM key of the certificate.", show_default=False)] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token that questions must carry.", show_default=False)
    ] = None,
    path: Annotated[str, typer.Option(help="Where questions are answered.")] = "/admit",
    timeout: Annotated[
        str, typer.Option(help="For one call of the hook, 10ms to 30s; as execution.admission.timeout of its askers.")
    ] = "30s",
    log_format: Annotated[str, typer.Option(help="auto, json or console.")] = "auto",
) -> None:
    """Serve HOOK until SIGTERM. TLS is needed unless the address is loopback.

    HOOK is the same function that runs in process: it takes a Request and returns admit(...), hold(reason) or
    refuse(reason). Its module is looked for in the current directory first. Certificate, key and token are read again
    when their files change. At the stop, questions under way have two seconds.
    """
    from dexaflow.base.durations import parse_duration
    from dexaflow.base.errors import ConfigError, UsageError
    from dexaflow.endpoint.serving import serve as serve_hook
    from dexaflow.hooks.finding import load_hook
    from dexaflow.observe.logs import catch_strays, configure_logs
    from dexaflow.server.leaving import leave_in_time

    with errors_in_one_line(USAGE):
        if log_format not in ("auto", "json", "console"):
            raise UsageError("--log-format is auto, json or console")
        try:
            hook_seconds = parse_duration(timeout)
        except ValueError as error:
            raise UsageError(f"--timeout: {error}") from None
        if not 0.01 <= hook_seconds <= 30:
            raise UsageError(f"--timeout {timeout} is out of range; give 10ms to 30s")
        keep_stdout()
        configure_logs(form=log_format)
        catch_strays()
        try:
            function = load_hook(hook, Path.cwd())
        except ConfigError as error:
            raise UsageError(f"{error.problem}; {error.fix}") from error  # less its key: here it is an argument
        if token_file is None:
            print_text("No --token-file: whoever reaches this endpoint may ask it.")
        status = 1
        try:
            serve_hook(
                function,
                host=host,
                port=port,
                path=path,
                tls_cert=tls_cert,
                tls_key=tls_key,
                token_file=token_file,
                hook_seconds=hook_seconds,
                announce=lambda url: print_text(f"{hook} answers at {url}"),
            )
            status = 0
        finally:
            leave_in_time(status)
