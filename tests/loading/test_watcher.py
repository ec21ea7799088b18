"""Seeing what changes in the DAG folders."""

import os
from pathlib import Path

import pytest

from dexaflow.loading.watcher import Kind, Watcher


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    folder.mkdir()
    return folder


async def seen(watcher: Watcher) -> list[tuple[str, str]]:
    return [(change.file, str(change.kind)) for change in (await watcher.look()).changes]


async def test_files_that_are_new_other_or_gone_are_seen_once(root: Path) -> None:
    watcher = Watcher({"acme": root})
    (root / "team").mkdir()
    (root / "team" / "etl.py").write_text("1")
    (root / "a.py").write_text("1")

    assert await seen(watcher) == [("a.py", "added"), ("team/etl.py", "added")]
    assert await seen(watcher) == []
    (root / "team" / "etl.py").write_text("22")
    (root / "a.py").unlink()
    assert await seen(watcher) == [("a.py", "removed"), ("team/etl.py", "changed")]


async def test_a_file_swapped_for_one_of_the_same_size_and_time_is_seen(root: Path) -> None:
    watcher = Watcher({"acme": root})
    path = root / "a.py"
    path.write_text("1")
    await watcher.look()
    stamp = path.stat()
    (root / "new").write_text("2")
    os.utime(root / "new", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    (root / "new").rename(path)

    assert await seen(watcher) == [("a.py", "changed")]


async def test_what_is_hidden_or_no_python_is_passed_over(root: Path) -> None:
    for file in (".a.py", ".git/a.py", "__pycache__/a.py", "a.txt", "a.pyc", "deep/.b/a.py", "dir.py/x.txt"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("1")
    os.mkfifo(root / "pipe.py")

    assert await seen(Watcher({"acme": root})) == []


async def test_links_to_files_inside_are_followed_and_others_are_told(root: Path, tmp_path: Path) -> None:
    """A mounted config map is links to a hidden folder, swapped in one step."""
    for version in ("..1", "..2"):
        (root / version).mkdir()
        (root / version / "etl.py").write_text(version)
    (root / "..data").symlink_to("..1")
    (root / "etl.py").symlink_to("..data/etl.py")
    (root / "loop").symlink_to(".")
    (root / "dangling.py").symlink_to("nothing.py")
    (tmp_path / "secret.py").write_text("x")
    (root / "out.py").symlink_to(tmp_path / "secret.py")
    watcher = Watcher({"acme": root})

    look = await watcher.look()
    assert [change.file for change in look.changes] == ["etl.py"]
    assert [str(p) for p in look.problems["acme"]] == [
        "dangling.py: is a symbolic link to a file that is not there; bring the file back, or remove the link",
        "out.py: is a symbolic link that leaves the DAG folder; copy the file there",
    ]
    (root / "swap").symlink_to("..2")
    (root / "swap").rename(root / "..data")
    again = await watcher.look()
    assert [(change.file, change.kind) for change in again.changes] == [("etl.py", Kind.CHANGED)]
    assert again.problems == {}


async def test_a_file_in_place_of_the_folder_is_told_with_what_to_do(root: Path) -> None:
    """The server runs all the same, and reads the folder once it is there."""
    (root / "etl.py").write_text("1")
    watcher = Watcher({"acme": root / "etl.py"})
    (problem,) = (await watcher.look()).problems["acme"]
    fix = "is a file; name the folder that holds it with --dags or `tenants`"
    assert str(problem) == f".: the DAG folder {root / 'etl.py'} {fix}"


async def test_a_folder_that_cannot_be_read_is_told_and_forgets_nothing(root: Path, tmp_path: Path) -> None:
    (root / "a.py").write_text("1")
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.py").write_text("1")
    watcher = Watcher({"acme": root, "globex": other})
    await watcher.look()
    os.rename(root, tmp_path / "away")

    look = await watcher.look()
    assert look.changes == ()
    assert [str(p) for p in look.problems["acme"]] == [
        f".: the DAG folder {root} does not exist; create it, or name another with --dags or `tenants`"
    ]
    assert (await watcher.look()).problems == {}
    (tmp_path / "away").rename(root)
    look = await watcher.look()
    assert (look.changes, look.problems) == ((), {"acme": ()})


async def test_a_data_folder_below_a_dag_folder_is_passed_over_and_one_in_its_place_is_told(root: Path) -> None:
    watcher = Watcher({"acme": root})
    kept = root / "data" / "versions" / "0123"
    kept.mkdir(parents=True)
    (kept / "a.py").write_text("1")
    (root / "data" / "dexaflow.db").write_text("")
    (root / "a.py").write_text("1")

    assert await seen(watcher) == [("a.py", "added")]
    (root / "dexaflow.db").write_text("")
    look = await watcher.look()
    assert look.changes == ()
    assert "is a data folder; give DAG files one of their own" in str(look.problems["acme"][0])


async def test_names_that_cannot_be_shown_are_told_and_passed_over(root: Path) -> None:
    (root / "a\n\x1b.py").write_text("1")
    os.close(os.open(os.fsencode(root) + b"/\xff.py", os.O_CREAT))

    look = await Watcher({"acme": root}).look()

    assert look.changes == ()
    assert [p.file for p in look.problems["acme"]] == ["a\\u000a\\u001b.py", "\\udcff.py"]


async def test_other_files_are_watched_when_told_so(root: Path) -> None:
    watcher = Watcher({"acme": root})
    (root / "query.sql").write_text("1")
    assert await seen(watcher) == []

    watcher.also_watch("acme", ["query.sql", "missing.sql"])
    assert await seen(watcher) == [("query.sql", "added")]
    (root / "query.sql").write_text("22")
    assert await seen(watcher) == [("query.sql", "changed")]


async def test_files_known_from_an_earlier_life_are_found_to_be_gone(root: Path) -> None:
    (root / "here.py").write_text("1")
    watcher = Watcher({"acme": root})
    watcher.expect("acme", ["here.py", "gone.py"])

    assert await seen(watcher) == [("gone.py", "removed"), ("here.py", "changed")]
