"""Hooks in process: what counts as one, what it is called, and finding it by `package.module:name` (R8.1)."""

import importlib
import inspect
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, Protocol

from dexaflow.admission.decisions import Decision, Request
from dexaflow.admission.hook_shape import shape_problem
from dexaflow.base.errors import ConfigError, ConfigErrors
from dexaflow.base.text import shown

__all__ = ["HOOKS_KEY", "Hook", "HookFunction", "Reviewer", "hook_function", "hook_name", "load_hook", "load_hooks"]

HOOKS_KEY: Final = "execution.admission.hooks"
MAX_NAME_CHARACTERS: Final = 200  # it stands in metrics, records and messages

HookFunction = Callable[[Request], Decision | Awaitable[Decision]]


class Reviewer(Protocol):
    """An object that is a hook by a method of this name, async or plain."""

    @property
    def review(self) -> HookFunction:
        """Decide about one request."""
        ...


Hook = HookFunction | Reviewer

_TARGET = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*", re.ASCII)


def hook_function(hook: Hook) -> HookFunction:
    """Return what to call: the hook itself if it can be called, else its `review`.

    Raises:
        ConfigError: it is neither, or a class; or it does not take a request, or gives no decision (a generator).
    """
    if isinstance(hook, type):
        raise ConfigError(HOOKS_KEY, f"{_called(hook)} is a class", "give an object made from it")
    kind = _called(type(hook))
    try:
        function = hook if callable(hook) else _attribute(hook, "review")
    except _Unreadable as error:
        problem = f"`review` of an object of type {kind} cannot be read: {error}"
        raise ConfigError(HOOKS_KEY, problem, "make it a method") from error
    if isinstance(hook, str):
        raise ConfigError(HOOKS_KEY, f"the text '{shown(hook[:200])}' is not a hook", "give the function itself")
    if not callable(function):
        raise ConfigError(
            HOOKS_KEY, f"an object of type {kind} is not a hook", "give a function, or an object with a method `review`"
        )
    wrong = shape_problem(function)
    if wrong:
        problem, fix = wrong
        named = _within(function)
        called = _called(named) if inspect.isroutine(named) else f"an object of type {kind}"
        raise ConfigError(HOOKS_KEY, f"{called} {problem}", fix)
    return function


def hook_name(hook: Hook) -> str:
    """Return a hook's name: its `name` attribute, else `module:qualname` of the function or of the object's class.

    Raises:
        ConfigError: it has none (a lambda), or one that cannot be shown.
    """
    fix = "set its `name` attribute to a text of its own"
    try:
        given = _attribute(hook, "name")
    except _Unreadable as error:
        raise ConfigError(HOOKS_KEY, f"the `name` of a hook cannot be read: {error}", fix) from error
    if isinstance(given, str):
        given = "".join(given)  # plain text, whatever a class of theirs makes of it
    if given is not None:
        if not isinstance(given, str):
            raise ConfigError(
                HOOKS_KEY, f"the name of a hook must be text, not of type {shown(type(given).__name__)}", fix
            )
        if not given.strip() or len(given) > MAX_NAME_CHARACTERS or shown(given) != given:
            problem = f"'{shown(given[:80])}' cannot be the name of a hook"
            raise ConfigError(HOOKS_KEY, problem, f"{fix}: one line of 1 to {MAX_NAME_CHARACTERS} characters")
        return str(given)
    named = _within(hook)
    if not inspect.isroutine(named):
        named = type(named)
    name = _called(named)
    if "<lambda>" in name:
        raise ConfigError(HOOKS_KEY, f"a lambda ({name}) has no name", "write it as a function")
    return name


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
    if not _TARGET.fullmatch(target):
        raise ConfigError(HOOKS_KEY, f"'{shown(target[:200])}' does not name a hook", "write package.module:name")
    module_name, _, name = target.partition(":")
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    ctrl_c = _CtrlC()
    try:
        with ctrl_c:
            found: object = importlib.import_module(module_name)
    except BaseException as error:
        if ctrl_c.pressed:
            raise
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (module_name == missing or module_name.startswith(missing + ".")):
            problem, fix = f"there is no module {missing} for '{target}'", "install it, or correct the name"
        else:
            problem, fix = f"{module_name} cannot be imported: {_said(error)}", "mend the module"
        raise ConfigError(HOOKS_KEY, problem, fix) from error
    for part in name.split("."):
        try:
            with ctrl_c:
                found = getattr(found, part)
        except BaseException as error:
            if ctrl_c.pressed:
                raise
            problem = f"{module_name} has no '{name}'"
            raise ConfigError(HOOKS_KEY, problem, "write the name of a hook that it defines") from error
    hook: Hook = found  # type: ignore[assignment]  # what it takes and gives is seen when it is called
    hook_function(hook)
    hook_name(hook)
    return hook


class _Unreadable(Exception):  # noqa: N818 - what the attribute is
    """An attribute cannot be read; ``str()`` is what was raised instead, in one line."""


def _attribute(thing: object, name: str) -> Any:
    """Return an attribute of something foreign, which may run its code; None when there is none."""
    ctrl_c = _CtrlC()
    try:
        with ctrl_c:
            return getattr(thing, name, None)
    except BaseException as error:
        if ctrl_c.pressed:
            raise
        raise _Unreadable(_said(error)) from error


class _CtrlC:
    """Tells somebody's Ctrl-C from a `KeyboardInterrupt` that foreign code raises by itself, within its context."""

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None  # Any: as the signal module has it

    def __enter__(self) -> None:
        # Signals come to the main thread alone; None is a handler that Python could not put back.
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) not in (None, signal.SIG_IGN):
            self._before = signal.signal(signal.SIGINT, self._press)

    def __exit__(self, *_: object) -> None:
        if self._before is not None and signal.getsignal(signal.SIGINT) == self._press:  # else they have set their own
            signal.signal(signal.SIGINT, self._before)
        self._before = None

    def _press(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        raise KeyboardInterrupt


def _within(function: object) -> object:
    while isinstance(function, partial):
        function = function.func
    return function


def _called(thing: object) -> str:
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return f"{module or type(thing).__module__}:{name}"


def _said(error: BaseException) -> str:
    """Return an exception in one line."""
    text = shown(" ".join(str(error).split())[:300])
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
