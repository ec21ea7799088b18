"""Talking to the server: one request, one answer, and one line for everything that can go wrong in between.

Address and token are looked up anew for each request, so that a server that comes back at another port is found.
Proxy variables and `.netrc` are ignored, redirects are not followed, and the token is never printed.
"""

import contextlib
import http.client
import json
import os
import pwd
import re
import ssl
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from dexaflow.base.errors import DexaflowError, UsageError
from dexaflow.base.text import cut, quoted
from dexaflow.cli.address import Address, NoServer, find_address
from dexaflow.cli.output import FAILED, USAGE, fail

__all__ = ["ApiProblem", "Client", "NoServer", "Query", "airflow", "connected", "own"]

ANSWER_SECONDS = 30.0  # to connect, and for each piece of an answer
STREAM_SECONDS = 60.0  # without a byte, on a stream on which the server says every 15 s that it is still there
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # the largest page is a tenth of it
PAGE = 250  # rows at once; the server gives no more
_MAX_DETAIL_BYTES = 2000
_FIELD = re.compile(r"^(?:body|query)\.(\w+)(?:\.\d+)?$")

Query = Mapping[str, object]


class ApiProblem(DexaflowError):  # noqa: N818 - RFC 9457's word
    """The server said no, and why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status

    @property
    def code(self) -> int:
        """The exit status: asked and answered with no, or not even askable (wrong arguments, wrong token)."""
        return FAILED if self.status in (404, 409) else USAGE


def own(*parts: str) -> str:
    """Return a path of our own API. Raises `UsageError` for a part that can be nobody's name."""
    return _path("/dexaflow/v1", parts)


def airflow(*parts: str) -> str:
    """Return a path of the API shaped like Airflow's. Raises `UsageError` like `own`."""
    return _path("/api/v2", parts)


def _path(base: str, parts: Sequence[str]) -> str:
    for part in parts:
        if part in ("", ".", "..") or "/" in part or "\0" in part:
            raise UsageError(f"{quoted(part)} is not a name; the list commands show the names there are")
    return "/".join((base, *(quote(part, safe="", errors="replace") for part in parts)))


class Client:
    """Asks the server that `find` names.

    Every method raises `NoServer` or `ApiProblem`, with a line that is fit to be shown.
    """

    def __init__(self, find: Callable[[], Address]) -> None:
        self._find = find

    def get(self, path: str, query: Query | None = None) -> Any:  # Any: decoded JSON, shaped as api/own/shapes.py says
        """Return the JSON that a GET is answered with."""
        return self.send("GET", path, query=query)

    def send(self, method: str, path: str, body: object = None, query: Query | None = None) -> Any:  # Any: as `get`
        """Return the JSON that a request is answered with; None when the answer has no body."""
        with self._answered(method, path, query, body, ANSWER_SECONDS) as (address, response):
            content = _read(response)
            if response.status == 204:
                return None
            found = _json(response, content)
            if found is None:
                raise NoServer(f"what answers at {address.url} is not Dexaflow; check {address.url_source}")
            return found[0]

    def rows(self, path: str, key: str, query: Query | None = None, limit: int | None = None) -> dict[str, Any]:
        """Return a list of up to `limit` rows (None: all of them) in the shape of one page, fetched page by page."""
        page: dict[str, Any] = {}
        rows: list[Any] = []
        while True:
            left = PAGE if limit is None else min(PAGE, limit - len(rows))
            page = self.get(path, {**(query or {}), "limit": left, "offset": len(rows)})
            rows += page[key]
            if len(page[key]) < left or len(rows) == limit or len(rows) >= page["total_entries"]:
                return {**page, key: rows}

    def raw(self, path: str, query: Query | None = None) -> tuple[bytes, http.client.HTTPMessage]:
        """Return bytes as they are, and the headers that came with them."""
        with self._answered("GET", path, query, None, ANSWER_SECONDS) as (_, response):
            return _read(response), response.headers

    @contextlib.contextmanager
    def stream(self, path: str) -> Iterator[Callable[[], bytes]]:
        """Give a function that waits for the next piece of a stream, empty at its end.

        The stream was cut off when it raises `NoServer`.
        """
        with self._answered("GET", path, None, None, STREAM_SECONDS) as (_, response):
            yield lambda: response.read1(65_536)

    @contextlib.contextmanager
    def _answered(
        self, method: str, path: str, query: Query | None, body: object, seconds: float
    ) -> Iterator[tuple[Address, http.client.HTTPResponse]]:
        """Give a successful answer, not read yet. Errors of reading it inside are translated too."""
        address = self._find()
        with _translated(address), contextlib.closing(_connection(address, seconds)) as connection:
            headers = {
                "Authorization": f"Bearer {address.token}",
                "Accept": "application/json, text/plain, text/event-stream",
                "X-Dexaflow-User": _user(),
                "Connection": "close",
            }
            data = None
            if body is not None:
                data = json.dumps(body, separators=(",", ":")).encode()
                headers["Content-Type"] = "application/json"
            asked = "" if not query else f"?{_encoded(query)}"
            connection.request(method, f"{address.prefix}{path}{asked}", data, headers)
            response = connection.getresponse()
            with contextlib.closing(response):
                if response.status >= 300:
                    raise _problem(address, response)
                yield address, response


