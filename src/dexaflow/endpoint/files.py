"""Certificate, key and token of an endpoint: read at the start, and again when their files change."""

import asyncio
import contextlib
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from dexaflow.base.errors import UsageError
from dexaflow.observe.logs import get_logger

__all__ = ["Reloading", "TokenFile", "tls_context"]

RELOAD_SECONDS = 2.0  # how often certificate and token are looked at

_ANOTHER_KEY = ("KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED")  # OpenSSL's words; the other when the kind differs

_log = get_logger("dexaflow.endpoint")


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes when the file does; through symlinks, which Kubernetes swaps."""
    stat = os.stat(path)
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


def _named(option: str, path: Path) -> str:
    """Return an option with its value, as far as that is a path: people put the secret itself in its place (R2.3)."""
    return f"{option} {path}" if os.path.lexists(path) else option


@dataclass(slots=True)
class TokenFile:
    """The bearer token in a file; read again when it changes, the last good one kept when it cannot be used.

    Raises:
        UsageError: at the beginning only: there is no such file, or no usable token in it. The token is not named.
    """

    path: Path
    token: str = field(init=False, repr=False)
    _seen: tuple[int, int, int] = field(init=False, repr=False)
    _unseen: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        try:
            self._seen, self.token = _stamp(self.path), _token(self.path.read_bytes())
        except OSError as error:
            raise UsageError(
                f"{_named('--token-file', self.path)} cannot be read: {error.strerror}; name a file with the token"
            ) from None
        except ValueError as error:
            raise UsageError(f"--token-file {self.path}: {error}") from None

    def __call__(self) -> str:
        return self.token

    def refresh(self) -> None:
        """Read the file again if it changed. That it cannot be found is said once, until it is there again."""
        unseen, self._unseen = self._unseen, True
        try:
            stamp = _stamp(self.path)
            unseen = self._unseen = False
            if stamp == self._seen:
                return
            self._seen = stamp
            self.token = _token(self.path.read_bytes())
        except (OSError, ValueError) as error:
            if not unseen:
                cause = error.strerror if isinstance(error, OSError) else str(error)
                _log.error("token_not_reloaded", cause=cause)


def _token(content: bytes) -> str:
    """Return the token in a file's content, one trailing line end dropped (R2.3)."""
    body = content.removesuffix(b"\n").removesuffix(b"\r") if content.endswith(b"\n") else content
    if not body:
        raise ValueError("the token is empty; write one into the file")
    if not all(0x21 <= byte <= 0x7E for byte in body):
        raise ValueError("the token holds blanks, line ends or other bytes that no header may; write visible ASCII")
    return body.decode("ascii")


@dataclass(slots=True)
class Reloading:
    """Keeps certificate and token as their files are; a certificate holds from the next connection on."""

    context: ssl.SSLContext | None
    cert: Path | None
    key: Path | None
    token: TokenFile | None

    _seen: tuple[object, object] | None = field(init=False, repr=False, default=None)
    _unseen: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        if self.cert is not None and self.key is not None:
            with contextlib.suppress(OSError):  # gone since it was loaded: the first look says so
                self._seen = _stamp(self.cert), _stamp(self.key)

    async def watch(self) -> None:
        """Look at the files again and again; never ends by itself."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            if self.token is not None:
                self.token.refresh()
            self.refresh_certificate()

    def refresh_certificate(self) -> None:
        """Load both again if one changed. That one cannot be found is said once, until both are there again."""
        if self.context is None or self.cert is None or self.key is None:
            return
        unseen, self._unseen = self._unseen, True
        try:
            stamp = _stamp(self.cert), _stamp(self.key)
            unseen = self._unseen = False
            if stamp == self._seen:
                return
            self._seen = stamp
            tls_context(self.cert, self.key)  # on another context first: a pair that does not match spoils this one
            self.context.load_cert_chain(self.cert, self.key)
            _log.info("certificate_reloaded")
        except (OSError, UsageError) as error:
            if not unseen:
                cause = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
                _log.error("certificate_not_reloaded", cause=cause)


def tls_context(cert: Path, key: Path | None) -> ssl.SSLContext:
    """Return the context to serve with. Raises `UsageError`: the two cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for option, path in (("--tls-cert", cert), ("--tls-key", key)):
        if path is None:
            continue
        try:
            path.read_bytes()
        except OSError as error:
            raise UsageError(f"{_named(option, path)} cannot be read: {error.strerror}; name a PEM file") from None
    try:
        context.load_cert_chain(cert, key, password=lambda: b"")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not a certificate and its key"
        if reason in _ANOTHER_KEY:
            raise UsageError(
                f"--tls-key {key} is not the key of --tls-cert {cert}; name the one it was made with"
            ) from None
        raise UsageError(
            f"--tls-cert and --tls-key cannot be used ({reason}); give a PEM chain and its key without a passphrase"
        ) from None
    return context
