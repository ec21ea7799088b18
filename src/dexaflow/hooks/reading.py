"""Reading answers: HTTP/1.1 rules and limits, apart from sockets (R4.1).

httptools (llhttp, strict) judges the grammar: two or odd `Content-Length`, both framings at once, folded headers and
bare line feeds are errors there. What it lets pass and we do not is refused here.
"""

from typing import Final

import httptools

__all__ = ["MAX_BODY_BYTES", "MAX_HEAD_BYTES", "MAX_RAW_BYTES", "AnswerReader"]

MAX_BODY_BYTES: Final = 65_536  # spec, "The answer"
MAX_HEAD_BYTES: Final = 65_536  # no number of the spec: more than servers and proxies are set up to send
# A chunk of one byte takes six on the wire: room for that, and an end to endless chunk extensions and trailers.
MAX_RAW_BYTES: Final = MAX_HEAD_BYTES + 8 * MAX_BODY_BYTES

_TOLD_BY_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding", b"content-encoding"})


class _Enough(Exception):  # noqa: N818 - not an error: stops the parser
    """Nothing after this is looked at."""


class AnswerReader:
    """Reads one answer after another from the bytes of one connection.

    After `feed` or `end_of_stream` has returned True, an answer is there (`status`, `body`), or `fault` says what is
    wrong with it. `reusable` tells whether the connection may carry another question; then call `begin`.

    For a status other than 200, which no body can make better, the answer is there with its headers; `body` is then
    what came along with them.
    """

    __slots__ = (
        "_chunked",
        "_chunks",
        "_complete",
        "_head_done",
        "_length",
        "_parser",
        "_raw_bytes",
        "_size",
        "_unfit",
        "_until_end",
        "body",
        "fault",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Make ready for the next answer."""
        self.status = 0
        self.body = b""
        self.fault = ""
        self.reusable = False
        self._raw_bytes = 0
        self._complete = False
        self._begin_message()

    def _begin_message(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._head_done = False
        self._length: int | None = None
        self._chunked = False
        self._until_end = False
        self._unfit = ""  # what a header says that an answer's must not

    @property
    def _interim(self) -> bool:
        return 100 <= self.status < 200  # below is a status too, if none that HTTP knows

    @property
    def place(self) -> str:
        """How far the answer has come, for the log."""
        if not self._raw_bytes:
            return "before the first byte of an answer"
        return "inside the body of the answer" if self._head_done else "inside the headers of the answer"

    def feed(self, data: bytes) -> bool:
        """Take bytes; return whether the answer, or a fault, is there."""
        while len(data) > (room := max(0, (MAX_RAW_BYTES if self._head_done else MAX_HEAD_BYTES) - self._raw_bytes)):
            # Only up to the limit, so that it is the same one in whatever pieces the bytes come.
            if self._take(data[:room]):
                self.reusable = False
                return True
            if not self._head_done:
                self.fault = f"the answer has more than {MAX_HEAD_BYTES} bytes of headers"
                return True
            if self._raw_bytes >= MAX_RAW_BYTES:
                self.fault = "the answer's chunks or trailers have no end"
                return True
            data = data[room:]
        return self._take(data)

    def _take(self, data: bytes) -> bool:
        self._raw_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.reusable = False
            if not self._complete and not self.fault:
                self.fault = f"the answer is not HTTP/1.1: {error}"
        if self._complete:
            self.reusable = self.reusable and self._nothing_after(data)
            return True
        if self._head_done and not self._interim and self.status != 200:
            self.fault = ""  # whatever is wrong with the body, the status has decided
            self.body = b"".join(self._chunks)
            return True
        return bool(self.fault)

    def end_of_stream(self) -> bool:
        """Take an orderly end of the connection; return whether it was the end of the answer's body."""
        if self._until_end and not self.fault and not self._complete:
            self.body = b"".join(self._chunks)
            self._complete = True
        return self._complete

    def _nothing_after(self, data: bytes) -> bool:
        """Whether the answer was the last of `data`. The parser swallows line ends after a message; we do not."""
        if self._chunks and not self._chunked:
            return data.endswith(self._chunks[-1])
        # The headers' end, or the trailers', and one blank line alone; of less, in a piece of its own, all is well.
        return data in (b"\n", b"\r\n", b"\n\r\n") or (
            data.endswith(b"\r\n\r\n") and not data.endswith(b"\r\n\r\n\r\n")
        )

    def _refuse(self, fault: str) -> None:
        self.fault = fault
        raise _Enough

    # What httptools calls

    def on_message_begin(self) -> None:
        if self._complete:
            self.reusable = False  # something after the answer
            raise _Enough

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name not in _TOLD_BY_HEADERS or self._head_done:  # in a trailer they mean nothing
            return
        if name == b"content-length":
            self._length = int(value)  # the parser has seen that it is digits, and given once
        elif name == b"transfer-encoding":
            if self._chunked or value.strip().lower() != b"chunked":
                self._unfit = "the answer has a transfer encoding other than chunked"
            self._chunked = True
        elif value.strip().lower() not in (b"", b"identity"):
            self._unfit = "the answer is compressed, which was not asked for"

    def on_headers_complete(self) -> None:
        parser = self._parser
        self._head_done = True
        self.status = parser.get_status_code()
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse(f"the answer's version is {version}")
        if version == "1.0" and self._chunked:
            self._unfit = "the answer is chunked, which version 1.0 does not know"
        if self.status == 101:
            self._refuse("the endpoint switches protocols, which was not asked for")
        if self._interim and (self._chunked or self._length):  # the parser would read one, others would not
            self._refuse("an interim answer announces a body, and has none in HTTP")
        if self.status != 200:
            return  # says all by itself
        if self._unfit:
            self._refuse(self._unfit)
        if self._length is not None and self._length > MAX_BODY_BYTES:
            self._refuse(f"the answer's body has {self._length} bytes, more than {MAX_BODY_BYTES}")
        self._until_end = self._length is None and not self._chunked

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_BODY_BYTES:
            self._refuse(f"the answer's body has more than {MAX_BODY_BYTES} bytes")
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        if 100 <= self.status < 200:  # an interim answer: the real one follows
            self._begin_message()
            return
        chunks = self._chunks
        self.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.reusable = self._parser.should_keep_alive() and not self._unfit
        self._complete = True
