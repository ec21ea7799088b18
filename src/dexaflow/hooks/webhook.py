"""The endpoint behind a URL as a hook: question out, decision back."""

import asyncio
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from dexaflow.admission.decisions import Admit, Decision, Request
from dexaflow.admission.envelope import LONGEST_REMEMBERED, AnswerError, Answers, placement, question
from dexaflow.admission.ports import Answered
from dexaflow.base.errors import HookBroken
from dexaflow.base.in_steps import Turns
from dexaflow.hooks.addresses import Resolver
from dexaflow.hooks.files import MAX_BUNDLE_BYTES, MAX_TOKEN_BYTES, FileWatch, Watched, WatchedFile, token_in
from dexaflow.hooks.hiding import HIDDEN, hidden
from dexaflow.hooks.tls import client_context
from dexaflow.hooks.transport import MAX_CONNECTIONS, Response, Transport
from dexaflow.hooks.url import endpoint_from_config

__all__ = ["CA_FILE_KEY", "TOKEN_FILE_KEY", "WEBHOOK_NAME", "WebhookCaller", "status_problem"]

WEBHOOK_NAME: Final = "webhook"  # R8.1
CA_FILE_KEY: Final = "execution.admission.webhook.ca_file"
TOKEN_FILE_KEY: Final = "execution.admission.webhook.token_file"


def status_problem(status: int) -> str:
    """Say what a status other than 200 means, and what to look at."""
    return f"it answered with status {status}, not 200{_STATUS_HINTS.get(status, '')}"


_TO_WHERE = "; redirects are not followed: have execution.admission.webhook.url be the address that it leads to"
_WITH_WHAT = "; does it take the token of execution.admission.webhook.token_file?"
_AT_WHAT = "; is the path of execution.admission.webhook.url the one at which it answers?"
_STATUS_HINTS: Final = {
    **dict.fromkeys((301, 302, 303, 307, 308), _TO_WHERE),
    **dict.fromkeys((401, 403), _WITH_WHAT),
    **dict.fromkeys((404, 405, 410), _AT_WHAT),
}


def _without_tokens(decision: Decision, tokens: Sequence[str], body: bytes) -> Decision:
    """Return a decision that repeats no token: the task's author sees its reason and its changes (R2.3).

    Args:
        body: The answer; changes are looked through only when one may be in it.

    Raises:
        AnswerError: its changes hold a token, and would carry it to the pod.
    """
    if not isinstance(decision, Admit):
        reason = decision.reason
        for token in tokens:
            reason = reason.replace(token, HIDDEN)
        return decision if reason == decision.reason else replace(decision, reason=reason)
    for token in tokens:
        # After a backslash, one of its characters may be written in another way.
        may_be_there = len(token) >= _NO_WORD and (token.encode() in body or b"\\" in body)
        if may_be_there and any(token in text for text in _texts(placement(decision.changes))):
            raise AnswerError("token", "response.changes hold the token that the endpoint is asked with")
    return decision


def _texts(of: Any) -> Iterator[str]:  # Any: a JSON document
    if isinstance(of, str):
        yield of
    elif isinstance(of, dict):
        for key, value in of.items():
            yield key
            yield from _texts(value)
    elif isinstance(of, list):
        for item in of:
            yield from _texts(item)


# Characters from which on a token is no word that labels hold by chance, as `prod` or `test` is.
_NO_WORD: Final = 12


