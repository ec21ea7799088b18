"""The file of the signing key: made once, ours alone, a clear line when it cannot be used."""

import os
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from dexaflow.tokens.keys import KeyFileError, load_or_create


def test_the_key_survives_a_restart_and_is_ours_alone(tmp_path: Path) -> None:
    """The signing key lives in the data folder and survives a restart; files are 0600 (R10.4)."""
    path = tmp_path / "signing.key"
    before = os.umask(0o277)
    try:
        first = load_or_create(path)
    finally:
        os.umask(before)

    assert load_or_create(path).kid == first.kid
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["signing.key"]


def test_those_who_come_at_once_get_one_key(tmp_path: Path) -> None:
    """It appears whole or not at all, and is never replaced."""
    kids: list[str] = []
    together = threading.Barrier(8)

    def come() -> None:
        together.wait()
        kids.append(load_or_create(tmp_path / "k").kid)

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(kids) == 8
    assert len(set(kids)) == 1
    assert os.listdir(tmp_path) == ["k"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_may_use_is_refused_with_the_command_that_helps(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "k"
    load_or_create(path)
    path.chmod(mode)

    with pytest.raises(KeyFileError, match=f"mode {mode:04o}.*chmod 600 {path}"):
        load_or_create(path)


def _pem(key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"garbage",
        _pem(ed25519.Ed25519PrivateKey.generate())[:-40],
        _pem(ed25519.Ed25519PrivateKey.generate(), b"password"),
        _pem(ec.generate_private_key(ec.SECP256R1())),
    ],
    ids=["empty", "zeros", "no PEM", "cut short", "encrypted", "of another kind"],  # keys are drawn, names are not
)
def test_a_file_that_holds_no_key_is_one_clear_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "k"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(KeyFileError) as caught:
        load_or_create(path)

    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content  # what might still be rescued is left


def test_what_is_no_file_or_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "fifo", 0o600)

    for path in (tmp_path / "folder", tmp_path / "fifo", tmp_path / "absent" / "k"):
        with pytest.raises(KeyFileError) as caught:
            load_or_create(path)
        assert "\n" not in str(caught.value)
