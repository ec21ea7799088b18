"""The way to the endpoint: questions, connections and who waits for which (R7.1, R7.5).

A transport of our own, for one origin, because every promise here was broken by some client library: one deadline from
name look-up to last byte, fair waiting that is no failure, a dead pooled connection that is none either, nothing read
past the limit, and no proxy, cookie, redirect or retry that nobody asked for.

Every decision is one synchronous step, taken when a question comes or ends, or when a connection does; only dialling
is a task. So a question that is cancelled or out of time gives its place away at once.
"""

import asyncio
import contextlib
import ssl
import time
from collections import deque
from types import TracebackType
from typing import Final, NamedTuple

from dexaflow.admission.ports import NotPut
from dexaflow.base.errors import HookBroken
from dexaflow.base.steps import Step, reached
from dexaflow.hooks.addresses import Resolver
from dexaflow.hooks.connection import Connection
from dexaflow.hooks.dialing import Unreachable, dial, stagger
from dexaflow.hooks.tenant_queue import TenantQueue
from dexaflow.hooks.url import Endpoint

__all__ = ["MAX_CONNECTIONS", "Response", "Transport"]

MAX_CONNECTIONS: Final = 16
IDLE_SECONDS: Final = 30.0  # shorter than the keep-alive of most servers and middleboxes
CLOSE_SECONDS: Final = 1.0  # `close` waits no longer for sockets to be gone


class Response(NamedTuple):
    """What the endpoint answered, and how long that took, in seconds, without waiting for a connection (R7.1).

    `body` has at most 65,536 bytes. For a status other than 200 it is what came along with the headers.
    """

    status: int
    body: bytes
    seconds: float


