"""Hooks in process as hostile company: whatever they raise, return, keep or are made of (R8.1, R8.3)."""

import asyncio
import contextlib
import dataclasses
import gc
import itertools
import json
import random
import re
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexaflow.admission.decisions import (
    MAX_ANSWER_BYTES,
    Admit,
    Changes,
    Decision,
    Hold,
    Refuse,
    Request,
    admit,
    hold,
    refuse,
)
from dexaflow.admission.envelope import answer, decision_of, read_answer
from dexaflow.base.errors import HookBroken
from dexaflow.hooks.inprocess import InProcessCaller
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution
from tests.hooks.building import a_request
from tests.hooks.calling import Kind, both, caller_of

# Every test here is about what a hook may be or give. Any: hooks of every kind, the wrong ones too.


def as_is(answer: object) -> Any:
    return lambda request: answer


async def cause_of(caller: InProcessCaller) -> str:
    with pytest.raises(HookBroken) as caught:
        await caller.ask(a_request())
    assert not caught.value.timed_out, caught.value.cause
    return caught.value.cause


# -- exceptions of their own making


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit("no name")


class FromNowhere(Exception, metaclass=Nameless):  # noqa: N818 - named for what it does
    def __str__(self) -> str:
        raise KeyboardInterrupt

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise GeneratorExit


class Wordy(BaseException):
    def __str__(self) -> str:
        return "\x1b[2J\n" * 1_000_000


@both
@pytest.mark.parametrize("error", [FromNowhere, Wordy], ids=["that nobody can describe", "with a megabyte to say"])
async def test_exception_of_any_making_is_one_failure_with_a_short_cause(
    kind: Kind, error: Callable[[], BaseException]
) -> None:
    """What describes it runs its code too; were that to raise, nobody would hear of the end of the call."""

    def hook(request: Request) -> Decision:
        if request.task_id == "other":
            return admit()
        raise error()

    async with caller_of(kind(hook)) as caller:
        assert len(await cause_of(caller)) < 1000
        assert (await caller.ask(a_request(task_id="other"))).decision == Admit()
        assert caller.abandoned == 0


# -- where it happened


def label_of_a_number(request: Any) -> Any:
    return admit(labels={"a": 1})  # type: ignore[dict-item]  # the fault under test


def hold_on_nothing(request: Any) -> Any:
    return hold(None)  # type: ignore[arg-type]  # the fault under test


def refuse_a_number(request: Any) -> Any:
    return refuse(5)  # type: ignore[arg-type]  # the fault under test


def change_the_request(request: Any) -> Any:
    request.tenant_id = "x"


def changes_that_raise(request: Any) -> Any:
    class Labels(dict[str, str]):
        def items(self) -> Any:
            raise ValueError("no items")

    return Admit(Changes(labels=Labels(a="b")))


def in_a_library(request: Any) -> Any:
    return json.loads("{")


@both
@pytest.mark.parametrize(
    ("hook", "file", "offset"),
    [
        (label_of_a_number, __file__, 1),
        (hold_on_nothing, __file__, 1),
        (refuse_a_number, __file__, 1),
        (change_the_request, __file__, 1),
        (changes_that_raise, __file__, 3),
        (in_a_library, json.decoder.__file__, None),
    ],
)
async def test_cause_names_the_line_of_the_hook_and_never_one_of_ours(
    kind: Kind, hook: Any, file: str, offset: int | None
) -> None:
    async with caller_of(kind(hook)) as caller:
        cause = await cause_of(caller)
    line = r"\d+" if offset is None else str(hook.__code__.co_firstlineno + offset)
    assert re.search(rf" \({re.escape(file)}:{line}\)$", cause), cause


@both
@pytest.mark.parametrize("answer", ["admit", 3, object(), Admit(3), Hold(3)])  # type: ignore[arg-type]  # the faults
async def test_cause_has_no_line_where_none_of_the_hooks_is_to_blame(kind: Kind, answer: object) -> None:
    async with caller_of(kind(as_is(answer))) as caller:
        assert ".py" not in await cause_of(caller)


async def test_cause_of_a_hook_without_a_file_names_the_line_all_the_same() -> None:
    made: dict[str, Any] = {}
    exec("def hook(request):\n    return 1 / 0\n", made)
    async with caller_of(made["hook"]) as caller:
        assert (await cause_of(caller)).endswith("(<string>:2)")


# -- what is no decision


@both
async def test_hook_that_returns_nothing_is_named_and_told_what_to_return(kind: Kind) -> None:
    async with caller_of(kind(as_is(None))) as caller:
        cause = await cause_of(caller)
    assert cause.startswith("what policy:under_test returned cannot be used: ")
    assert "must return admit(), hold(reason) or refuse(reason), not None" in cause
    assert "without `return`" in cause
    assert "decisions.py" not in cause


