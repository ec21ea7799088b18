"""The DAG folders as the server sees them: every file that changes is loaded, kept and published."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from dexaflow.base.clock import Clock
from dexaflow.base.errors import DagError
from dexaflow.loading.loader import LOAD_SECONDS, LoadTimeoutError, NotLoadedError, load_file
from dexaflow.loading.versions import Changed, read_file, snapshot
from dexaflow.loading.watcher import Change, Kind, Watcher
from dexaflow.model.dags import DagSpec

__all__ = ["MARK", "PARALLEL_LOADS", "DagFolders", "FileResult"]

PARALLEL_LOADS = 2
AGAIN_SECONDS = 15.0  # after which a file is tried again that the machine, not itself, kept from being loaded
MARK = b"dexaflow"  # a file without it imports nothing of ours and is not executed
_MAX_TRIES = 5  # to load a file that changes while it is loaded; then it waits for its next change

Key = tuple[str, str]  # tenant_id, file


@dataclass(frozen=True, slots=True)
class FileResult:
    """What is now known of one file.

    `version` is None where nothing could be loaded: what the file held before goes on, and `errors` say what is wrong.
    `removed`: the file is gone, or no DAG file any more. A `file` that is a folder ("." is the tenant's own) only
    carries errors, or none once it can be read again.
    """

    tenant_id: str
    file: str
    version: str | None = None
    dags: tuple[DagSpec, ...] = ()
    errors: tuple[DagError, ...] = ()
    removed: bool = False


Publish = Callable[[FileResult], Awaitable[None]]


@dataclass(slots=True)
class _Known:
    """What the last load of a file found."""

    result: FileResult
    files: frozenset[str] = frozenset()  # the local files that it executes or reads
    holds: frozenset[str] = frozenset()  # ids of its DAGs; those of the last good version when it failed
    slow: bool = False  # timed out: waits behind the others

    @property
    def failed(self) -> bool:
        """Whether nothing was loaded: then any change in its folder may mend it, a module that was missing."""
        return self.result.version is None


@dataclass(slots=True)
class _Work:
    """The files that wait to be loaded and those that are being loaded; nothing here awaits."""

    waiting: dict[Key, None] = field(default_factory=dict)
    busy: dict[Key, None] = field(default_factory=dict)

    def next(self, slow: Callable[[Key], bool]) -> Key | None:
        """Take the file to load next: of the tenant with the fewest loads under way, those that hang last."""
        free = [key for key in self.waiting if key not in self.busy]
        if not free:
            return None
        return min(free, key=lambda key: (slow(key), sum(busy[0] == key[0] for busy in self.busy)))


class DagFolders:
    """Watches each tenant's folder and publishes every file's DAGs, its errors, or that it is gone.

    The tenant is that of the folder (requirements, section 2: `tenants`). Two files load at once at most, each under
    its own limits; a file that hangs delays the others by no more than its limit, and hangs last the next time.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        versions_dir: Path,
        *,
        clock: Clock,
        interval: float = 1.0,
        timeout: float = LOAD_SECONDS,
        parallel: int = PARALLEL_LOADS,
        again: float = AGAIN_SECONDS,
    ) -> None:
        self.ready = asyncio.Event()  # every file that the first look found is published
        self.looked_at: tuple[float, datetime] | None = None  # when the folders were last read, on both clocks
        self._clock = clock
        self._folders = dict(folders)
        self._versions_dir = versions_dir
        self._timeout = timeout
        self._parallel = parallel
        self._again_seconds = again
        self._watcher = Watcher(folders, interval=interval)
        self._known: dict[Key, _Known] = {}
        self._present: set[Key] = set()
        self._published: set[Key] = set()
        self._work = _Work()
        self._wake = asyncio.Condition()
        self._publishing = asyncio.Lock()
        self._unready: set[Key] | None = None  # what the first look found and is not published yet
        self._moving: dict[Key, int] = {}  # loads in a row that ended in `Changed`
        self._again: dict[Key, float] = {}  # what the machine, not the file, is to blame for: when it is tried again
        self._reported: dict[str, set[str]] = {}  # tenant -> files and folders with a problem of looking

    async def run(self, publish: Publish, *, known: Iterable[Key] = ()) -> None:
        """Watch and publish until cancelled. Calls of `publish` never overlap; what it raises ends this.

        Args:
            known: The tenant and name of files published in an earlier life; those that are gone are published so.
        """
        self._published = set(known)
        for tenant_id in self._folders:
            self._watcher.expect(tenant_id, (file for tenant, file in self._published if tenant == tenant_id))
        async with asyncio.TaskGroup() as group:
            for _ in range(self._parallel):
                group.create_task(self._load_forever(publish))
            for key in sorted(key for key in self._published if key[0] not in self._folders):
                await self._remove(publish, key)
            async for look in self._watcher.looks():
                self.looked_at = self._clock.monotonic(), self._clock.now()
                await self._take_in(publish, look.changes)
                for tenant_id, problems in look.problems.items():
                    await self._publish_problems(publish, tenant_id, problems)
                await self._try_again()
                if self._unready is None:
                    self._unready = set(self._work.waiting) | set(self._work.busy)
                    self._is_published(None)

    async def _publish(self, publish: Publish, result: FileResult) -> None:
        async with self._publishing:
            await publish(result)

    async def _publish_problems(self, publish: Publish, tenant_id: str, problems: Iterable[DagError]) -> None:
        by_file: dict[str, list[DagError]] = {}
        for problem in problems:
            by_file.setdefault(problem.file, []).append(problem)
        for file in sorted(self._reported.get(tenant_id, set()) - by_file.keys()):
            known = self._known.get((tenant_id, file))
            await self._publish(publish, FileResult(tenant_id, file) if known is None else known.result)
        for file, errors in by_file.items():
            await self._publish(publish, FileResult(tenant_id, file, errors=tuple(errors)))
        self._reported[tenant_id] = set(by_file)

    async def _take_in(self, publish: Publish, changes: Iterable[Change]) -> None:
        """Let everything wait for a load that a change touches; publish what is gone."""
        gone: list[Key] = []
        async with self._wake:
            for change in changes:
                key = (change.tenant_id, change.file)
                if change.kind is Kind.REMOVED:
                    self._present.discard(key)
                    self._work.waiting.pop(key, None)
                    self._moving.pop(key, None)
                    gone.append(key)
                elif change.file.endswith(".py"):
                    self._present.add(key)
                    self._work.waiting[key] = None
                for other, known in self._known.items():
                    touched = known.failed or change.file in known.files
                    if other[0] == change.tenant_id and other in self._present and touched:
                        self._work.waiting[other] = None
            self._wake.notify_all()
        for key in gone:
            await self._remove(publish, key)
        self._is_published(None)

    async def _try_again(self) -> None:
        now = asyncio.get_running_loop().time()
        async with self._wake:
            for key in [key for key, due in self._again.items() if due <= now]:
                del self._again[key]
                if key in self._present:
                    self._work.waiting[key] = None
            self._wake.notify_all()

    async def _load_forever(self, publish: Publish) -> None:
        while True:
            async with self._wake:
                while (key := self._work.next(self._is_slow)) is None:
                    await self._wake.wait()
                del self._work.waiting[key]
                self._work.busy[key] = None
            again = await self._load(publish, key)
            async with self._wake:
                del self._work.busy[key]
                if again and key in self._present:
                    self._work.waiting[key] = None
                else:
                    self._is_published(key)
                self._wake.notify_all()

    def _is_slow(self, key: Key) -> bool:
        known = self._known.get(key)
        return known is not None and known.slow

    def _is_published(self, key: Key | None) -> None:
        if self._unready is not None:
            self._unready = {left for left in self._unready if left != key and left in self._present}
            if not self._unready:
                self.ready.set()

    async def _load(self, publish: Publish, key: Key) -> bool:
        """Load one file and publish what it holds. Returns True when it changed meanwhile and must be loaded again."""
        tenant_id, file = key
        root = self._folders[tenant_id]
        self._again.pop(key, None)
        try:
            marked = MARK in await asyncio.to_thread(read_file, root, file)
        except FileNotFoundError:
            return False  # the next look will say so
        except (OSError, ValueError) as error:
            cause = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            await self._fail(publish, key, DagError(file, 0, cause), again=isinstance(error, OSError))
            return False
        if not marked:
            await self._remove(publish, key)
            return False
        loaded = await load_file(root, file, timeout=self._timeout)
        if isinstance(loaded, DagError):
            await self._fail(publish, key, loaded, again=isinstance(loaded, NotLoadedError))
            return False
        try:
            version = await asyncio.to_thread(snapshot, root, loaded.digests, self._versions_dir)
        except Changed as error:
            self._moving[key] = self._moving.get(key, 0) + 1
            if self._moving[key] < _MAX_TRIES:
                return True
            await self._fail(publish, key, DagError(file, 0, str(error)))
        except ValueError as error:
            await self._fail(publish, key, DagError(file, 0, f"cannot be kept: {error}"))
        except OSError as error:  # a full disk is this file's trouble, not the server's end
            await self._fail(publish, key, DagError(file, 0, f"cannot be kept: {error.strerror}"), again=True)
        else:
            self._moving.pop(key, None)
            result = FileResult(tenant_id, file, version, loaded.dags, loaded.errors)
            holds = frozenset(dag.dag_id for dag in loaded.dags)
            await self._learn(publish, key, _Known(result, frozenset(loaded.files), holds))
        return False

    async def _fail(self, publish: Publish, key: Key, error: DagError, *, again: bool = False) -> None:
        if again:  # no change of the file will tell that there is room on the disk
            self._again[key] = asyncio.get_running_loop().time() + self._again_seconds
        before = self._known.get(key)
        holds = before.holds if before is not None else frozenset[str]()
        result = FileResult(*key, errors=(error,))
        await self._learn(publish, key, _Known(result, holds=holds, slow=isinstance(error, LoadTimeoutError)))

    async def _learn(self, publish: Publish, key: Key, known: _Known) -> None:
        """Publish what a load found, unless the file went away meanwhile."""
        if key not in self._present:
            return
        before = self._known.get(key)
        self._known[key] = known
        self._published.add(key)
        tenant_id = key[0]
        data = {f for k, v in self._known.items() if k[0] == tenant_id for f in v.files if not f.endswith(".py")}
        self._watcher.also_watch(tenant_id, data)
        if before is None or not known.failed or not before.failed or _said(known) != _said(before):
            await self._publish(publish, known.result)
        if before is not None:
            await self._publish_heirs(publish, key, before.holds - known.holds)

    async def _remove(self, publish: Publish, key: Key) -> None:
        """Publish that a file is gone, if it was ever published."""
        before = self._known.pop(key, None)
        if key in self._published:
            self._published.discard(key)
            await self._publish(publish, FileResult(*key, removed=True))
        if before is not None:
            await self._publish_heirs(publish, key, before.holds)

    async def _publish_heirs(self, publish: Publish, key: Key, freed: frozenset[str]) -> None:
        """Publish once more the files that hold a `dag_id` which this one has just given up: they may have it now."""
        for other, known in list(self._known.items()):
            if other != key and not known.failed and freed & known.holds:
                await self._publish(publish, known.result)


def _said(known: _Known) -> list[str]:
    return [str(error) for error in known.result.errors]
