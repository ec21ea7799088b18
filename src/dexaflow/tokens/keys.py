"""The signing key: a file in the data folder, made once, readable by its owner alone (R10.4)."""

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from dexaflow.base.errors import DexaflowError
from dexaflow.base.steps import Step, reached

__all__ = ["KeyFileError", "SigningKey", "generate", "load_or_create", "public_keys"]

_MAX_FILE_BYTES = 16_384


class KeyFileError(DexaflowError):
    """The file of the signing key cannot be used; one line says why and what to do."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key and the id (`kid`) under which its public half is known."""

    private: Ed25519PrivateKey
    kid: str

    def __repr__(self) -> str:
        return f"SigningKey(kid={self.kid!r})"


def _named(private: Ed25519PrivateKey) -> SigningKey:
    raw = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return SigningKey(private, hashlib.sha256(raw).hexdigest()[:16])


def generate() -> SigningKey:
    """Return a new key that is kept nowhere."""
    return _named(Ed25519PrivateKey.generate())


def public_keys(*keys: SigningKey) -> Mapping[str, Ed25519PublicKey]:
    """Return the public halves by key id: all that a `Verifier` needs."""
    return {key.kid: key.private.public_key() for key in keys}


def load_or_create(path: Path) -> SigningKey:
    """Return the key in the file, which is made with mode 0600 if it is not there.

    Whoever comes second finds the first one's key: the file appears whole or not at all, and is never replaced.

    Raises:
        KeyFileError: it cannot be read or written, others may read it, or it holds no Ed25519 key.
    """
    try:
        return _load(path)
    except FileNotFoundError:
        pass
    except OSError as problem:
        raise KeyFileError(f"signing key {path}: cannot be read: {problem.strerror}") from problem
    try:
        _create(path)
        return _load(path)
    except OSError as problem:
        raise KeyFileError(f"signing key {path}: cannot be written: {problem.strerror}") from problem


def _load(path: Path) -> SigningKey:
    # Not blocking: a FIFO in its place must be an error, not a boot that hangs.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise KeyFileError(f"signing key {path}: is not a file; move it away")
        if status.st_uid not in (os.geteuid(), 0):
            raise KeyFileError(f"signing key {path}: belongs to user {status.st_uid}; run: chown {os.geteuid()} {path}")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise KeyFileError(f"signing key {path}: others may use it (mode {mode:04o}); run: chmod 600 {path}")
        text = os.read(fd, _MAX_FILE_BYTES)
    finally:
        os.close(fd)
    try:
        private = load_pem_private_key(text, password=None)
    except Exception as problem:  # cryptography raises what it likes on bad input
        raise _corrupt(path) from problem
    if not isinstance(private, Ed25519PrivateKey):
        raise _corrupt(path)
    return _named(private)


def _corrupt(path: Path) -> KeyFileError:
    return KeyFileError(
        f"signing key {path}: holds no unencrypted Ed25519 key in PEM; restore it, or delete it to get a new one "
        "(tasks that run now are then stopped)"
    )


def _create(path: Path) -> None:
    pem = generate().private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.fchmod(fd, 0o600)  # whatever the umask took away
            view = memoryview(pem)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        reached(Step.KEY_DRAFTED)
        try:
            os.link(draft, path)  # unlike rename, never over another's key
        except FileExistsError:
            return
    finally:
        os.unlink(draft)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