def yielding(request: Request) -> Generator[Decision]:
    yield admit()


async def yielding_async(request: Request) -> AsyncIterator[Decision]:
    yield admit()


def hidden(function: Any) -> Any:
    """As a decorator might: what is behind it cannot be told without calling it."""
    return lambda *arguments: function(*arguments)


class WrongAwaitable:
    """Gives the event loop something to wait for that is nothing."""

    def __await__(self) -> Iterator[Any]:
        yield "nothing of the kind"


class NoIterator:
    def __await__(self) -> Any:
        return 7


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (hidden(yielding), "not generator"),
        (hidden(yielding_async), "not async_generator"),
        (as_is(yielding_async), "not function"),
        (as_is(WrongAwaitable()), "RuntimeError"),
        (as_is(NoIterator()), "TypeError"),
        (as_is(threading.Lock()), "not lock"),
        (as_is(type("\x1b[2J\n", (), {})()), "not \x1b[2J\n"),
    ],
)
async def test_what_only_looks_like_a_hook_or_an_answer_is_a_failure(hook: Any, said: str) -> None:
    async with caller_of(hook) as caller:
        assert said in await cause_of(caller)


async def test_coroutine_that_is_handed_out_twice_is_awaited_once() -> None:
    async def decide() -> Decision:
        return admit()

    once = decide()
    async with caller_of(as_is(once)) as caller:
        assert (await caller.ask(a_request())).decision == Admit()
        assert "cannot reuse already awaited coroutine" in await cause_of(caller)


async def test_coroutine_that_nobody_waits_for_any_more_is_closed_in_a_thread_of_the_hooks() -> None:
    """Closing one that has begun runs the hook's code."""
    go, closed = threading.Event(), threading.Event()
    where: list[str] = []

    @contextlib.contextmanager
    def noting() -> Iterator[None]:
        try:
            yield
        finally:
            where.append(threading.current_thread().name)
            closed.set()

    async def begun() -> Decision:
        with noting():
            await asyncio.sleep(0)
        return admit()

    def hook(request: Request) -> Awaitable[Decision]:
        coroutine = begun()
        coroutine.send(None)
        go.wait(10)
        return coroutine

    async with caller_of(hook) as caller:
        ask = asyncio.create_task(caller.ask(a_request()))
        await asyncio.sleep(0.02)
        ask.cancel()
        await asyncio.gather(ask, return_exceptions=True)
        go.set()
        while not closed.is_set():
            await asyncio.sleep(0.001)
    assert where == ["dexaflow-hook"]


