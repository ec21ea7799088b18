"""A request's head, bounded: whoever can connect sends one before a token is asked for."""

import asyncio
from typing import ClassVar, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["MAX_HEAD_BYTES", "BoundedHeads"]

MAX_HEAD_BYTES: Final = 65_536  # and what arrives together with its beginning or end; as uvicorn's other parser has it


class BoundedHeads(HttpToolsProtocol):
    """uvicorn's protocol, whose heads may be of any size and take any time; a connection beyond bounds is closed."""

    head_seconds: ClassVar[float] = 30.0  # from connecting, or from a later head's first byte, to its end

    _late: asyncio.TimerHandle | None = None  # running while a head is awaited
    _heads = 0  # begun on this connection
    _head_bytes = 0  # of the present one

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        heads = self._heads
        super().data_received(data)
        if self._late is None or self._heads != heads:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._end_head()
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def _begin_head(self) -> None:
        self._end_head()
        self._heads += 1
        self._head_bytes = 0
        self._late = asyncio.get_running_loop().call_later(self.head_seconds, self.transport.abort)

    def _end_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
