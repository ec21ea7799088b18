"""Finding a hook by its name, `package.module:name`."""

import importlib
import re
import sys
from pathlib import Path
from typing import cast

from dexaflow.base.errors import UsageError
from dexaflow.base.text import shown
from dexaflow.endpoint.calling import Hook

__all__ = ["find_hook"]

_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*", re.ASCII)


def find_hook(target: str, folder: Path | None = None) -> Hook:
    """Import `package.module:name` and return what it names.

    Args:
        target: The module, a colon, and the hook in it; dots lead into objects.
        folder: Put first where modules are looked for; usually the current directory.

    Raises:
        UsageError: there is no such module or name, importing it raised, or it cannot be called.
    """
    if not _TARGET.fullmatch(target):
        raise UsageError(f"'{shown(target[:200])}' does not name a hook; write package.module:name")
    module_name, _, name = target.partition(":")
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            where = f" in {shown(str(folder))} or" if folder else ""
            raise UsageError(f"there is no module {error.name}{where} among the installed packages") from error
        raise UsageError(f"{module_name} cannot be imported: {_said(error)}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{module_name} cannot be imported: {_said(error)}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise UsageError(f"{module_name} has no {name}; write the name of a hook that it defines") from error
    if isinstance(found, type):
        raise UsageError(f"{target} is a class; name a function, or an object made from the class")
    if not callable(found):
        raise UsageError(f"{target} is not a hook: a {type(found).__name__} cannot be called")
    return cast(Hook, found)  # what it takes and gives is seen when it is called


def _said(error: BaseException) -> str:
    text = shown(str(error)[:300])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
