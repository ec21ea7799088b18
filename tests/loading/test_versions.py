"""Keeping what was loaded."""

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dexaflow.loading.versions import Changed, read_file, remove_unfinished, remove_unused, snapshot


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    (folder / "lib").mkdir(parents=True)
    (folder / "etl.py").write_text("import lib.helper\n")
    (folder / "lib" / "helper.py").write_text("X = 1\n")
    return folder


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    return tmp_path / "data" / "versions"


def digests(root: Path, *files: str) -> dict[str, str]:
    return {file: hashlib.sha256((root / file).read_bytes()).hexdigest() for file in files}


def test_a_version_holds_its_files_at_their_paths_for_the_owner_alone(root: Path, versions: Path) -> None:
    """Folders 0700, files 0600 (R10.4)."""
    version = snapshot(root, digests(root, "etl.py", "lib/helper.py"), versions)

    kept = versions / version
    assert sorted(str(p.relative_to(kept)) for p in kept.rglob("*")) == ["etl.py", "lib", "lib/helper.py"]
    assert (kept / "lib" / "helper.py").read_text() == "X = 1\n"
    for path in (versions, kept, *kept.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_the_same_files_are_one_version_and_other_bytes_or_names_are_others(root: Path, versions: Path) -> None:
    one = snapshot(root, digests(root, "etl.py", "lib/helper.py"), versions)
    assert snapshot(root, digests(root, "lib/helper.py", "etl.py"), versions) == one

    fewer = snapshot(root, digests(root, "etl.py"), versions)
    (root / "lib" / "helper.py").write_text("X = 2\n")
    other = snapshot(root, digests(root, "etl.py", "lib/helper.py"), versions)
    (root / "etl.py").rename(root / "etl2.py")
    renamed = snapshot(root, digests(root, "etl2.py", "lib/helper.py"), versions)

    assert len({one, fewer, other, renamed}) == 4
    assert (versions / one / "lib" / "helper.py").read_text() == "X = 1\n"


def test_what_is_kept_is_what_was_loaded_or_nothing(root: Path, versions: Path) -> None:
    loaded = digests(root, "etl.py", "lib/helper.py")
    (root / "lib" / "helper.py").write_text("X = 2\n")

    with pytest.raises(Changed, match=r"lib/helper.py changes while it is loaded"):
        snapshot(root, loaded, versions)
    (root / "lib" / "helper.py").unlink()
    with pytest.raises(Changed, match=r"lib/helper.py cannot be read any more"):
        snapshot(root, loaded, versions)

    assert not versions.exists()


def test_a_file_outside_the_folder_is_not_kept(root: Path, versions: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    (root / "link.py").symlink_to(tmp_path / "secret")

    with pytest.raises(ValueError, match=r"link.py is a symbolic link that leaves the DAG folder"):
        snapshot(root, digests(root, "link.py"), versions)
    with pytest.raises(ValueError, match="leaves the DAG folder"):
        read_file(root, "../secret")


def test_a_link_inside_the_folder_is_followed(root: Path, versions: Path) -> None:
    """As Kubernetes mounts a config map."""
    (root / "..2024").mkdir()
    (root / "..2024" / "cm.py").write_text("x")
    (root / "cm.py").symlink_to("..2024/cm.py")

    version = snapshot(root, digests(root, "cm.py"), versions)

    assert (versions / version / "cm.py").read_text() == "x"
    assert not (versions / version / "cm.py").is_symlink()


def test_what_is_no_regular_file_or_too_large_is_not_read(root: Path) -> None:
    os.mkfifo(root / "pipe.py")

    with pytest.raises(ValueError, match="is not a regular file"):
        read_file(root, "pipe.py")
    with pytest.raises(ValueError, match="has more than 3 bytes"):
        read_file(root, "etl.py", most=3)


def test_many_may_keep_the_same_version_at_once(root: Path, versions: Path) -> None:
    loaded = digests(root, "etl.py", "lib/helper.py")

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(lambda _: snapshot(root, loaded, versions), range(32)))

    assert os.listdir(versions) == [ids.pop()]
    assert not ids


def test_only_old_versions_that_nobody_uses_are_removed(root: Path, versions: Path) -> None:
    """Runs keep the version they began with; a version just loaded may be about to get its first run."""
    used = snapshot(root, digests(root, "etl.py"), versions)
    unused = snapshot(root, digests(root, "lib/helper.py"), versions)
    (versions / ".unfinished-1").mkdir()
    (versions / ".removed-1").mkdir()
    (versions / "README").write_text("somebody else's")
    now = (versions / unused).stat().st_mtime

    assert remove_unused(versions, {used}, now=now + 3599) == ()
    assert remove_unused(versions, {used}, now=now + 3601) == (unused,)
    assert sorted(os.listdir(versions)) == sorted([used, "README"])
    assert remove_unused(versions / "nowhere", (), now=now) == ()


def test_what_a_server_was_killed_in_is_gone_at_once_and_versions_stay(root: Path, versions: Path) -> None:
    version = snapshot(root, digests(root, "etl.py"), versions)
    for name in (".unfinished-0123456789abcdef", ".removed-0123456789abcdef"):
        (versions / name).mkdir()
        (versions / name / "etl.py").write_text("")
    remove_unfinished(versions)
    assert [path.name for path in versions.iterdir()] == [version]


def test_a_version_that_is_loaded_again_is_young_again(root: Path, versions: Path) -> None:
    version = snapshot(root, digests(root, "etl.py"), versions)
    os.utime(versions / version, (0, 0))

    snapshot(root, digests(root, "etl.py"), versions)

    assert (versions / version).stat().st_mtime > 0
