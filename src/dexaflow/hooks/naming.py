"""Hooks in process: what counts as one, and what it is called (R8.1)."""

import inspect
from functools import partial
from typing import Any, Final

from dexaflow.admission.hook_shape import Hook, HookFunction, shape_problem
from dexaflow.base.errors import ConfigError
from dexaflow.base.text import shown, without_user_info
from dexaflow.hooks.foreign import ForeignError, run_foreign

__all__ = ["HOOKS_KEY", "hook_function", "hook_name"]

HOOKS_KEY: Final = "execution.admission.hooks"
MAX_NAME_CHARACTERS: Final = 200  # it stands in metrics, records and messages


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
    except ForeignError as error:
        problem = f"`review` of an object of type {kind} cannot be read: {error}"
        raise ConfigError(HOOKS_KEY, problem, "make it a method") from error
    if isinstance(hook, str):
        raise ConfigError(
            HOOKS_KEY, f"the text '{shown(without_user_info(hook)[:200])}' is not a hook", "give the function itself"
        )
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
    except ForeignError as error:
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


def _attribute(thing: object, name: str) -> Any:
    """Return an attribute of something foreign; None when there is none. Raises `ForeignError`."""
    return run_foreign(lambda: getattr(thing, name, None))


def _within(function: object) -> object:
    while isinstance(function, partial):
        function = function.func
    return function


def _called(thing: object) -> str:
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None) or type(thing).__qualname__
    return f"{module or type(thing).__module__}:{name}"
