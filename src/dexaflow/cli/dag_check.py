"""`dexaflow dags check`: DAG files loaded as the server loads them, and what is wrong with them."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dexaflow.base.errors import DagError, UsageError
from dexaflow.base.text import shown
from dexaflow.loading.loader import Loaded, load_file
from dexaflow.loading.registry import MARK, PARALLEL_LOADS
from dexaflow.loading.versions import read_file
from dexaflow.loading.watcher import Watcher
from dexaflow.policy.policy import Policy
from dexaflow.server.publishing import policy_problems

__all__ = ["Checked", "Source", "check_files", "files_to_check"]


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """One DAG file: the folder from which it imports, and its place there, "/" between the parts."""

    root: Path
    file: str
    asked_for: bool = False  # by its own name: then it is executed whatever is in it


@dataclass(frozen=True, slots=True)
class Checked:
    """What a check found. Files are named as a person at this place would."""

    files: int
    dags: tuple[tuple[str, str], ...]  # (dag_id, file)
    problems: tuple[DagError, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The files to check, and what cannot be looked at."""

    sources: tuple[Source, ...]
    problems: tuple[DagError, ...]


def files_to_check(paths: Sequence[Path], roots: Sequence[Path]) -> Found:
    """Return the DAG files that `paths` name, folders with all below them.

    A file imports from the one of `roots` that it lies below, else from its own folder.

    Args:
        paths: None of them: everything in `roots`.
        roots: The DAG folders.

    Raises:
        UsageError: there is no such file or folder.
    """
    sources: dict[tuple[Path, str], Source] = {}
    problems: list[DagError] = []
    absolute_roots = [Path(os.path.abspath(root)) for root in roots]
    for path in paths or roots:
        absolute = Path(os.path.abspath(path))
        if not absolute.exists():
            raise UsageError(f"there is no {path}; name DAG files, or folders of them")
        root = _root_of(absolute, absolute_roots)
        if not absolute.is_dir():
            if absolute.suffix != ".py":
                raise UsageError(f"{path} is no Python file; name DAG files, or folders of them")
            file = absolute.relative_to(root).as_posix()
            sources[root, file] = Source(root, file, asked_for=True)
            continue
        look = asyncio.run(Watcher({"": absolute}).look())
        problems += [_at(absolute, problem) for problem in look.problems.get("", ())]
        for change in look.changes:
            file = (absolute / change.file).relative_to(root).as_posix()
            sources.setdefault((root, file), Source(root, file))
    return Found(tuple(sorted(sources.values())), tuple(problems))


def _root_of(path: Path, roots: Sequence[Path]) -> Path:
    """Return the DAG folder that a file or folder belongs to: the innermost root, else the file's own folder."""
    around = [root for root in roots if path.is_relative_to(root)]
    if around:
        return max(around, key=lambda root: len(root.parts))
    return path if path.is_dir() else path.parent


async def check_files(found: Found, policy: Policy, *, timeout: float) -> Checked:
    """Load every file and say what is wrong: with the file, its DAGs, and their names among each other.

    Args:
        timeout: Seconds for one file to load.
    """
    free = asyncio.Semaphore(PARALLEL_LOADS)

    async def load(source: Source) -> Loaded | DagError | None:
        async with free:
            try:
                marked = MARK in await asyncio.to_thread(read_file, source.root, source.file)
            except OSError as error:
                return DagError(source.file, 0, f"cannot be read: {error.strerror or type(error).__name__}")
            except ValueError as error:
                return DagError(source.file, 0, str(error))
            if not marked and not source.asked_for:
                return None
            return await load_file(source.root, source.file, timeout=timeout)

    results = await asyncio.gather(*(load(source) for source in found.sources))
    problems = list(found.problems)
    taken: dict[str, str] = {}  # dag_id -> the file that has it
    dags: list[tuple[str, str]] = []
    for source, result in zip(found.sources, results, strict=True):
        if isinstance(result, DagError):
            problems.append(_at(source.root, result))
        elif result is not None:
            where = _named(source.root, source.file)
            problems += [_at(source.root, error) for error in result.errors]
            for spec in result.dags:
                against = policy_problems(source.file, spec, policy)
                problems += [_at(source.root, error) for error in against]
                if spec.dag_id in taken:
                    cause = f"dag_id '{spec.dag_id}' is already taken by {taken[spec.dag_id]}; choose another"
                    problems.append(DagError(where, spec.line, cause))
                taken.setdefault(spec.dag_id, where)
                dags.append((spec.dag_id, where))
    checked = sum(result is not None for result in results)
    return Checked(checked, tuple(dags), tuple(problems))


def _at(root: Path, error: DagError) -> DagError:
    """Return an error with its file named as seen from here, so that editors find it."""
    return DagError(_named(root, error.file), error.line, shown(error.cause))


def _named(root: Path, file: str) -> str:
    named = os.path.relpath(root / file)
    return str(root / file) if named.startswith("..") else named