def _encoded(query: Query) -> str:
    """Return a query string; lists give their name once for each item, None nothing."""
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if item is not None:
                pairs.append((name, str(item).lower() if isinstance(item, bool) else str(item)))
    return urlencode(pairs, errors="replace")


def _connection(address: Address, seconds: float) -> http.client.HTTPConnection:
    if address.tls:
        context = ssl.create_default_context()  # with SSL_CERT_FILE, if that is set
        return http.client.HTTPSConnection(address.host, address.port, timeout=seconds, context=context)
    return http.client.HTTPConnection(address.host, address.port, timeout=seconds)


def _user() -> str:
    """Return the name of the operating system's user, for runs' notes; it gives no right."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid {os.getuid()}"
    return name.encode("ascii", "backslashreplace").decode()


def _read(response: http.client.HTTPResponse) -> bytes:
    content = response.read(MAX_ANSWER_BYTES + 1)
    if len(content) > MAX_ANSWER_BYTES:
        raise NoServer(f"the answer is larger than {MAX_ANSWER_BYTES} bytes; ask for less with --limit")
    if response.length:  # http.client leaves it at that: a log would end early, as if it were whole
        raise http.client.IncompleteRead(content, response.length)
    return content


def _json(response: http.client.HTTPResponse, content: bytes) -> tuple[Any] | None:
    """Return the JSON of an answer, in a tuple, or None when it is something else."""
    kind = response.headers.get_content_type()
    if kind != "application/json" and not kind.endswith("+json"):
        return None
    try:
        return (json.loads(content.decode()),)
    except (ValueError, RecursionError):
        return None


def _problem(address: Address, response: http.client.HTTPResponse) -> DexaflowError:
    """Return what an answer that is no success means to the person who asked."""
    status = response.status
    if status < 400:
        return NoServer(f"{address.url} answers with a redirect; write the address where Dexaflow itself answers")
    if status == 401:
        return ApiProblem(
            status,
            f"the server at {address.url} does not accept the token of {address.token_source};"
            " it may be another server's: use the data folder of this one, or its token in DEXAFLOW_TOKEN",
        )
    found = _json(response, _read(response))
    said = found[0] if found is not None and isinstance(found[0], dict) else {}
    detail = said.get("detail")
    if isinstance(detail, str) and detail:
        return ApiProblem(status, cut(_as_typed(detail, said.get("errors")), _MAX_DETAIL_BYTES))
    phrase = http.client.responses.get(status, "unknown")
    return NoServer(f"{address.url} answers with status {status} ({phrase}); check {address.url_source}")


def _as_typed(detail: str, errors: object) -> str:
    """Return `detail` with the options that were typed in place of the request's fields that it begins with."""
    typed = {word.partition("=")[0] for word in sys.argv[1:]}
    for error in errors if isinstance(errors, list) else ():
        if isinstance(error, dict):
            field = str(error.get("field"))
            name = _FIELD.sub(r"\1", field)
            option = "--" + name.replace("_", "-")
            detail = detail.replace(f"{field}: ", f"{option if option in typed else name}: ", 1)
    return detail


@contextlib.contextmanager
def _translated(address: Address) -> Iterator[None]:
    """Turn whatever a network can do into a line."""
    url = address.url
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        why = error.verify_message or "it is not trusted"
        fix = "for a private CA set SSL_CERT_FILE to its PEM file"
        raise NoServer(f"the certificate of {url} is not accepted: {why}; {fix}") from error
    except ssl.SSLError as error:
        reason = (error.reason or "TLS failed").replace("_", " ").lower()
        raise NoServer(f"{url} cannot be asked over TLS: {reason}; check {address.url_source}") from error
    except ConnectionRefusedError as error:
        raise NoServer(f"nothing answers at {url} (connection refused); {address.no_answer_fix}") from error
    except TimeoutError as error:
        raise NoServer(f"{url} does not answer in time; {address.no_answer_fix}") from error
    except (http.client.HTTPException, ConnectionError) as error:
        raise NoServer(f"{url} broke off its answer; {address.no_answer_fix}") from error
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "its host cannot be looked up"
        raise NoServer(f"{url} cannot be reached: {why}; check {address.url_source}") from error


@dataclass(frozen=True, slots=True)
class _Finder:
    data: Path | None

    def __call__(self) -> Address:
        return find_address(self.data, os.environ)


@contextlib.contextmanager
def connected(data: Path | None) -> Iterator[Client]:
    """Give a client for a command, and end the command with one line and an exit status when something goes wrong.

    1: asked, and answered with no. 2: it could not be asked.

    Args:
        data: `--data`; None: look in the environment, then in the default folder.
    """
    try:
        yield Client(_Finder(data))
    except ApiProblem as problem:
        fail(str(problem), problem.code)
    except DexaflowError as error:
        fail(str(error), USAGE)
