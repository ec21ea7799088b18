"""`dexaflow admission ask`: one sample question to each configured hook, and everything that was said."""

import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from dexaflow.admission.changes import NotAllowed, apply_changes
from dexaflow.admission.decisions import NO_CHANGES, Admit, Changes, Decision, Request
from dexaflow.admission.envelope import AnswerError, QuestionError, placement, question, read_answer, read_question
from dexaflow.admission.ports import HookCaller
from dexaflow.base.errors import HookBroken, UsageError
from dexaflow.base.text import NO_REASON, clean_reason, shown
from dexaflow.cli.output import print_fields, print_text
from dexaflow.config import Config
from dexaflow.hooks.files import token_in
from dexaflow.hooks.finding import load_hooks
from dexaflow.hooks.hiding import HIDDEN, hidden
from dexaflow.hooks.inprocess import InProcessCaller
from dexaflow.hooks.transport import request_head
from dexaflow.hooks.url import Endpoint, endpoint_from_config
from dexaflow.hooks.webhook import WEBHOOK_NAME, WebhookCaller, status_problem
from dexaflow.model.execution import Execution, Resources

__all__ = [
    "Exchange",
    "Sent",
    "as_json",
    "ask_hooks",
    "configured_hooks",
    "print_exchange",
    "read_request",
    "sample_request",
]


@dataclass(frozen=True, slots=True)
class Sent:
    """What went over the wire, secrets left out.

    `head` and `question` are empty when nothing was sent, since there was no connection; `status` is None when no
    answer came.
    """

    url: str
    head: tuple[str, ...]
    question: str
    status: int | None
    answer: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one hook was asked and what came back.

    `verdict` is admit, hold, refuse, change_refused or broken; `problem` says what is wrong, "" when nothing is.
    """

    hook: str
    request: Request
    verdict: str
    seconds: float
    reason: str = ""
    changes: Changes = NO_CHANGES
    problem: str = ""
    sent: Sent | None = None  # None: called in process


@dataclass(frozen=True, slots=True)
class Secrets:
    """What must not be shown: the token, also where the endpoint echoes it, and the URL's query."""

    endpoint: Endpoint
    token: str | None = field(repr=False)

    def head(self, length: int) -> tuple[str, ...]:
        """Return the lines of the request's head, as sent but for the secrets."""
        path, has_query, _ = self.endpoint.target.partition("?")
        shown_endpoint = replace(self.endpoint, target=f"{path}?{HIDDEN}" if has_query else path)
        head = request_head(shown_endpoint, None if self.token is None else HIDDEN)
        return tuple(f"{head.decode('ascii')}{length}".split("\r\n"))

    def hidden(self, text: str) -> str:
        """Return `text` without them."""
        return hidden(text, (self.token, self.endpoint.target.partition("?")[2]))


def sample_request(config: Config) -> Request:
    """Return a question like the spec's example, with this configuration's defaults."""
    defaults = config.execution.defaults
    return Request(
        uid=str(uuid4()),
        tenant_id=next(iter(config.tenants), "default"),
        dag_id="sample_dag",
        run_id=str(uuid4()),
        task_id="sample_task",
        try_number=1,
        operator="python",
        image=defaults.image,
        source_mode=not defaults.image,
        resources=defaults.resources or Resources(),
        execution=Execution(service_account=defaults.service_account),
        service_account_chosen=False,
    )


