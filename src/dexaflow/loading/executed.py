"""Which files of the DAG folder a DAG file executes or reads. Runs in the loading process, next to foreign code.

Three sources, since each alone misses something: what the import system read (with the very bytes, never a stale
``.pyc``), what was opened for reading (a query, a table of settings), and what the sources import anywhere, also inside
a function that has not run yet. A module that is imported by a computed name inside a task is the one thing missed.
"""

import ast
import hashlib
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from importlib.machinery import SOURCE_SUFFIXES as SOURCES
from typing import Any

from dexaflow.base.errors import DagError

__all__ = ["MAX_FILE_BYTES", "Executed"]

MAX_FILE_BYTES = 16 * 1024 * 1024  # of one file kept with a version


class Executed:
    """Notes the files below `root` that this process executes or reads; `install` it before the DAG file runs."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip(os.sep) + os.sep
        self._sources: dict[str, bytes] = {}  # absolute path -> bytes executed
        self._opened: dict[str, None] = {}  # absolute path

    def install(self) -> None:
        """Watch imports below the root and every file opened. There is no way back: the process serves one file."""
        loader = type("_Loader", (_SourceLoader,), {"read": staticmethod(self.read)})

        def hook(path: str) -> FileFinder:
            if not (os.path.abspath(path) + os.sep).startswith(self._root):
                raise ImportError("not below the DAG folder")
            return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (loader, SOURCES))

        sys.path_hooks.insert(0, hook)
        sys.addaudithook(self._audit)

    def read(self, path: str) -> bytes:
        """Return the bytes of a source file, and note that they are executed."""
        with open(path, "rb") as stream:
            source = stream.read()
        self._sources[os.path.abspath(path)] = source
        return source

    def source(self, path: str) -> bytes:
        """Return the bytes that were executed of `path`; empty when none were."""
        return self._sources.get(path, b"")

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open":
            return
        path, mode, flags = args
        try:
            reads = mode[:1] == "r" and "+" not in mode if isinstance(mode, str) else not flags & 0b11
            if reads and isinstance(path, str | bytes | os.PathLike):
                absolute = os.path.abspath(os.fsdecode(path))
                if absolute.startswith(self._root):
                    self._opened[absolute] = None
        except (OSError, TypeError, ValueError):
            return  # the open itself will say what is wrong with it

    def files(self) -> dict[str, str]:
        """Return the SHA-256 of every file noted, by path relative to the root with "/" between its parts.

        Raises:
            DagError: A file is larger than can be kept.
        """
        for module in list(sys.modules.values()):
            try:
                path = getattr(module, "__file__", None)
            except Exception:  # noqa: BLE001 - what foreign code puts there need not be a module
                continue
            if isinstance(path, str) and os.path.abspath(path).startswith(self._root):
                self._opened[os.path.abspath(path)] = None
        waiting = list(self._sources)
        while waiting:
            path = waiting.pop()
            for found in self._imported_by(path):
                if found not in self._sources:
                    self.read(found)
                    waiting.append(found)
        result = {self._relative(path): _digest(source) for path, source in self._sources.items()}
        for path in self._opened:
            relative = self._relative(path)
            if relative not in result and not _hidden(relative):
                digest = self._digest_of(path, relative)
                if digest:
                    result[relative] = digest
        return result

    def _relative(self, path: str) -> str:
        return path[len(self._root) :].replace(os.sep, "/")

    def _digest_of(self, path: str, relative: str) -> str:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                    return ""
                content = stream.read(MAX_FILE_BYTES + 1)
        except OSError:
            return ""  # opened in vain, or gone since
        if len(content) > MAX_FILE_BYTES:
            raise DagError(
                "",
                0,
                f"reads {relative} while it is loaded, which is kept with each version and may have {MAX_FILE_BYTES} "
                "bytes at most; read it inside a task, from another folder",
            )
        return _digest(content)

    def _imported_by(self, path: str) -> Iterator[str]:
        """Yield the files below the root that the source at `path` imports anywhere in it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(self._sources[path])
            nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return  # whoever imports it will hear
        package = self._relative(path).split("/")[:-1]
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._modules(alias.name.split("."))
                continue
            if node.level > len(package) + 1:
                continue
            base = package[: len(package) - (node.level - 1)] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield from self._modules([*base, alias.name])

    def _modules(self, parts: list[str]) -> Iterator[str]:
        """Yield the files of the module ``a.b.c`` and of the packages above it, as far as they are there."""
        for end in range(1, len(parts) + 1):
            stem = self._root + os.sep.join(parts[:end])
            for path in (os.path.join(stem, "__init__.py"), stem + ".py"):
                if os.path.isfile(path):
                    yield path


class _SourceLoader(SourceFileLoader):
    """Reads sources only: a ``.pyc`` is trusted by the second in which its source was written, which is not enough."""

    @staticmethod
    def read(path: str) -> bytes:
        raise NotImplementedError

    def get_data(self, path: str) -> bytes:
        return self.read(path) if path == self.path else super().get_data(path)

    def path_stats(self, path: Any) -> Any:
        raise OSError("no bytecode")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _hidden(relative: str) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in relative.split("/"))
