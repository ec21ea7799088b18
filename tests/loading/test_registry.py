"""DAG folders from the file to what is published. Real folders, real processes."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from dexaflow.authoring.running import run_task
from dexaflow.base.clock import SystemClock
from dexaflow.loading.registry import DagFolders, FileResult, Key

HEAD = "from dexaflow import DAG, bash, task\n"


class Published:
    """What was published, and a way to wait for it."""

    def __init__(self) -> None:
        self.results: list[FileResult] = []
        self._news = asyncio.Condition()

    async def __call__(self, result: FileResult) -> None:
        async with self._news:
            self.results.append(result)
            self._news.notify_all()

    async def wait(self, file: str, matches: Callable[[FileResult], object] = lambda _: True) -> FileResult:
        """Return the latest result of the file once it matches."""

        def latest() -> FileResult | None:
            found = [r for r in self.results if r.file == file]
            return found[-1] if found and matches(found[-1]) else None

        async with asyncio.timeout(60), self._news:
            await self._news.wait_for(lambda: latest() is not None)
        result = latest()
        assert result is not None
        return result

    def of(self, file: str) -> list[FileResult]:
        return [result for result in self.results if result.file == file]


class Folders:
    """DAG folders that are being watched."""

    def __init__(self, base: Path) -> None:
        self.acme, self.globex, self.versions = base / "acme", base / "globex", base / "versions"
        self.acme.mkdir()
        self.globex.mkdir()
        self.published = Published()
        self.dags: DagFolders

    @contextlib.asynccontextmanager
    async def running(self, *, timeout: float = 30.0, known: Iterable[Key] = ()) -> AsyncIterator[Published]:
        folders = {"acme": self.acme, "globex": self.globex}
        self.dags = DagFolders(folders, self.versions, clock=SystemClock(), interval=0.02, timeout=timeout, again=0.1)
        running = asyncio.create_task(self.dags.run(self.published, known=known))
        try:
            yield self.published
        finally:
            assert not running.done(), running.exception()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def ids(result: FileResult) -> list[str]:
    return [dag.dag_id for dag in result.dags]


async def test_a_file_that_the_machine_kept_from_being_loaded_is_tried_again_by_itself(folders: Folders) -> None:
    """A full disk is over some day, and nobody touches the DAG files for it."""
    folders.versions.write_text("in the way")
    (folders.acme / "a.py").write_text(HEAD + "with DAG('a'):\n    bash('x', 'true')\n")
    async with folders.running() as published:
        failed = await published.wait("a.py", lambda result: result.errors)
        assert "cannot be kept" in failed.errors[0].cause
        folders.versions.unlink()
        assert ids(await published.wait("a.py", lambda result: result.version)) == ["a"]
    assert len(published.of("a.py")) == 2  # what is said already is not said with each try


def replace(path: Path, text: str) -> None:
    """Write a file in one step, as an editor does."""
    new = path.with_name(".new")
    new.write_text(text)
    new.rename(path)


async def test_every_file_is_published_for_the_tenant_of_its_folder(folders: Folders) -> None:
    """The tenant comes from the folder, whatever the file says (requirements, section 2)."""
    (folders.acme / "etl.py").write_text(HEAD + "tenant_id = 'globex'\nDAG('a', tags=['globex'])\n")
    (folders.globex / "etl.py").write_text(HEAD + "DAG('b')\n")
    (folders.globex / "helper.py").write_text("X = 1\n")

    async with folders.running() as published:
        await folders.dags.ready.wait()

    assert sorted((r.tenant_id, r.file, ids(r)) for r in published.results) == [
        ("acme", "etl.py", ["a"]),
        ("globex", "etl.py", ["b"]),
    ]
    assert all(result.version and not result.errors for result in published.results)


async def test_a_changed_file_is_a_new_version_and_the_old_one_still_runs(folders: Folders) -> None:
    """Runs keep the version they began with, local modules included."""
    body = HEAD + "with DAG('etl'):\n    @task\n    def t():\n        from helper import X\n        return X\n    t()\n"
    (folders.acme / "etl.py").write_text(body)
    (folders.acme / "helper.py").write_text("X = 'first'\n")

    async with folders.running() as published:
        first = await published.wait("etl.py")
        replace(folders.acme / "helper.py", "X = 'second'\n")
        second = await published.wait("etl.py", lambda r: r.version != first.version)

    context = {"dag_id": "etl", "run_id": "r", "task_id": "t", "try_number": 1}
    for result, said in ((first, "first"), (second, "second")):
        path = list(sys.path)
        root = str(folders.versions / str(result.version))
        assert run_task("etl.py", root, "etl", "t", {}, context) == said
        sys.path[:] = path
        del sys.modules["helper"]


async def test_a_bad_file_tells_why_and_is_mended_by_what_it_misses(folders: Folders) -> None:
    (folders.acme / "etl.py").write_text(HEAD + "import helper\nDAG('etl')\n")

    async with folders.running() as published:
        bad = await published.wait("etl.py")
        assert [str(e) for e in bad.errors] == ["etl.py:2: ModuleNotFoundError: No module named 'helper'"]
        assert (bad.version, bad.dags, bad.removed) == (None, (), False)
        (folders.acme / "helper.py").write_text("")
        good = await published.wait("etl.py", lambda r: r.version)

    assert (ids(good), good.errors) == (["etl"], ())


async def test_a_removed_file_is_published_as_removed(folders: Folders) -> None:
    (folders.acme / "a.py").write_text(HEAD + "DAG('a')\n")
    (folders.acme / "b.py").write_text(HEAD + "DAG('b')\n")

    async with folders.running() as published:
        await folders.dags.ready.wait()
        (folders.acme / "a.py").unlink()
        replace(folders.acme / "b.py", "no workflow any more\n")
        gone = [await published.wait(file, lambda r: r.removed) for file in ("a.py", "b.py")]

    assert [(r.tenant_id, r.file, r.version, r.dags) for r in gone] == [
        ("acme", "a.py", None, ()),
        ("acme", "b.py", None, ()),
    ]


async def test_a_data_file_that_a_dag_reads_makes_a_new_version(folders: Folders) -> None:
    (folders.acme / "names.txt").write_text("one")
    (folders.acme / "etl.py").write_text(HEAD + "DAG(open(__file__.replace('etl.py', 'names.txt')).read())\n")

    async with folders.running() as published:
        await published.wait("etl.py", lambda r: ids(r) == ["one"])
        replace(folders.acme / "names.txt", "two")
        result = await published.wait("etl.py", lambda r: ids(r) == ["two"])

    assert (folders.versions / str(result.version) / "names.txt").read_text() == "two"


async def test_a_file_that_hangs_holds_up_nobody_else(folders: Folders) -> None:
    (folders.acme / "a_hangs.py").write_text("import dexaflow\nwhile True: pass\n")
    (folders.acme / "b.py").write_text(HEAD + "DAG('b')\n")
    (folders.globex / "c.py").write_text(HEAD + "DAG('c')\n")

    async with folders.running(timeout=600) as published:
        await published.wait("b.py")
        await published.wait("c.py")
        replace(folders.globex / "c.py", HEAD + "DAG('d')\n")
        await published.wait("c.py", lambda r: ids(r) == ["d"])
        assert published.of("a_hangs.py") == []


async def test_files_that_hang_are_told_and_wait_behind_the_others(folders: Folders) -> None:
    for number in range(3):
        (folders.acme / f"{number}.py").write_text("import dexaflow\nwhile True: pass\n")
    (folders.globex / "good.py").write_text(HEAD + "DAG('good')\n")

    async with folders.running(timeout=1.0) as published:
        await folders.dags.ready.wait()

    assert published.of("good.py")
    told = [str(e) for r in published.results for e in r.errors]
    assert sorted(told) == [f"{n}.py:2: is not loaded after 1 s; move slow work into a task" for n in range(3)]


async def test_what_went_away_while_the_server_was_down_is_published_as_removed(folders: Folders) -> None:
    (folders.acme / "here.py").write_text(HEAD + "DAG('here')\n")
    (folders.acme / "emptied.py").write_text("nothing\n")
    known = [("acme", "here.py"), ("acme", "gone.py"), ("acme", "emptied.py"), ("initech", "old.py")]

    async with folders.running(known=known) as published:
        await folders.dags.ready.wait()

    assert sorted((r.tenant_id, r.file) for r in published.results if r.removed) == [
        ("acme", "emptied.py"),
        ("acme", "gone.py"),
        ("initech", "old.py"),
    ]
    assert [r.version is not None for r in published.of("here.py")] == [True]


async def test_a_folder_that_is_gone_takes_no_dag_with_it_and_is_told(folders: Folders, tmp_path: Path) -> None:
    (folders.acme / "etl.py").write_text(HEAD + "DAG('etl')\n")

    async with folders.running() as published:
        await folders.dags.ready.wait()
        folders.acme.rename(tmp_path / "away")
        told = await published.wait(".", lambda r: r.errors)
        (tmp_path / "away").rename(folders.acme)
        mended = await published.wait(".", lambda r: not r.errors)
        (folders.globex / "later.py").write_text(HEAD + "DAG('later')\n")
        await published.wait("later.py")

    assert [str(e) for e in told.errors] == [
        f".: the DAG folder {tmp_path / 'acme'} does not exist; create it, or name another with --dags or `tenants`"
    ]
    assert not mended.removed
    assert not any(r.removed for r in published.results)


async def test_a_dag_id_that_becomes_free_is_offered_by_the_file_that_also_has_it(folders: Folders) -> None:
    """Whoever keeps the DAGs refuses the second file of one dag_id; it must hear of it again."""
    (folders.acme / "a.py").write_text(HEAD + "DAG('etl')\n")
    (folders.globex / "b.py").write_text(HEAD + "DAG('etl')\n")

    async with folders.running() as published:
        await folders.dags.ready.wait()
        before = len(published.of("b.py"))
        replace(folders.acme / "a.py", HEAD + "1 / 0\n")
        await published.wait("a.py", lambda r: r.errors)
        assert len(published.of("b.py")) == before  # a file that fails keeps what it has
        (folders.acme / "a.py").unlink()
        await published.wait("a.py", lambda r: r.removed)
        await published.wait("b.py", lambda _: len(published.of("b.py")) > before)

    assert [r.file for r in published.results][-2:] == ["a.py", "b.py"]


async def test_a_file_that_changes_itself_whenever_it_is_loaded_is_told(folders: Folders) -> None:
    """What was executed is not there to be kept; nothing else may be kept in its place."""
    body = "import time\nDAG('etl')\nopen(__file__, 'a').write(f'# {time.time_ns()}\\n')\n"
    (folders.acme / "etl.py").write_text(HEAD + body)

    async with folders.running() as published:
        told = await published.wait("etl.py")

    assert [str(e) for e in told.errors] == ["etl.py: etl.py changes while it is loaded"]
    assert not folders.versions.exists()


async def test_what_publishing_raises_ends_the_watching(folders: Folders) -> None:
    """A dead part must not look alive."""
    (folders.acme / "etl.py").write_text(HEAD + "DAG('etl')\n")

    async def publish(result: FileResult) -> None:
        raise OSError("the database is gone")

    with pytest.raises(ExceptionGroup) as caught:
        await DagFolders({"acme": folders.acme}, folders.versions, clock=SystemClock()).run(publish)

    assert caught.group_contains(OSError, match="the database is gone")


async def test_an_unmarked_file_is_never_executed(folders: Folders, tmp_path: Path) -> None:
    (folders.acme / "script.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (folders.acme / "etl.py").write_text(HEAD + "DAG('etl')\n")

    async with folders.running():
        await folders.dags.ready.wait()

    assert not (tmp_path / "ran").exists()


async def test_a_version_that_cannot_be_kept_is_that_files_error_and_ends_nothing(folders: Folders) -> None:
    """A full or broken disk is reported with the file; the watch goes on."""
    folders.versions.write_text("no folder")
    (folders.acme / "a.py").write_text(HEAD + "with DAG('a'):\n    bash('x', 'true')\n")
    async with folders.running() as published:
        failed = await published.wait("a.py", lambda result: result.errors)
        assert "cannot be kept" in failed.errors[0].cause
        folders.versions.unlink()
        (folders.acme / "a.py").write_text(HEAD + "with DAG('a'):\n    bash('y', 'true')\n")
        assert (await published.wait("a.py", lambda result: not result.errors)).version
