"""CA bundle and token are read again when they change (R2.3)."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.errors import ConfigError
from dexaflow.hooks import files
from dexaflow.hooks.files import FileWatch, WatchedFile, token_in
from tests.hooks.mounts import mounted, put_version

KEY = "execution.admission.webhook.token_file"


def watched(path: Path) -> WatchedFile[str]:
    return WatchedFile(KEY, path, token_in, fix="mend it", max_bytes=1000, secret=True)


def swap(path: Path, content: bytes) -> None:
    put_version(path.parent, content, "2")
    old = path.parent / "..1"
    (old / "token").unlink()
    old.rmdir()


def rename(path: Path, content: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(content)
    os.replace(new, path.parent / "..data" / "token")


def rewrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def rewrite_with_old_times(path: Path, content: bytes) -> None:
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [swap, rename, rewrite, rewrite_with_old_times])
def test_changed_file_is_read_again(tmp_path: Path, change: Callable[[Path, bytes], None]) -> None:
    """Also when its size stays the same, and when it is written in the same tick of the clock."""
    path = mounted(tmp_path, b"first1")
    file = watched(path)
    assert file.value == "first1"
    assert not file.refresh()
    change(path, b"second")
    assert file.refresh()
    assert file.value == "second"
    assert not file.refresh()
    rewrite(path, b"third3")
    assert file.refresh()
    assert file.value == "third3"


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


BAD: dict[str, Callable[[Path], object]] = {
    "gone": lambda path: path.unlink(),
    "empty": holding(b""),
    "two lines": holding(b"a\nb"),
    "a folder": a_folder,
    "a pipe": a_pipe,
    "huge": holding(b"x" * 2000),
}


@pytest.mark.parametrize("how", BAD)
def test_file_that_cannot_be_used_any_more_leaves_the_last_good_one(tmp_path: Path, how: str) -> None:
    """An error is logged, once, and the gauge says so until it is mended."""
    path = tmp_path / "token"
    path.write_bytes(b"s3cret")
    file = watched(path)
    with structlog.testing.capture_logs() as logs:
        BAD[how](path)
        for _ in range(3):
            assert not file.refresh()
        assert file.value == "s3cret"
        assert file.stale
    assert [(line["event"], line["log_level"], line["key"]) for line in logs] == [("file_not_reloaded", "error", KEY)]
    assert "s3cret" not in str(logs)

    path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
    path.write_bytes(b"s3cret2")
    assert file.refresh()
    assert (file.value, file.stale) == ("s3cret2", False)


def test_same_content_back_again_is_no_change_but_no_longer_stale(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"s3cret")
    file = watched(path)
    path.unlink()
    file.refresh()
    assert file.stale
    path.write_bytes(b"s3cret")
    assert not file.refresh()
    assert not file.stale


@pytest.mark.parametrize("how", BAD)
def test_file_that_cannot_be_used_at_boot_is_a_configuration_error(tmp_path: Path, how: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"x")
    BAD[how](path)
    with pytest.raises(ConfigError) as caught:
        watched(path)
    assert caught.value.key == KEY
    assert "\n" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)  # people put the secret itself in the path's place


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_one_line_end_is_dropped_from_a_token(end: bytes) -> None:
    assert token_in(b"eyJ.a-b_c+/=" + end) == "eyJ.a-b_c+/="


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\n", b"\r\n", b"s3cret\n\n", b"s3cret\r", b" s3cret", b"s3cret ", b"s3 cret", b"s3\ncret"),
        *(b"s3\x00cret", b"s3\x7fcret", b"s3cret\xc3\xa4", b"\xef\xbb\xbfs3cret", b"s3cret\t", b"s3cret" * 10_000),
    ],
)
def test_token_that_is_empty_or_would_break_a_header_is_refused_unquoted(content: bytes) -> None:
    with pytest.raises(ValueError, match="it ") as caught:
        token_in(content)
    assert "s3" not in str(caught.value)


@given(st.binary(max_size=50))
def test_whatever_is_taken_for_a_token_fits_into_a_header(content: bytes) -> None:
    try:
        token = token_in(content)
    except ValueError:
        return
    assert token
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token


def test_watch_tells_of_a_change_and_survives_a_failure(tmp_path: Path) -> None:
    path = mounted(tmp_path, b"first")
    file, told = watched(path), threading.Event()
    tellings: list[str] = []

    def changed(_: object) -> None:
        tellings.append(file.value)
        if len(tellings) == 1:
            raise RuntimeError("whoever is told fails")
        told.set()

    watch = FileWatch([file], changed)
    watch.start()
    watch.start()
    try:
        swap(path, b"second")
        while not tellings:
            told.wait(0.01)
        rewrite(path, b"third")
        assert told.wait(20)
    finally:
        watch.stop()
    assert tellings == ["second", "third"]


def test_a_look_that_fails_again_and_again_is_said_once(tmp_path: Path) -> None:
    """It is tried every second."""
    looks: list[int] = []
    seen_enough = threading.Event()

    class Failing:
        key = KEY

        def refresh(self) -> bool:
            looks.append(1)
            if len(looks) == 5:
                seen_enough.set()
            if len(looks) == 3:
                return False
            raise RuntimeError("a fault of ours")

    with structlog.testing.capture_logs() as lines, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHECK_SECONDS", 0.001)
        watch = FileWatch([Failing()], lambda _: None)
        watch.start()
        assert seen_enough.wait(20)
        watch.stop()
    assert [line["event"] for line in lines] == ["file_watch_failed"] * 2  # and once more after it had succeeded
