"""Where the server is and with which token it is asked (R10.4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dexaflow.base.errors import DexaflowError, UsageError
from dexaflow.base.hosts import is_loopback
from dexaflow.server.data_folder import is_closed_to_us, read_token, read_url

__all__ = ["Address", "NoServer", "data_folder", "find_address"]

DEFAULT_FOLDER = ".dexaflow"
_URL_FIX = "write it like https://dexaflow.example.com or http://127.0.0.1:8080"


class NoServer(DexaflowError):  # noqa: N818 - what is the matter
    """No server of ours could be asked: nobody there, no answer, or somebody else's."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server, as found. `url` and the sources are fit to be shown; `token` never is."""

    url: str
    tls: bool
    host: str
    port: int
    prefix: str  # of every path, "" or "/somewhere"
    token: str
    url_source: str
    token_source: str
    no_answer_fix: str

    def __repr__(self) -> str:
        return f"Address({self.url!r})"


def data_folder(given: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the data folder: `--data`, else `DEXAFLOW_DATA`, else `.dexaflow`."""
    return given or Path(environ.get("DEXAFLOW_DATA") or DEFAULT_FOLDER)


def find_address(given: Path | None, environ: Mapping[str, str]) -> Address:
    """Return where to ask: what was given on the command line, else the environment, else the data folder.

    `DEXAFLOW_URL` and `DEXAFLOW_TOKEN` each stand for their half of what the data folder says. Only a server on this
    machine is ever given the folder's token.

    Args:
        given: `--data`; with it the environment is not looked at.

    Raises:
        NoServer: none runs on the data folder.
        UsageError: an address or token cannot be used; it never quotes a token.
    """
    folder = data_folder(given, environ)
    url = "" if given is not None else environ.get("DEXAFLOW_URL", "").strip()
    token = "" if given is not None else environ.get("DEXAFLOW_TOKEN", "").strip()
    url_source = "DEXAFLOW_URL"
    if not url:
        found = read_url(folder)
        if found is None and is_closed_to_us(folder):
            raise UsageError(
                f"the data folder {folder} is closed to this user; ask as the user that runs the server, or set"
                " DEXAFLOW_URL and DEXAFLOW_TOKEN"
            )
        if found is None:
            raise NoServer(
                f"no server runs on the data folder {folder}, or not yet; start one with `dexaflow lite`, name its"
                " folder with --data, or set DEXAFLOW_URL and DEXAFLOW_TOKEN"
            )
        url, url_source = found, str(folder / "server.json")
    from_environment = url_source == "DEXAFLOW_URL"
    tls, host, port, prefix = _parts(url, url_source)
    token_source = "DEXAFLOW_TOKEN"
    if not token:
        if from_environment and not is_loopback(host):
            raise UsageError("DEXAFLOW_URL is set and DEXAFLOW_TOKEN is not; set it to that server's API token")
        token, token_source = read_token(folder) or "", str(folder / "token")
        if not token:
            raise UsageError(f"there is no token in {token_source}; set DEXAFLOW_TOKEN, or name the folder with --data")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise UsageError(f"the token of {token_source} holds characters that no token has; copy it anew")
    fix = (
        "check DEXAFLOW_URL, and that the server runs"
        if from_environment
        else f"start the server of the data folder {folder} with `dexaflow lite`"
    )
    shown = f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}{prefix}"
    return Address(shown, tls, host, port, prefix, token, url_source, token_source, fix)


def _parts(url: str, source: str) -> tuple[bool, str, int, str]:
    """Return scheme, host, port and path of an address that can be asked. The message quotes nothing of it."""
    try:
        parts = urlsplit(url)
        tls, host, port = parts.scheme == "https", parts.hostname or "", parts.port
    except ValueError:
        raise UsageError(f"{source} is not an address; {_URL_FIX}") from None
    if not (url.isascii() and url.isprintable()) or " " in url or parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"{source} is not an http or https address; {_URL_FIX}")
    if "@" in parts.netloc:
        raise UsageError(f"{source} holds a user or password, which the server has no use for; {_URL_FIX}")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise UsageError(f"{source} holds a query or fragment; {_URL_FIX}")
    if port == 0:
        raise UsageError(f"{source} names port 0; {_URL_FIX}")
    return tls, host, port or (443 if tls else 80), parts.path.rstrip("/")