class Watched:
    """Notes in which threads its code runs; that is all that `isinstance` needs to do it."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def _seen(self) -> None:
        self.threads.add(threading.current_thread().name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        self._seen()
        return type(self)

    def __await__(self) -> Generator[Any, None, Any]:
        self._seen()
        yield from asyncio.sleep(0).__await__()
        return self

    def __eq__(self, other: object) -> bool:
        self._seen()
        return True

    def __hash__(self) -> int:
        self._seen()
        return 0

    def __str__(self) -> str:
        self._seen()
        return "watched"

    def __bool__(self) -> bool:
        self._seen()
        return True

    def __iter__(self) -> Iterator[Any]:
        self._seen()
        return iter((7,))


@both
@pytest.mark.parametrize(
    "wrap",
    [
        lambda w: w,
        lambda w: Hold(w),
        lambda w: Admit(w),
        lambda w: Admit(Changes(labels=w)),
        lambda w: Admit(Changes(labels={"a": w})),
        lambda w: Admit(Changes(tolerations=w)),
        lambda w: Admit(Changes(tolerations=(w,))),
        lambda w: Admit(Changes(service_account=w)),
        lambda w: ValueError(w),
    ],
)
async def test_no_code_of_an_answer_runs_on_the_control_planes_event_loop(kind: Kind, wrap: Any) -> None:
    watched = Watched()
    answer = wrap(watched)

    def hook(request: Request) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with caller_of(kind(hook)) as caller:
        await cause_of(caller)
    assert watched.threads <= {"dexaflow-hook", "dexaflow-hook-loop"}


# -- answers that never end, or are too large


class Endless(Mapping[str, str]):
    """Each of its keys is another, or all are the one given."""

    def __init__(self, key: str = "") -> None:
        self._key = key

    def __getitem__(self, key: str) -> str:
        return "v"

    def __iter__(self) -> Iterator[str]:
        return itertools.repeat(self._key) if self._key else (str(n) for n in itertools.count())

    def __len__(self) -> int:
        return 1


TOO_LARGE: dict[str, Callable[[], object]] = {
    "many labels": lambda: Admit(Changes(labels={str(n): "v" for n in range(200_000)})),
    "one long value": lambda: Admit(Changes(annotations={"a": "x" * 50_000_000})),
    "one long key": lambda: Admit(Changes(node_selector={"x" * 70_000: ""})),
    "labels without end": lambda: Admit(Changes(labels=Endless())),
    "tolerations without end": lambda: Admit(
        Changes(tolerations=itertools.repeat(Toleration("a", "Exists")))  # type: ignore[arg-type]
    ),
    "empty tolerations without end": lambda: Admit(Changes(tolerations=itertools.repeat({}))),  # type: ignore[arg-type]
    "a long account": lambda: Admit(Changes(service_account="x" * 70_000)),
    "all fields together": lambda: Admit(
        Changes(labels={"a": "x" * 30_000}, annotations={"a": "x" * 30_000}, node_selector={"a": "x" * 30_000})
    ),
    "escapes": lambda: Admit(Changes(annotations={"a": "\x01" * 12_000})),
    "other alphabets": lambda: Admit(Changes(annotations={"a": "漢" * 22_000})),
}


@both
@pytest.mark.parametrize("large", TOO_LARGE)
async def test_answer_larger_than_one_over_the_wire_may_be_is_broken(kind: Kind, large: str) -> None:
    """R8.3: as for the webhook. An iterator without end is left where the limit is."""
    async with caller_of(kind(lambda request: TOO_LARGE[large]())) as caller:
        assert "65536" in await cause_of(caller)


@both
@pytest.mark.parametrize("name", ["0", "key"])
async def test_toleration_without_end_is_left_at_the_first_field_that_it_may_not_have(kind: Kind, name: str) -> None:
    endless = Endless(name)
    async with caller_of(kind(lambda request: Admit(Changes(tolerations=(endless,))))) as caller:  # type: ignore[arg-type]
        assert f"'{name}' is not a field of a toleration" in await cause_of(caller)


texts = st.text(st.characters(codec="utf-8"), max_size=40) | st.integers(0, 40_000).map(lambda n: "x" * n)
maps = st.dictionaries(texts, texts, max_size=4)


@settings(max_examples=150)
@given(labels=maps, annotations=maps, account=texts, escaped=st.integers(0, 11_000))
def test_limit_is_that_of_an_answer_over_the_wire_to_the_byte(
    labels: dict[str, str], annotations: dict[str, str], account: str, escaped: int
) -> None:
    """And what fits there is the same there and here."""
    given_answer = Admit(
        Changes(labels=labels, annotations={**annotations, "e": "\x00" * escaped}, service_account=account)
    )
    try:
        body = answer("uid", given_answer)
    except ValueError:
        with pytest.raises(ValueError, match="65536"):
            decision_of("uid", given_answer)
    else:
        assert len(body) <= MAX_ANSWER_BYTES
        assert decision_of("uid", given_answer) == read_answer(body, "uid")


@pytest.mark.parametrize("spare", [0, 1])
def test_largest_answer_is_one_of_exactly_the_limit(spare: int) -> None:
    empty = len(answer("uid", admit(annotations={"a": "x"}))) - 1
    given_answer = admit(annotations={"a": "x" * (MAX_ANSWER_BYTES - empty + spare)})
    if spare:
        with pytest.raises(ValueError, match="65537 bytes"):
            decision_of("uid", given_answer)
    else:
        assert decision_of("uid", given_answer) == given_answer


@both
@pytest.mark.parametrize("made", [Refuse, Hold])
async def test_long_reason_is_cut_and_the_decision_stands(kind: Kind, made: Any) -> None:
    """Were a refusal broken because it has much to say, `fail_open` would let the attempt by."""
    async with caller_of(kind(as_is(made("é" * 5_000_000)))) as caller:
        assert (await caller.ask(a_request())).decision == made("é" * 256)


# -- answers that change, and answers that lie


async def test_mapping_that_changes_while_it_is_read_is_a_failure_or_one_of_its_states() -> None:
    stop = threading.Event()
    labels = {f"k{n}": "v" for n in range(100)}

    def churn() -> None:
        while not stop.is_set():
            key = f"x{random.random()}"
            labels[key] = "v"
            del labels[key]

    def hook(request: Request) -> Decision:
        return Admit(Changes(labels=labels))

    thread = threading.Thread(target=churn, daemon=True)
    thread.start()
    try:
        async with caller_of(hook) as caller:
            for _ in range(50):
                try:
                    decision = (await caller.ask(a_request())).decision
                except HookBroken as broken:
                    assert "changed" in broken.cause
                else:
                    assert isinstance(decision, Admit)
                    assert set(decision.changes.labels) >= {f"k{n}" for n in range(100)}
    finally:
        stop.set()
        thread.join()


class Sly(str):
    """Text that is equal to everything and prints as something else."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        return "forged"

    def encode(self, *_: Any) -> bytes:
        return b"forged"

    def isascii(self) -> bool:
        raise AssertionError("asked the hook's own text")

    def startswith(self, *_: Any) -> bool:
        return False


