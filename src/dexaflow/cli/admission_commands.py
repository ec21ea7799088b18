"""`dexaflow admission`: what would the gate make of this answer, and what do the configured hooks say?"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dexaflow.cli.output import FAILED, USAGE, Output, errors_in_one_line, keep_stdout, print_fields, print_json

if TYPE_CHECKING:
    from dexaflow.policy.policy import Policy

__all__ = ["app"]

app = typer.Typer(help="Try admission hooks and their answers.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Try admission hooks and their answers."""


READ_BYTES = 131_072  # an answer has at most 65,536; more need not be read to know that it is too large


@app.command("check-answer")
def check_answer(
    file: Annotated[str, typer.Argument(help="The answer's body; - is standard input.", metavar="[FILE|-]")] = "-",
    uid: Annotated[
        str | None, typer.Option(help="The request's uid; without it the answer's own counts as right.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Take execution_allowlist from this configuration.", show_default=False)
    ] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Read one JSON object a line, write one a line.")] = False,
    output: Annotated[Output, typer.Option(help="How to print the result.")] = Output.TABLE,
) -> None:
    """Say what the gate would make of an answer: admit, hold, refuse, broken or change_refused.

    Exit code 0 for admit, hold and refuse, 1 for the others, 2 when the answer or the configuration cannot be read.

    With --jsonl each line is {"name", "body_b64", "uid"?, "priority_classes"?, "service_accounts"?}, where a list
    that is null is not set and one that is absent is the configuration's; the result has the same name. A line that
    cannot be read gives {"name", "error"}, and exit code 1 at the end.
    """
    from dexaflow.base.errors import UsageError

    with errors_in_one_line(USAGE):
        policy = _policy(config)
        if jsonl and uid is not None:
            raise UsageError("--uid does not go with --jsonl; write a uid in each line")
        if jsonl:
            readable = _check_lines(file, policy)
        else:
            body = _read(file)
    if jsonl:
        raise typer.Exit(0 if readable else FAILED)
    _check_one(body, uid, policy, output)


def _check_one(body: bytes, uid: str | None, policy: "Policy", output: Output) -> None:
    from dexaflow.admission.check_answer import check_answer as check
    from dexaflow.base.text import NO_REASON
    from dexaflow.cli.answer_lines import as_json

    result = as_json(
        check(body, uid=uid, priority_classes=policy.priority_classes, service_accounts=policy.service_accounts)
    )
    if output is Output.JSON:
        print_json(result)
    else:
        changes = result["changes"]
        assert isinstance(changes, dict)
        unsaid = NO_REASON if result["verdict"] in ("hold", "refuse") else ""
        fields = {"verdict": result["verdict"], "reason": result["reason"] or unsaid}
        fields |= {f"changes.{name}": value for name, value in changes.items()}
        fields["problem"] = result["problem"]
        print_fields({name: value for name, value in fields.items() if value})
    if result["verdict"] not in ("admit", "hold", "refuse"):
        raise typer.Exit(FAILED)


def _check_lines(file: str, policy: "Policy") -> bool:
    """Write a line for each line of `file`; return whether all of them could be read."""
    from dexaflow.base.errors import UsageError
    from dexaflow.cli.answer_lines import check_lines

    readable = True
    out = sys.stdout.buffer
    try:
        with sys.stdin.buffer if file == "-" else open(file, "rb") as source:
            for checked in check_lines(source, policy):
                out.write(checked.text.encode("ascii") + b"\n")
                out.flush()  # whoever feeds a pipe line by line waits for the answer
                readable = readable and checked.readable
    except BrokenPipeError:
        # The reader has what it wanted. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}; name a file, or - for standard input") from None
    return readable


def _read(file: str) -> bytes:
    from dexaflow.base.errors import UsageError

    try:
        with sys.stdin.buffer if file == "-" else open(file, "rb") as source:
            return source.read(READ_BYTES)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}; name a file, or - for standard input") from None


def _policy(config: Path | None) -> "Policy":
    """Return the policy of a configuration; without one nothing is set."""
    from dexaflow.policy.policy import Policy

    if config is None:
        return Policy()
    from dexaflow.config import load_config

    return load_config(config, os.environ, base_dir=config.absolute().parent).policy()


@app.command()
def ask(
    config: Annotated[Path, typer.Option(help="The server's configuration.", metavar="FILE", show_default=False)],
    request: Annotated[
        Path | None,
        typer.Option(
            help="File with the question to put, as an endpoint gets it, - for standard input; without it a sample.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Output, typer.Option(help="How to print the result.")] = Output.TABLE,
) -> None:
    """Put one sample question to the configured hooks and show the whole exchange, secrets left out.

    The hooks are asked as the gate would: those in process first, each seeing the earlier ones' changes, until one does
    not admit. Exit code 0 when decisions come back, 1 when a hook is broken, 2 when it cannot be asked.
    """
    import asyncio

    from dexaflow.base.errors import UsageError
    from dexaflow.cli import exchange
    from dexaflow.config import load_config
    from dexaflow.observe.logs import configure_logs
    from dexaflow.server.hooks import hook_problems

    with errors_in_one_line(USAGE):
        configure_logs(level="error")
        keep_stdout()
        loaded = load_config(config, os.environ, base_dir=config.absolute().parent, check_hooks=hook_problems)
        admission = loaded.execution.admission
        if admission.webhook.url is None and not admission.hooks:
            raise UsageError(
                f"{config} has no hook to ask; set execution.admission.webhook.url or execution.admission.hooks"
            )
        question = exchange.sample_request(loaded) if request is None else exchange.read_request(request)
        exchanges = asyncio.run(exchange.ask_hooks(loaded, question, exchange.configured_hooks(loaded, Path.cwd())))
    if output is Output.JSON:
        print_json([exchange.as_json(one) for one in exchanges])
    else:
        for one in exchanges:
            exchange.print_exchange(one)
    if any(one.verdict == "broken" for one in exchanges):
        raise typer.Exit(FAILED)
