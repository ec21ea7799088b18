"""What counts as a hook, and what it is called (R8.1)."""

import functools
import types
from collections.abc import AsyncIterator, Generator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dexaflow.admission.decisions import Decision, Request, admit
from dexaflow.base.errors import ConfigError
from dexaflow.endpoint import asgi_app
from dexaflow.hooks.naming import hook_function, hook_name

HERE = "tests.hooks.test_naming"


def freeze(request: Request) -> Decision:
    return admit()


async def freeze_async(request: Request) -> Decision:
    return admit()


class Called:
    def __call__(self, request: Request) -> Decision:
        return admit()


class Reviewing:
    def review(self, request: Request) -> Decision:
        return admit()


class Named(Reviewing):
    name = "budget"


nameless = lambda request: admit()  # noqa: E731 - the thing under test


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (freeze, f"{HERE}:freeze"),
        (freeze_async, f"{HERE}:freeze_async"),
        (Called(), f"{HERE}:Called"),
        (Reviewing(), f"{HERE}:Reviewing"),
        (Reviewing().review, f"{HERE}:Reviewing.review"),
        (functools.partial(freeze), f"{HERE}:freeze"),
        (Named(), "budget"),
    ],
)
def test_hook_is_called_by_its_name_attribute_else_by_where_it_is_defined(hook: object, name: str) -> None:
    assert hook_name(hook) == name  # type: ignore[arg-type]
    assert callable(hook_function(hook))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", " ", 7, "a\nb", "a\x1bb", "x" * 300, "\u202eabc"])
def test_name_that_cannot_be_shown_is_an_error(name: object) -> None:
    with pytest.raises(ConfigError) as caught:
        hook_name(SimpleNamespace(name=name, review=freeze))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("hook", [nameless, functools.partial(nameless)])
def test_lambda_has_no_name(hook: object) -> None:
    with pytest.raises(ConfigError, match="lambda"):
        hook_name(hook)  # type: ignore[arg-type]


def test_named_lambda_is_fine() -> None:
    hook = lambda request: admit()  # noqa: E731 - the thing under test
    hook.name = "mine"  # type: ignore[attr-defined]
    assert hook_name(hook) == "mine"


@pytest.mark.parametrize("hook", [None, 3, "freeze", object(), Called, Reviewing, SimpleNamespace(review=3)])
def test_what_cannot_decide_is_not_a_hook(hook: object) -> None:
    with pytest.raises(ConfigError) as caught:
        hook_function(hook)  # type: ignore[arg-type]
    assert caught.value.key == "execution.admission.hooks"


class _Raising:
    @property
    def name(self) -> str:
        raise SystemExit(3)

    def review(self, request: object) -> None: ...


class _Sly(str):
    def __str__(self) -> str:
        return "evil\n"


class _SlyNamed:
    name = _Sly("fine")

    def review(self, request: object) -> None: ...


def test_a_name_that_cannot_be_read_is_one_line_and_one_that_changes_is_read_once() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        hook_name(_Raising())  # type: ignore[arg-type]  # any object may come
    assert hook_name(_SlyNamed()) == "fine"  # type: ignore[arg-type]  # any object may come


# -- what is no hook by its looks


def two(request: Request, client: object) -> Decision:
    return admit()


def by_keyword(*, request: Request) -> Decision:
    return admit()


def and_more(request: Request, *, client: object) -> Decision:
    return admit()


def yields(request: Request) -> Iterator[Decision]:
    yield admit()


async def yields_async(request: Request) -> AsyncIterator[Decision]:
    yield admit()


class CalledYielding:
    def __call__(self, request: Request) -> Iterator[Decision]:
        yield admit()


class ReviewingNothing:
    def review(self) -> Decision:
        return admit()


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (lambda: admit(), "takes no argument"),
        (two, f"{HERE}:two takes (request, client)"),
        (functools.partial(by_keyword), f"{HERE}:by_keyword takes (request=)"),
        (by_keyword, "takes (request=)"),
        (and_more, "takes (request, client=)"),
        (ReviewingNothing(), "ReviewingNothing.review takes no argument"),
        (SimpleNamespace(review=two), "takes (request, client)"),
        (yields, "is a generator function"),
        (functools.partial(yields), "is a generator function"),
        (CalledYielding(), "CalledYielding is a generator function"),
        (yields_async, "is an async generator function"),
    ],
)
def test_hook_that_could_never_give_a_decision_is_refused_before_it_is_asked(hook: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        hook_function(hook)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match="; have it "):
        asgi_app(hook)


def with_client(function: Any) -> Any:
    @functools.wraps(function)
    def given(request: Request) -> Any:
        return function(request, "client")

    return given


@types.coroutine
def old_coroutine(request: Request) -> Generator[None, None, Decision]:
    yield
    return admit()


class OwnSignature:
    @property
    def __signature__(self) -> None:
        raise SystemExit(3)

    def __call__(self, request: Request) -> Decision:
        return admit()


def and_less(request: Request, client: object = None, *more: object, **others: object) -> Decision:
    return admit()


@pytest.mark.parametrize(
    "hook",
    [
        with_client(two),
        functools.partial(two, client="client"),
        old_coroutine,
        OwnSignature(),
        and_less,
        lambda *anything: admit(),
        max,
    ],
)
def test_hook_that_may_well_give_a_decision_is_not_refused(hook: Any) -> None:
    """Of a decorated function, what counts is what the decorator takes."""
    assert hook_function(hook) is hook
    asgi_app(hook)
