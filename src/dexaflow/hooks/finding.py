"""Finding hooks in process: by `package.module:name`, or given by a program (R8.1)."""

import importlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from dexaflow.admission.hook_shape import Hook
from dexaflow.base.errors import ConfigError, ConfigErrors
from dexaflow.base.text import shown, without_user_info
from dexaflow.hooks.foreign import ForeignError, run_foreign
from dexaflow.hooks.naming import HOOKS_KEY, hook_function, hook_name

__all__ = ["load_hook", "load_hooks", "names_a_hook"]

_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*", re.ASCII)

_MAX_TARGET_CHARACTERS = 300


def names_a_hook(written: str) -> bool:
    """Whether it is a `package.module:name`, of a length that a message can quote more than once."""
    return len(written) <= _MAX_TARGET_CHARACTERS and _TARGET.fullmatch(written) is not None


def load_hooks(
    targets: Iterable[str], folder: Path, *, given: Iterable[Hook] = (), names: Iterable[str] = ()
) -> tuple[Hook, ...]:
    """Return the hooks of a server in the order in which they are asked: those given, then those that `targets` name.

    Args:
        targets: As `load_hook` takes them.
        folder: Where their modules are looked for first.
        given: Hooks that a program has made.
        names: What other hooks are called, the webhook's among them.

    Raises:
        ConfigErrors: what is wrong with each of them; two that have one name, the others included (R8.1).
    """
    problems: list[ConfigError] = []
    hooks: list[Hook] = []
    called: list[str] = []
    makers: list[Callable[[], Hook]] = [partial(_given, index, hook) for index, hook in enumerate(given)]
    by_program = len(makers)
    makers += [partial(load_hook, target, folder) for target in targets]
    for make in makers:
        try:
            hook = make()
            called.append(hook_name(hook))
        except ConfigError as problem:
            problems.append(problem)
        else:
            hooks.append(hook)
    counts = Counter([*called, *names])
    problems += [
        ConfigError(
            f"admission, {HOOKS_KEY}" if by_program else HOOKS_KEY,
            f"{'two' if count == 2 else count} hooks are called '{shown(name)}'",
            "name it once, or set the `name` attribute of one",
        )
        for name, count in counts.items()
        if count > 1
    ]
    if problems:
        raise ConfigErrors(problems)
    return tuple(hooks)


def _given(index: int, hook: Hook) -> Hook:
    try:
        hook_function(hook)
        hook_name(hook)
    except ConfigError as problem:  # it is no hook of the configuration's
        raise ConfigError(f"admission[{index}]", problem.problem, problem.fix) from problem
    return hook


def load_hook(target: str, folder: Path | None = None) -> Hook:
    """Import `package.module:name` and return the hook that it names.

    Args:
        target: The module, a colon, and the hook in it; dots lead into objects.
        folder: Where modules are looked for as well, before the installed ones.

    Raises:
        ConfigError: there is no such module or name, importing it raised, or it is not a hook; one line.
    """
    if not names_a_hook(target):
        raise ConfigError(
            HOOKS_KEY, f"'{shown(without_user_info(target)[:200])}' does not name a hook", "write package.module:name"
        )
    module_name, _, name = target.partition(":")
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        found: object = run_foreign(partial(importlib.import_module, module_name))
    except ForeignError as foreign:
        error = foreign.cause
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (module_name == missing or module_name.startswith(missing + ".")):
            problem, fix = f"there is no module {missing} for '{target}'", "install it, or correct the name"
            if module_name.endswith(".py"):
                fix = f"a module has no .py: write {module_name.removesuffix('.py')}:{name}"
        else:
            problem, fix = f"{module_name} cannot be imported: {foreign}", "mend the module"
        raise ConfigError(HOOKS_KEY, problem, fix) from error
    for part in name.split("."):
        try:
            found = run_foreign(partial(getattr, found, part))
        except ForeignError as foreign:
            problem = f"{module_name} has no '{name}'"
            raise ConfigError(HOOKS_KEY, problem, "write the name of a hook that it defines") from foreign.cause
    hook: Hook = found  # type: ignore[assignment]  # what it takes and gives is seen when it is called
    hook_function(hook)
    hook_name(hook)
    return hook