class _Question:
    """One question on its way. `started` is monotonic seconds, 0 while it waits for a connection."""

    __slots__ = (
        "answer",
        "body",
        "connection",
        "dialling",
        "ended",
        "place",
        "retried",
        "sent",
        "started",
        "tenant_id",
    )

    def __init__(self, body: bytes, tenant_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.body = body
        self.tenant_id = tenant_id
        # Carries a failure as a value: an exception in a future that nobody awaits any more would be logged.
        self.answer: asyncio.Future[Response | HookBroken | NotPut] = loop.create_future()
        self.started = 0.0
        self.connection: Connection | None = None
        self.dialling: asyncio.Task[None] | None = None
        self.place = ""  # what it waits for while it has no connection, for the log
        self.retried = False
        self.sent = False  # given to a connection, at least once
        self.ended = False


class Transport:
    """POSTs questions to one endpoint over at most `max_connections` connections. For one event loop.

    Use it as ``async with``, or `close` it.

    Args:
        timeout: Seconds a question may take, from the moment it has a connection or the right to open one.
        tls: Required for `https`; None for `http`.
        token: Bearer token of visible ASCII, as `files.token_in` returns it; None sends none.
        resolver: The endpoint's; made here when None.
        idle_seconds: A connection that has carried nothing for so long is closed.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout: float,
        tls: ssl.SSLContext | None = None,
        token: str | None = None,
        resolver: Resolver | None = None,
        max_connections: int = MAX_CONNECTIONS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        if endpoint.tls is (tls is None):
            raise ValueError("an https endpoint needs a TLS context, an http one must have none")
        self._endpoint = endpoint
        self._timeout = timeout
        self._tls = tls
        self._head = request_head(endpoint, token)
        self._resolver = resolver or Resolver(endpoint.host, endpoint.port, loopback_only=endpoint.loopback_only)
        self._max = max_connections
        self._idle_seconds = idle_seconds
        self._generation = 0  # of the TLS context
        self._closed = False
        self._places = 0  # connections idle, asking, or being opened
        self._idle: deque[Connection] = deque()  # last used at the right, used next
        self._waiting = TenantQueue[_Question]()  # only while every place is taken and none is idle
        self._asking: dict[Connection, _Question] = {}
        self._dialling: dict[asyncio.Task[None], _Question] = {}
        # Whose clock runs, the earliest first, since all have the same time. One timer is for the first of them, and
        # is set anew only when it fires: one for each question would cost a tenth of the question.
        self._timed: dict[_Question, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._connections: set[Connection] = set()  # whose sockets may still be open
        self._reaper: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> "Transport":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def post(self, body: bytes, tenant_id: str = "") -> Response:
        """Send one question and return what came back, whatever its status.

        Where it has to wait for a connection, the tenants that wait take turns. Cancelled, it gives up its connection
        at once.

        Raises:
            HookBroken: no complete answer within the timeout, or none that may be accepted (R4.1).
            NotPut: withdrawn while it waited for a connection.
        """
        if self._closed:
            raise HookBroken(f"{self._endpoint}: the transport is closed", seconds=0.0)
        question = _Question(body, tenant_id, asyncio.get_running_loop())
        self._submit(question)
        try:
            outcome = await question.answer
        finally:
            if not question.ended:  # cancelled
                self._give_up(question)
        if isinstance(outcome, Response):
            return outcome
        raise outcome

    def withdraw(self) -> None:
        """Give up the questions that wait for a connection."""
        while self._waiting:
            self._settle(self._waiting.popleft(), NotPut())

    def use(self, *, tls: ssl.SSLContext | None = None, token: str | None = None) -> None:
        """Go on with another TLS context or token; None leaves it as it is.

        Connections made under the old context are closed: idle ones now, the others after their answer (R2.3).
        """
        if token is not None:
            self._head = request_head(self._endpoint, token)
        if tls is not None:
            self._tls = tls
            self._generation += 1
            while self._idle:
                self._drop(self._idle.popleft())

    async def close(self) -> None:
        """Close every connection; questions under way and waiting fail. May be called again."""
        self._closed = True
        broken = HookBroken(f"{self._endpoint}: the transport was closed", seconds=0.0)
        while self._waiting:
            self._settle(self._waiting.popleft(), broken)
        tasks = list(self._dialling)
        for question in [*self._asking.values(), *self._dialling.values()]:
            self._fail(question, "the transport was closed")
        while self._idle:
            self._drop(self._idle.popleft())
        for timer in (self._reaper, self._timer):
            if timer is not None:
                timer.cancel()
        self._resolver.close()
        going = [connection.gone for connection in self._connections]
        if tasks or going:
            await asyncio.wait([*tasks, *going], timeout=CLOSE_SECONDS)

    @property
    def open_connections(self) -> int:
        """Connections that are idle, asking, or being opened."""
        return self._places

    @property
    def waiting(self) -> int:
        """Questions that wait for a connection."""
        return len(self._waiting)

    # A question gets a place

    def _submit(self, question: _Question) -> None:
        connection = self._take_idle()
        if connection is not None:
            self._start(question)
            self._put(question, connection)
        elif self._places < self._max:
            self._places += 1
            self._start(question)
            self._dial(question)
        else:
            # Nobody waits while a place is free, so whoever got one above has overtaken nobody.
            self._waiting.append(question.tenant_id, question)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.quiet():
                return connection
            self._drop(connection)
        return None

    def _start(self, question: _Question) -> None:
        """Start the question's clock (R7.1)."""
        question.started = time.monotonic()
        self._timed[question] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._look_at_the_clock)

    def _put(self, question: _Question, connection: Connection) -> None:
        question.connection = connection
        question.sent = True
        self._asking[connection] = question
        body = question.body
        connection.send(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        reached(Step.QUESTION_SENT)

    def _dial(self, question: _Question) -> None:
        """Open a connection for this question; it has its place already."""
        task = question.answer.get_loop().create_task(self._connect(question))
        question.dialling = task
        self._dialling[task] = question
        task.add_done_callback(self._dialling.pop)

    async def _connect(self, question: _Question) -> None:
        endpoint = self._endpoint
        try:
            question.place = f"while {endpoint.host} was looked up"
            addresses = await self._resolver.resolve()
            question.place = "while connecting"
            connection = await dial(
                addresses,
                tls=self._tls,
                server_name=endpoint.server_name,
                generation=self._generation,
                delay=stagger(len(addresses), self._timeout),
            )
        except (OSError, Unreachable) as error:
            question.dialling = None
            self._fail(question, str(error))
            return
        if question.ended:
            connection.abort()
            return
        question.dialling = None
        self._connections.add(connection)
        connection.gone.add_done_callback(lambda _: self._connections.discard(connection))
        connection.own(self)
        if connection.closed:  # it went while the handshake's end was on its way to us
            self._fail(question, "the connection was closed as soon as it was open")
            return
        self._put(question, connection)

    # A connection speaks

    def answered(self, connection: Connection) -> None:
        """See `connection.Owner`."""
        question = self._asking.pop(connection)
        question.connection = None
        reader = connection.reader
        outcome: Response | HookBroken
        seconds = time.monotonic() - question.started
        if reader.fault:
            outcome = HookBroken(f"{self._endpoint}: {reader.fault}", seconds=seconds, sent=True)
        else:
            outcome = Response(reader.status, reader.body, seconds)
        reusable = reader.reusable and not reader.fault
        self._settle(question, outcome)
        if reusable and connection.generation == self._generation and not self._closed:
            connection.settled()
            self._hand_on(connection)
        else:
            self._drop(connection)

    def lost(self, connection: Connection, cause: str) -> None:
        """See `connection.Owner`."""
        question = self._asking.pop(connection, None)
        if question is None:
            with contextlib.suppress(ValueError):  # absent: dropped already
                self._idle.remove(connection)
                self._free_place()
            return
        question.connection = None
        if connection.used and not connection.touched and not question.retried:
            # A dead pooled connection is not a broken endpoint (R7.5): once more, on a new one, by the same deadline.
            question.retried = True
            self._dial(question)
            return
        self._fail(question, cause)

    # A question ends, a place becomes free

    def _look_at_the_clock(self) -> None:
        # Late, because our own event loop was held up? An answer that lies in the socket has been read by now: both
        # event loops look at their sockets before they look at their timers.
        self._timer = None
        while self._timed:
            question = next(iter(self._timed))
            left = question.started + self._timeout - time.monotonic()
            if left > 0.0005:  # an earlier one was answered; or uvloop is early, since it counts from its turn's start
                self._timer = asyncio.get_running_loop().call_later(left, self._look_at_the_clock)
                return
            self._out_of_time(question)

    def _out_of_time(self, question: _Question) -> None:
        connection = question.connection
        place = connection.reader.place if connection else question.place
        if connection is not None and connection.used and not connection.touched:
            self._suspect(question.started)
        self._fail(question, f"no answer within {self._timeout:g}s; it ended {place}", timed_out=True)

    def _suspect(self, since: float) -> None:
        """Close the idle connections that have said nothing since then: the host that they led to may be gone.

        A host that loses its power, or a firewall that forgets, closes nothing. One question finds out, by its
        timeout; were the next to go on another connection of the same age, five of them would open the breaker of an
        endpoint that is long up again elsewhere (R7.5).
        """
        while self._idle and self._idle[0].idle_since < since:
            self._drop(self._idle.popleft())

    def _fail(self, question: _Question, cause: str, *, timed_out: bool = False) -> None:
        if question.ended:
            return
        seconds = time.monotonic() - question.started
        cause = f"{self._endpoint}: {cause}"
        self._settle(question, HookBroken(cause, timed_out=timed_out, seconds=seconds, sent=question.sent))
        self._leave(question)

    def _give_up(self, question: _Question) -> None:
        """The asker was cancelled."""
        question.ended = True
        if not question.started:
            self._waiting.remove(question.tenant_id, question)
            return
        del self._timed[question]
        self._leave(question)

    def _settle(self, question: _Question, outcome: Response | HookBroken | NotPut) -> None:
        question.ended = True
        self._timed.pop(question, None)
        if not question.answer.done():
            question.answer.set_result(outcome)

    def _leave(self, question: _Question) -> None:
        """Take the question's place away; an answer that is still to come finds its connection closed."""
        if question.dialling is not None:
            question.dialling.cancel()
            question.dialling = None
        connection, question.connection = question.connection, None
        if connection is not None:
            del self._asking[connection]
            connection.abort()
        self._free_place()

    def _drop(self, connection: Connection) -> None:
        connection.abort()
        self._free_place()

    def _free_place(self) -> None:
        self._places -= 1
        if self._waiting and not self._closed:
            question = self._waiting.popleft()
            self._places += 1
            self._start(question)
            self._dial(question)

    def _hand_on(self, connection: Connection) -> None:
        """Give a connection that has just become free to whoever is next."""
        if not self._waiting:
            now = time.monotonic()
            connection.idle_since = now
            self._idle.append(connection)
            if self._reaper is None:
                self._reap_in(self._idle_seconds)
        elif connection.quiet():
            question = self._waiting.popleft()
            self._start(question)
            self._put(question, connection)
        else:
            self._drop(connection)

    def _reap_in(self, seconds: float) -> None:
        self._reaper = asyncio.get_running_loop().call_later(seconds, self._reap)

    def _reap(self) -> None:
        """Close the connections that have been idle too long."""
        self._reaper = None
        now = time.monotonic()
        while self._idle and self._idle[0].idle_since + self._idle_seconds <= now + 0.001:
            self._drop(self._idle.popleft())
        if self._idle:
            self._reap_in(self._idle[0].idle_since + self._idle_seconds - now)


def request_head(endpoint: Endpoint, token: str | None) -> bytes:
    """Return every request's beginning, up to the value of Content-Length, which comes last."""
    if token is not None and not (token and all("\x21" <= character <= "\x7e" for character in token)):
        raise ValueError("the token would break a header")
    lines = [
        f"POST {endpoint.target} HTTP/1.1",
        f"Host: {endpoint.authority}",
        "User-Agent: dexaflow",
        "Accept: application/json",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
    ]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "Content-Length: "]).encode("ascii")