class WebhookCaller:
    """Asks the endpoint (a `HookCaller`). For one event loop; use it as ``async with``, or `close` it.

    CA bundle and token are read here, and again whenever they change (R2.3).

    Args:
        url: As configured (R2.4).
        timeout: Seconds a question may take, connecting included (R7.1).
        ca_file: Signs the endpoint's certificate, instead of the system's trust.
        token_file: Bearer token.
        resolver: In place of the system's, for tests.
        max_connections: Open at once at most.

    Raises:
        ConfigError: the URL or one of the files cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        ca_file: Path | None = None,
        token_file: Path | None = None,
        resolver: Resolver | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._endpoint = endpoint_from_config(url)
        self._ca: WatchedFile[ssl.SSLContext] | None = None
        self._token: WatchedFile[str] | None = None
        if ca_file is not None:
            self._ca = WatchedFile(
                CA_FILE_KEY,
                ca_file,
                client_context,
                fix="name a readable file of PEM certificates",
                max_bytes=MAX_BUNDLE_BYTES,
            )
        if token_file is not None:
            self._token = WatchedFile(
                TOKEN_FILE_KEY,
                token_file,
                token_in,
                fix="name a readable file that holds the token and at most one line end",
                max_bytes=MAX_TOKEN_BYTES + 2,
                secret=True,
            )
        tls: ssl.SSLContext | None = None
        if self._endpoint.tls:
            tls = client_context(None) if self._ca is None else self._ca.value
        self._tokens: tuple[str, ...] = () if self._token is None else (self._token.value,)
        self._transport = Transport(
            self._endpoint,
            timeout=timeout,
            tls=tls,
            token=None if self._token is None else self._token.value,
            resolver=resolver,
            max_connections=max_connections,
        )
        self._answers = Answers()
        self._long_answers = Turns()  # read one at a time, in steps: nobody else on the loop waits for them
        self._loop: asyncio.AbstractEventLoop | None = None
        files: list[Watched] = [file for file in (self._ca, self._token) if file is not None]
        self._watch = FileWatch(files, self._file_changed)

    @property
    def name(self) -> str:
        """The webhook's name in metrics, records and messages (R8.1)."""
        return WEBHOOK_NAME

    async def __aenter__(self) -> "WebhookCaller":
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to watch the files; the first question does it too."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._watch.start()

    async def close(self) -> None:
        """Close the connections and stop watching. Questions under way fail."""
        self._watch.stop()
        await self._transport.close()

    async def ask(self, request: Request) -> Answered:
        """Put one question. See `HookCaller.ask`."""
        self.start()
        response = await self._transport.post(question(request), request.tenant_id)
        if response.status != 200:
            cause = f"{self._endpoint}: {status_problem(response.status)}"
            raise HookBroken(cause, seconds=response.seconds, sent=True)
        try:
            if len(response.body) <= LONGEST_REMEMBERED:
                decision, again = self._answers.read(response.body, request.uid)
            else:
                decision, again = await self._long_answers.do(self._answers.reading(response.body, request.uid))
            if self._tokens:
                decision = _without_tokens(decision, self._tokens, response.body)
        except AnswerError as error:
            said = hidden(str(error), (*self._tokens, self._endpoint.target.partition("?")[2]))
            cause = f"{self._endpoint}: {said}"
            raise HookBroken(cause, ambiguous=error.ambiguous, seconds=response.seconds, sent=True) from error
        return Answered(decision, response.seconds, again)

    async def send(self, body: bytes) -> Response:
        """POST a question's document and return what came back, unread. Raises `HookBroken`."""
        self.start()
        return await self._transport.post(body)

    def withdraw(self) -> None:
        """Give up the questions that wait for a connection. See `Paced`."""
        self._transport.withdraw()

    def stale_files(self) -> Mapping[str, bool]:
        """Return which of the configured files could not be read again after a change (R2.3)."""
        files = {"ca_file": self._ca, "token_file": self._token}
        return {name: file.stale for name, file in files.items() if file is not None}

    def _file_changed(self, file: Watched) -> None:
        """Called in the watching thread."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._use, file)
        except RuntimeError:
            pass  # the loop is closed: nobody asks

    def _use(self, file: Watched) -> None:
        if self._token is not None and file is self._token:
            self._transport.use(token=self._token.value)
            self._tokens = (self._token.value, *self._tokens[:1])  # an answer may be to a question with the old one
        elif self._ca is not None and self._endpoint.tls:
            self._transport.use(tls=self._ca.value)
