"""Executing a DAG file, to learn what it makes."""

import importlib.util
import os.path
import re
import sys
import zlib
from collections.abc import Callable

from dexaflow.authoring.dag import DAG, dags_of, forget_dags_of

__all__ = ["load_dags"]


def _read(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read()


def load_dags(root: str, file: str, *, read: Callable[[str], bytes] = _read) -> tuple[DAG, ...]:
    """Execute `root`/`file` in this process and return its DAGs, oldest first.

    `root` becomes the first entry of ``sys.path``, so that the file imports its neighbours as any script does. The
    file is no module of that name: a DAG file called ``json.py`` is not what others get for ``import json`` because
    of us.

    Args:
        read: Returns the bytes of the file at that path; for a caller who wants to know what was executed.

    Raises:
        BaseException: Whatever the file raises, `SystemExit` and `SyntaxError` included.
    """
    root = os.path.abspath(root)
    path = os.path.join(root, *file.split("/"))
    if root not in sys.path[:1]:
        sys.path.insert(0, root)
    source = read(path)
    number = zlib.crc32(file.encode("utf-8", "surrogateescape"))  # tells a/etl.py from b/etl.py
    name = f"dexaflow_dag_{number:08x}_{re.sub(r'[^0-9A-Za-z_]', '_', os.path.basename(file).removesuffix('.py'))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    forget_dags_of(path)
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return dags_of(path)