def read_request(path: Path) -> Request:
    """Return the question in a file, or on standard input for `-`: the whole document, as an endpoint gets it.

    Raises:
        UsageError: it cannot be read, or is no question.
    """
    try:
        return read_question(sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; name a file with a question, or -") from None
    except QuestionError as error:
        raise UsageError(f"{path}: {error}; write the whole document, as `dexaflow admission ask` sends it") from None


def configured_hooks(config: Config, folder: Path) -> tuple[InProcessCaller, ...]:
    """Return the in-process hooks of the configuration, looked for in `folder` first. Raises `ConfigErrors`."""
    admission = config.execution.admission
    hooks = load_hooks(admission.hooks, folder, names=(WEBHOOK_NAME,) if admission.webhook.url else ())
    return tuple(InProcessCaller(hook, timeout=admission.timeout) for hook in hooks)


async def ask_hooks(config: Config, request: Request, in_process: Sequence[HookCaller]) -> list[Exchange]:
    """Return one exchange a hook, in the gate's order: those in process, then the webhook.

    Each later hook sees the earlier ones' changes, and the first that does not admit ends the asking (R8.2).
    """
    policy = config.policy()
    exchanges: list[Exchange] = []
    webhook = config.execution.admission.webhook
    async with AsyncExitStack() as open_ones:
        callers: list[HookCaller] = list(in_process)
        if webhook.url is not None:
            over_the_wire = WebhookCaller(
                webhook.url,
                timeout=config.execution.admission.timeout,
                ca_file=webhook.ca_file,
                token_file=webhook.token_file,
            )
            callers.append(await open_ones.enter_async_context(over_the_wire))
        for caller in callers:
            asked = replace(request, uid=str(uuid4())) if caller is not callers[0] else request
            if isinstance(caller, WebhookCaller) and webhook.url is not None:
                token = None if webhook.token_file is None else token_in(webhook.token_file.read_bytes())
                secrets = Secrets(endpoint_from_config(webhook.url), token)
                exchange = await _over_the_wire(caller, secrets, asked)
            else:
                exchange = await _in_process(caller, asked)
            if exchange.verdict == "admit":
                applied = apply_changes(
                    exchange.changes, request.execution, (), by=f"hook:{caller.name}", allowed=policy
                )
                if isinstance(applied, NotAllowed):
                    exchange = replace(exchange, verdict="change_refused", problem=applied.problem)
                else:
                    request = replace(request, execution=applied.execution)
            exchanges.append(exchange)
            if exchange.verdict != "admit":
                break
    return exchanges


async def _in_process(caller: HookCaller, request: Request) -> Exchange:
    begun = time.monotonic()
    try:
        answered = await caller.ask(request)
    except HookBroken as broken:
        return Exchange(caller.name, request, "broken", _seconds(broken, begun), problem=broken.cause)
    return _decided(Exchange(caller.name, request, "", answered.seconds), answered.decision)


async def _over_the_wire(caller: WebhookCaller, secrets: Secrets, request: Request) -> Exchange:
    body = question(request)
    sent = Sent(str(secrets.endpoint), secrets.head(len(body)), body.decode(), None, "")
    begun = time.monotonic()
    try:
        response = await caller.send(body)
    except HookBroken as broken:
        problem = secrets.hidden(broken.cause)
        if not broken.sent:
            sent = replace(sent, head=(), question="")
        return Exchange(caller.name, request, "broken", _seconds(broken, begun), problem=problem, sent=sent)
    sent = replace(sent, status=response.status, answer=secrets.hidden(response.body.decode("utf-8", "replace")))
    exchange = Exchange(caller.name, request, "broken", response.seconds, sent=sent)
    if response.status != 200:
        return replace(exchange, problem=status_problem(response.status))
    try:
        decided = _decided(exchange, read_answer(response.body, request.uid))
        return replace(decided, reason=secrets.hidden(decided.reason))
    except AnswerError as error:
        return replace(exchange, problem=secrets.hidden(str(error)))


def _decided(exchange: Exchange, decision: Decision) -> Exchange:
    if isinstance(decision, Admit):
        return replace(exchange, verdict="admit", changes=decision.changes)
    return replace(exchange, verdict=type(decision).__name__.lower(), reason=clean_reason(decision.reason))


def _seconds(broken: HookBroken, begun: float) -> float:
    return broken.seconds if broken.seconds is not None else time.monotonic() - begun


def as_json(exchange: Exchange) -> dict[str, object]:
    """Return an exchange as `--output json` has it. `http` is null for a hook in process."""
    sent = exchange.sent
    return {
        "hook": exchange.hook,
        "uid": exchange.request.uid,
        "verdict": exchange.verdict,
        "reason": exchange.reason,
        "changes": placement(exchange.changes),
        "problem": exchange.problem or None,
        "seconds": round(exchange.seconds, 6),
        "http": None if sent is None else asdict(sent),
    }


def print_exchange(exchange: Exchange) -> None:
    """Print an exchange for people: `>` is what was sent, `<` what came back."""
    sent = exchange.sent
    print_text(f"{shown(exchange.hook)}, {'in process' if sent is None else shown(sent.url)}")
    if sent is not None:
        for line in (*sent.head, "", sent.question) if sent.head else ("(nothing was sent)",):
            print_text(f"> {shown(line)}".rstrip())
        if sent.status is None:
            print_text("< (no answer)")
        else:
            print_text(f"< status {sent.status}")
            if not sent.answer and sent.status != 200:
                print_text("< (no body came along with it, and none is waited for)")
            for line in sent.answer.split("\n"):
                print_text(f"< {shown(line)}".rstrip())
    fields: dict[str, object] = {"verdict": exchange.verdict}
    if exchange.reason or exchange.verdict in ("hold", "refuse"):
        fields["reason"] = exchange.reason or NO_REASON
    fields |= {f"changes.{name}": value for name, value in placement(exchange.changes).items()}
    if exchange.problem:
        fields["problem"] = exchange.problem
    fields["time"] = f"{exchange.seconds * 1000:.1f} ms"
    print_fields(fields)
    print_text("")
