"""The webhook's URL: read once, strictly, into a value that cannot be wrong (R2.4).

Stricter than a browser: what two readers could read differently (`127.1`, a backslash, a tab) is refused.
"""

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final

from dexaflow.base.errors import ConfigError

__all__ = ["URL_FIX", "URL_KEY", "Endpoint", "endpoint_from_config", "parse_webhook_url"]

URL_KEY: Final = "execution.admission.webhook.url"
URL_FIX: Final = "write an https URL, such as https://admission.policy.svc:8443/admit (http on loopback only)"
MAX_URL_CHARACTERS: Final = 4096  # no number of the spec: well below what servers take in a request line

_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?P<fragment>#.*)?"
)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?P<colon>:(?P<port>.*))?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_TARGET = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
_LABEL = re.compile(r"(?!-)[a-z0-9_\-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where questions are sent.

    `host` is ASCII and lower case: a name, or an address without brackets. `target` is the path and query as they
    stand in a request line.
    """

    scheme: str
    host: str
    port: int
    target: str = field(repr=False)  # as with `str`

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme == "https"

    @property
    def loopback_only(self) -> bool:
        """Whether the host may only resolve to loopback: unencrypted questions never leave this machine (R2.4)."""
        return self.scheme == "http"

    @property
    def server_name(self) -> str:
        """The name or address that the certificate must bear; a name's trailing dot is DNS's alone."""
        return self.host.removesuffix(".")

    @property
    def authority(self) -> str:
        """The `Host` header: brackets around an IPv6 address, a default port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        """Scheme, host and port, for the server's log; path and query may hold what nobody should read there."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def endpoint_from_config(url: str) -> Endpoint:
    """Return the endpoint that `execution.admission.webhook.url` names.

    Raises:
        ConfigError: it cannot be used; the message quotes none of it.
    """
    try:
        return parse_webhook_url(url)
    except ValueError as error:
        raise ConfigError(URL_KEY, str(error), URL_FIX) from None


def parse_webhook_url(url: str) -> Endpoint:
    """Return the endpoint that `url` names.

    Raises:
        ValueError: it cannot be used; the message says why and never holds any of it (R2.4).
    """
    if not url:
        raise ValueError("it is empty")
    if len(url) > MAX_URL_CHARACTERS:
        raise ValueError(f"it has more than {MAX_URL_CHARACTERS} characters")
    if any(character.isspace() or ord(character) < 0x20 or ord(character) == 0x7F for character in url):
        raise ValueError("it holds blanks or control characters")
    if "\\" in url:
        raise ValueError("it holds a backslash")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ValueError("it is not of the form https://host[:port]/path")
    scheme = parts["scheme"].lower()
    if scheme not in _DEFAULT_PORTS:
        raise ValueError("its scheme is neither https nor http")
    if "@" in parts["authority"]:
        raise ValueError("it holds user info; put a token into execution.admission.webhook.token_file")
    if parts["fragment"] is not None:
        raise ValueError("it holds a fragment")
    authority = _AUTHORITY.fullmatch(parts["authority"])
    if authority is None:
        raise ValueError("its host and port cannot be read")
    host = _host(authority["host"], scheme)
    port = _DEFAULT_PORTS[scheme] if authority["colon"] is None else _port(authority["port"])
    target = (parts["path"] or "/") + (parts["query"] or "")
    if not _TARGET.fullmatch(target):
        raise ValueError("its path or query holds characters that must be percent-encoded")
    return Endpoint(scheme, host, port, target)


def _port(written: str) -> int:
    if not _PORT.fullmatch(written) or int(written) > 65535:
        raise ValueError("its port is not a number from 1 to 65535")
    return int(written)


def _host(written: str, scheme: str) -> str:
    if not written:
        raise ValueError("it has no host")
    if written.startswith("["):
        host, loopback = _ipv6(written[1:-1])
    else:
        name = _name(written)
        if _NUMBER.fullmatch(name.removesuffix(".").rpartition(".")[2]):
            host, loopback = _ipv4(name)
        else:
            host, loopback = name, name == "localhost"
    if scheme == "http" and not loopback:
        raise ValueError("http is for loopback alone (localhost, 127.0.0.0/8, [::1])")
    return host


def _ipv6(written: str) -> tuple[str, bool]:
    try:
        address = ipaddress.IPv6Address(written)
    except ValueError:
        raise ValueError("its host is not an IPv6 address") from None
    if address.scope_id is not None:
        raise ValueError("its host is an address with a zone, which no certificate can bear")
    # `is_loopback` alone is not asked: newer Pythons say yes to `::ffff:127.0.0.1`, which is another spelling.
    return str(address), address == ipaddress.IPv6Address("::1")


def _ipv4(written: str) -> tuple[str, bool]:
    """Read a host that ends in a number: every resolver takes it for an address, so it must be a plain one."""
    try:
        address = ipaddress.IPv4Address(written)
    except ValueError:
        raise ValueError("its host looks like an address but is not four decimal numbers") from None
    return str(address), address.is_loopback


def _name(written: str) -> str:
    """Return a host name in lower-case ASCII, its trailing dot kept."""
    name = written.lower() if written.isascii() else _ascii_name(written)
    labels = name.removesuffix(".").split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("its host is not a host name")
    return name


def _ascii_name(written: str) -> str:
    """Return an internationalised name in its `xn--` form."""
    import idna  # its tables take longer to load than all the rest, and next to nobody needs them

    try:
        name = idna.encode(written, uts46=True, std3_rules=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise ValueError("its host is not a host name") from None
    if not any(label.startswith("xn--") for label in name.split(".")):
        # It only looks different: full-width letters that spell localhost, say.
        raise ValueError("its host has characters that stand for ASCII ones; write those")
    return name