class SlyAdmit(Admit):
    __class__ = Refuse  # type: ignore[assignment]


class SlyHold(Hold):
    def __init__(self) -> None:
        pass

    @property
    def reason(self) -> str:
        return Sly("seen")


class SlyToleration(Toleration):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


async def test_decision_holds_nothing_of_the_hooks_own_classes() -> None:
    """What the gate checks is what is applied, for every later reader."""
    given_answer = Admit(
        Changes(
            labels={Sly("dexaflow.io/run"): Sly("a")},
            tolerations=[SlyToleration(Sly("k"), Sly("Exists"))],  # type: ignore[arg-type]
            service_account=Sly("root"),
        )
    )
    async with caller_of(as_is(given_answer)) as caller:
        decision = (await caller.ask(a_request())).decision
    assert isinstance(decision, Admit)
    changes = decision.changes
    assert repr(changes.labels) == "mappingproxy({'dexaflow.io/run': 'a'})"
    assert changes.tolerations == (Toleration("k", "Exists"),)
    assert {type(t) for t in (*changes.labels, *changes.labels.values(), changes.service_account)} == {str}
    assert type(changes.tolerations[0]) is Toleration
    async with caller_of(as_is(SlyHold())) as caller:
        assert repr((await caller.ask(a_request())).decision) == "Hold(reason='seen')"
    async with caller_of(as_is(SlyAdmit())) as caller:
        with contextlib.suppress(HookBroken):  # it may be either; it must be exactly one, of our own
            assert type((await caller.ask(a_request())).decision) in (Admit, Refuse)


# -- what they got


def forced_into(mapping: Mapping[str, str]) -> dict[str, str]:
    """Return the dict behind a proxy, as a comparison hands it to whatever is compared with."""
    found: list[Any] = []

    class Thief:
        def __eq__(self, other: object) -> bool:
            found.append(other)
            return True

        __hash__ = None  # type: ignore[assignment]

    _ = mapping == Thief()
    behind: dict[str, str] = found[0]
    assert isinstance(behind, dict)
    assert behind in gc.get_referents(mapping)
    return behind


async def test_empty_fields_of_a_request_are_its_own_too() -> None:
    """One dict shared by all that is empty would give every later attempt what one hook put there."""

    def forcing(request: Request) -> Decision:
        for mapping in (
            request.resources.requests,
            request.resources.limits,
            request.execution.node_selector,
            request.execution.labels,
            request.execution.annotations,
        ):
            forced_into(mapping)["planted"] = "here"
        return admit()

    bare = dataclasses.replace(a_request(), execution=Execution())
    async with caller_of(forcing) as caller:
        await caller.ask(bare)
    assert dict(bare.execution.labels) == {}
    assert dict(Execution().labels) == {}
    assert dict(Changes().labels) == {}


async def test_requests_that_a_hook_keeps_stay_what_they_were() -> None:
    kept: list[Request] = []

    def keeping(request: Request) -> Decision:
        kept.append(request)
        return admit()

    async with caller_of(keeping) as caller:
        for n in range(3):
            await caller.ask(a_request(uid=str(n)))
    assert [request.uid for request in kept] == ["0", "1", "2"]
    assert len({id(request.execution) for request in kept}) == 3


# -- what they start


async def test_threads_that_a_hook_starts_hold_up_no_call() -> None:
    stop = threading.Event()

    def starting(request: Request) -> Decision:
        for daemon in (True, False):
            threading.Thread(target=stop.wait, daemon=daemon).start()
        return admit()

    try:
        async with caller_of(starting) as caller:
            for _ in range(10):
                assert (await caller.ask(a_request())).decision == Admit()
    finally:
        stop.set()


async def test_tasks_that_an_async_hook_leaves_behind_are_cancelled_with_its_loop() -> None:
    ended = threading.Event()
    left: list[asyncio.Task[None]] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()

    async def starting(request: Request) -> Decision:
        left.append(asyncio.ensure_future(forever()))
        await asyncio.sleep(0)
        return admit()

    with warnings.catch_warnings():
        async with caller_of(starting) as caller:
            await caller.ask(a_request())
        assert await asyncio.to_thread(ended.wait, 10)
