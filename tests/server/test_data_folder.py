"""Lite's data folder: what a server says in it, and what a killed one left there (R10.1, R10.4)."""

import json
import os
from pathlib import Path

import pytest

from dexaflow.server.data_folder import DataFolder, DataFolderError


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path)


def test_a_server_withdraws_its_own_address_and_no_others(folder: DataFolder) -> None:
    """One that another has taken over from must not leave that one's agents without an address."""
    folder.announce("http://127.0.0.1:1")
    folder.withdraw()
    assert not folder.server_file.exists()
    other = json.dumps({"url": "http://127.0.0.1:2", "pid": os.getpid() + 1})
    folder.server_file.write_text(other)
    folder.withdraw()
    assert folder.server_file.read_text() == other


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"url": "http://127.0.0.1:1", "pid": 1}'])
def test_an_address_that_was_lost_or_damaged_is_announced_again(folder: DataFolder, content: str) -> None:
    folder.server_file.write_text(content)
    folder.announce("http://127.0.0.1:1")
    assert json.loads(folder.server_file.read_text()) == {"url": "http://127.0.0.1:1", "pid": os.getpid()}
    written = folder.server_file.stat()
    folder.announce("http://127.0.0.1:1")
    assert folder.server_file.stat() == written  # said already: nothing is written each second


@pytest.mark.parametrize(("name", "says"), [("taken", "is a file"), ("taken/data", "is below a file")])
def test_a_file_in_the_place_of_the_folder_is_told_as_one(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "taken").touch()
    with (
        pytest.raises(DataFolderError, match=f"{name} {says}; name a folder with --data"),
        DataFolder(tmp_path / name).opened(),
    ):
        pass


def test_a_token_of_ones_own_is_kept_and_one_that_is_too_short_is_refused_not_replaced(folder: DataFolder) -> None:
    """Whoever wrote it would wonder why nobody takes it. An empty file is what a full disk leaves."""
    folder.token_file.write_text("")
    assert len(folder.api_token()) > 20
    folder.token_file.write_text("mine-mine-mine-mine-mine\n")
    assert folder.api_token() == "mine-mine-mine-mine-mine"
    folder.token_file.write_text("secret\n")
    with pytest.raises(DataFolderError, match="fewer than 20 characters") as refused:
        folder.api_token()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe" * 20, b"twenty characters and blanks\n", b"x" * 30 + b"\ny", b"\xef\xbb\xbf" + b"x" * 30]
)
def test_a_token_that_no_header_can_carry_is_refused_in_one_line_that_does_not_hold_it(
    folder: DataFolder, content: bytes
) -> None:
    folder.token_file.write_bytes(content)
    with pytest.raises(DataFolderError, match="no header can carry") as refused:
        folder.api_token()
    assert "\n" not in str(refused.value)
    assert "xxx" not in str(refused.value)
    assert folder.token_file.read_bytes() == content


def test_a_pipe_in_the_place_of_the_address_is_replaced_and_not_waited_for(folder: DataFolder) -> None:
    os.mkfifo(folder.server_file)
    folder.announce("http://127.0.0.1:1")
    assert json.loads(folder.server_file.read_text())["url"] == "http://127.0.0.1:1"


def test_a_pipe_in_the_place_of_the_token_is_told_and_not_waited_for(folder: DataFolder) -> None:
    os.mkfifo(folder.token_file)
    with pytest.raises(DataFolderError, match="is not a file; move it away"):
        folder.api_token()


def test_what_a_server_was_killed_in_writing_is_removed_by_the_next(folder: DataFolder) -> None:
    for name in (".token.4711", ".server.json.4711", ".signing.key.0123456789abcdef"):
        (folder.root / name).write_text("half")
    (folder.root / ".mine").write_text("of somebody else")
    with folder.opened():
        assert sorted(path.name for path in folder.root.iterdir()) == [".mine", "lock"]
