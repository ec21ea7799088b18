"""Hooks in process: foreign code that can hurt nobody (R8)."""

import asyncio
import contextlib
import dataclasses
import functools
import gc
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
import structlog

from dexaflow.admission.decisions import Admit, Changes, Decision, Hold, Refuse, Request, admit, hold, refuse
from dexaflow.admission.ports import Answered
from dexaflow.base.errors import ConfigError, HookBroken
from dexaflow.hooks.inprocess import MAX_ABANDONED, MAX_AT_ONCE, InProcessCaller
from tests.hooks.asking import LONG, SHORT
from tests.hooks.building import a_request
from tests.hooks.calling import Kind, Named, both, caller_of, in_async


async def broken(caller: InProcessCaller) -> HookBroken:
    with pytest.raises(HookBroken) as caught:
        await caller.ask(a_request())
    assert str(caught.value) in ("the request failed", "the request timed out")
    return caught.value


# -- asking


@both
@pytest.mark.parametrize("answer", [admit(), admit(labels={"a": "b"}), hold("later"), hold(), refuse("never")])
async def test_hook_decides(kind: Kind, answer: Decision) -> None:
    async with caller_of(kind(lambda request: answer)) as caller:
        answered = await caller.ask(a_request())
        assert answered.decision == answer
        assert answered.seconds > 0


class Calling:
    name = "calling"

    async def __call__(self, request: Request) -> Decision:
        await asyncio.sleep(0)
        return hold(threading.current_thread().name)


class AsyncReviewing:
    name = "reviewing"

    async def review(self, request: Request) -> Decision:
        await asyncio.sleep(0)
        return hold(threading.current_thread().name)


async def free_standing(request: Request) -> Decision:
    await asyncio.sleep(0)
    return hold(threading.current_thread().name)


def handing_out(request: Request) -> Awaitable[Decision]:
    """Plain by its looks, async by what it returns."""
    return free_standing(request)


@pytest.mark.parametrize(
    "hook",
    [
        Calling(),
        AsyncReviewing(),
        free_standing,
        AsyncReviewing().review,
        functools.partial(free_standing),
        handing_out,
    ],
)
async def test_async_hook_of_every_shape_runs_on_an_event_loop_of_its_own(hook: Any) -> None:
    caller = InProcessCaller(hook, timeout=LONG)
    assert (await caller.ask(a_request())).decision == Hold("dexaflow-hook-loop")
    await caller.close()


async def test_plain_hook_runs_in_a_thread_of_its_own() -> None:
    async with caller_of(lambda request: hold(threading.current_thread().name)) as caller:
        assert (await caller.ask(a_request())).decision == Hold("dexaflow-hook")


async def test_async_hooks_calls_share_one_event_loop() -> None:
    """So that a lock or a client that the hook keeps works as its author expects."""
    lock, inside, most = asyncio.Lock(), 0, 0
    loops = set()

    async def hook(request: Request) -> Decision:
        nonlocal inside, most
        async with lock:
            loops.add(asyncio.get_running_loop())
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1
        return admit()

    async with caller_of(hook) as caller:
        await asyncio.gather(*[caller.ask(a_request()) for _ in range(30)])
    assert most == 1
    assert len(loops) == 1


@both
async def test_many_calls_run_at_once(kind: Kind) -> None:
    """As many as the webhook has connections; none of them waits for another."""
    everybody = threading.Barrier(MAX_AT_ONCE)

    def plain(request: Request) -> Decision:
        everybody.wait(10)
        return admit()

    gathered = 0

    async def together(request: Request) -> Decision:
        nonlocal gathered
        gathered += 1
        while gathered < MAX_AT_ONCE:
            await asyncio.sleep(0.001)
        return admit()

    async with caller_of(together if kind is in_async else plain) as caller:
        answers = await asyncio.gather(*[caller.ask(a_request()) for _ in range(MAX_AT_ONCE)])
    assert [a.decision for a in answers] == [Admit()] * MAX_AT_ONCE


@both
async def test_waiting_for_a_turn_is_no_failure(kind: Kind) -> None:
    """R7.1's pacing: the clock of a call starts with the call."""

    async def slow_async(request: Request) -> Decision:
        await asyncio.sleep(SHORT / 2)
        return admit()

    def slow(request: Request) -> Decision:
        time.sleep(SHORT / 2)
        return admit()

    async with caller_of(slow_async if kind is in_async else slow, SHORT * 1.5) as caller:
        answers = await asyncio.gather(*[caller.ask(a_request()) for _ in range(MAX_AT_ONCE * 4)])
    assert len(answers) == MAX_AT_ONCE * 4


@both
async def test_request_carries_the_deadline(kind: Kind) -> None:
    """R8.1: on `time.monotonic()`'s clock."""
    async with caller_of(kind(lambda request: hold(str(request.deadline - time.monotonic())))) as caller:
        answer = (await caller.ask(a_request())).decision
        assert isinstance(answer, Hold)
        assert 0 < float(answer.reason) <= LONG


MUTATIONS: dict[str, Callable[[Any], object]] = {
    "field": lambda r: setattr(r, "uid", "x"),
    "label": lambda r: r.execution.labels.__setitem__("a", "b"),
    "selector": lambda r: r.execution.node_selector.update(a="b"),
    "limits": lambda r: r.resources.limits.clear(),
    "execution": lambda r: setattr(r.execution, "service_account", "root"),
    "toleration": lambda r: setattr(r.execution.tolerations[0], "key", "x"),
    "new field": lambda r: setattr(r, "brand_new", 1),
    "deletion": lambda r: delattr(r, "uid"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
async def test_request_cannot_be_changed(mutation: str) -> None:
    """The attempt fails inside the hook (R8.1)."""
    async with caller_of(MUTATIONS[mutation]) as caller:
        assert (await broken(caller)).cause.split(":")[0] in (
            "FrozenInstanceError",
            "TypeError",
            "AttributeError",
        )


async def test_hook_that_forces_its_way_in_changes_its_own_copy_alone() -> None:
    labels = {"team": "data"}
    request = a_request()
    request = dataclasses.replace(request, execution=dataclasses.replace(request.execution, labels=labels))

    def forcing(given: Request) -> Decision:
        object.__setattr__(given, "uid", "forged")
        object.__setattr__(given.execution, "service_account", "root")
        object.__setattr__(given.execution.tolerations[0], "key", "forged")
        for inner in gc.get_referents(given.execution.labels):
            inner["team"] = "forged"
        return admit()

    before = repr(request)
    async with caller_of(forcing) as caller:
        await caller.ask(request)
    assert repr(request) == before
    assert labels == {"team": "data"}


# -- broken hooks


async def test_what_a_hook_raised_goes_to_the_log_without_the_user_info_of_a_url() -> None:
    """Clients of databases say with which one they failed."""
    caller = InProcessCaller(raising(OSError("no postgres://jo:s3cret@db/budgets")), timeout=LONG)
    try:
        failure = await broken(caller)
    finally:
        await caller.close()
    assert failure.cause.startswith("OSError: no postgres://...@db/budgets (")


def raising(error: BaseException) -> Callable[[Request], Decision]:
    def hook(request: Request) -> Decision:
        raise error

    return hook


class Unprintable(Exception):  # noqa: N818 - named for what it does
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@both
@pytest.mark.parametrize(
    "error",
    [
        ValueError("a\nb"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(),
        StopAsyncIteration(),
        asyncio.CancelledError(),
        TimeoutError(),
        MemoryError(),
        RecursionError(),
        HookBroken("forged", ambiguous=True, timed_out=True),
        Unprintable(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_hook_raises_is_its_failure(kind: Kind, error: BaseException) -> None:
    """R8.3; and the next call works as if nothing had been."""
    hook = kind(lambda request: raising(error)(request) if request.task_id == "extract" else admit())
    async with caller_of(hook) as caller:
        failure = await broken(caller)
        assert not failure.timed_out
        assert not failure.ambiguous
        # An async function cannot raise StopIteration: Python makes a RuntimeError of it.
        assert type(error).__name__ in failure.cause or "RuntimeError" in failure.cause
        assert (await caller.ask(a_request(task_id="other"))).decision == Admit()


class Text(str):
    """Text with opinions."""


class Lazy(Mapping[str, str]):
    """A mapping of the hook's own making."""

    def __init__(self, value: object = "v") -> None:
        self._value = value

    def __getitem__(self, key: str) -> Any:
        if callable(self._value):
            self._value()
        return self._value

    def __iter__(self) -> Iterator[str]:
        return iter(["k"])

    def __len__(self) -> int:
        return 1


def spoiled(**fields: Any) -> Admit:
    """An admit built by hand, with anything in it. Any: the wrong types are the point."""
    return Admit(Changes(**fields))


@both
@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        "admit",
        {"decision": "admit"},
        Admit,
        admit,
        NotImplemented,
        Changes(),
        Admit(None),  # type: ignore[arg-type]
        Admit({"labels": {}}),  # type: ignore[arg-type]
        Hold(None),  # type: ignore[arg-type]
        Hold(b"x"),  # type: ignore[arg-type]
        Refuse(3),  # type: ignore[arg-type]
        spoiled(labels={"a": 1}),
        spoiled(labels={1: "a"}),
        spoiled(labels=["a"]),
        spoiled(labels=Lazy(7)),
        spoiled(annotations={"a": None}),
        spoiled(tolerations=["a"]),
        spoiled(tolerations=[{"keys": "a"}]),
        spoiled(tolerations=7),
        spoiled(service_account=7),
        spoiled(priority_class_name=object()),
    ],
    ids=lambda answer: type(answer).__name__,
)
async def test_what_is_no_decision_is_a_failure(kind: Kind, answer: object) -> None:
    """R7.1: also one that only looks like a decision."""
    async with caller_of(kind(lambda request: answer)) as caller:
        assert not (await broken(caller)).timed_out


async def test_answer_is_the_callers_own_once_it_has_come() -> None:
    """Whatever the hook keeps of it, and of whatever classes it was made."""
    kept = {Text("team"): Text("data")}

    async with caller_of(lambda request: spoiled(labels=kept, node_selector=Lazy())) as caller:
        answer = (await caller.ask(a_request())).decision
        kept[Text("team")] = Text("changed")
        assert isinstance(answer, Admit)
        assert answer.changes.labels == {"team": "data"}
        assert {type(key) for key in answer.changes.labels} == {str}
        assert answer.changes.node_selector == {"k": "v"}


async def test_answer_that_stalls_when_it_is_looked_at_stalls_its_own_thread() -> None:
    release = threading.Event()
    async with caller_of(lambda request: spoiled(labels=Lazy(release.wait)), SHORT) as caller:
        assert (await broken(caller)).timed_out
        assert caller.abandoned == 1
        release.set()


# -- hooks that do not return


def spinning(stop: threading.Event) -> Callable[[Request], Decision]:
    """Never lets go of the interpreter."""

    def hook(request: Request) -> Decision:
        while not stop.is_set():
            pass
        return admit()

    return hook


def sleeping(stop: threading.Event) -> Callable[[Request], Decision]:
    """Waits outside the interpreter."""

    def hook(request: Request) -> Decision:
        stop.wait()
        return admit()

    return hook


def stubborn(stop: threading.Event) -> Callable[[Request], Awaitable[Decision]]:
    """Ignores that it is cancelled."""

    async def hook(request: Request) -> Decision:
        while not stop.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return admit()

    return hook


def blocking(stop: threading.Event) -> Callable[[Request], Awaitable[Decision]]:
    """Async by name, and blocks its event loop."""
    return in_async(sleeping(stop))


def spinning_async(stop: threading.Event) -> Callable[[Request], Awaitable[Decision]]:
    return in_async(spinning(stop))


never_returning = pytest.mark.parametrize("hook_of", [spinning, sleeping, stubborn, blocking, spinning_async])
HookOf = Callable[[threading.Event], Any]


@never_returning
async def test_asker_stops_waiting_at_the_deadline_whatever_the_hook_does(hook_of: HookOf) -> None:
    stop = threading.Event()
    try:
        async with caller_of(hook_of(stop), SHORT) as caller:
            began = time.monotonic()
            failure = await broken(caller)
            took = time.monotonic() - began
        assert failure.timed_out
        assert str(failure) == "the request timed out"
        assert SHORT - 0.001 <= took < SHORT + 5  # the second bound only tells "at it" from "never"
    finally:
        stop.set()


@never_returning
async def test_eighth_call_that_does_not_return_breaks_the_hook_until_one_returns(hook_of: HookOf) -> None:
    """R8.3: counted, logged, and then not called at all."""
    stop, called = threading.Event(), []
    hook = hook_of(stop)

    def counted(request: Request) -> Any:
        called.append(request.uid)
        return hook(request)

    async def counted_async(request: Request) -> Any:
        called.append(request.uid)
        return await hook(request)

    is_async = asyncio.iscoroutinefunction(hook)
    try:
        async with caller_of(counted_async if is_async else counted, SHORT) as caller:
            with structlog.testing.capture_logs() as logs:
                while caller.abandoned < MAX_ABANDONED:
                    before = caller.abandoned, len(called)
                    assert (await broken(caller)).timed_out
                    # On a loaded machine one may run out of time before its thread does anything: that is no call.
                    assert (caller.abandoned, len(called)) in (before, (before[0] + 1, before[1] + 1))
                failure = await broken(caller)
                assert not failure.timed_out
                assert "8 calls have not returned" in failure.cause
                assert failure.seconds == 0
                assert len(called) == MAX_ABANDONED
                await asyncio.sleep(0.15)
            assert len([line for line in logs if line["event"] == "hook_call_does_not_return"]) == MAX_ABANDONED
            stop.set()
            while caller.abandoned == MAX_ABANDONED:
                await asyncio.sleep(0.01)
            answered: Answered | None = None
            while answered is None:
                with contextlib.suppress(HookBroken):
                    answered = await caller.ask(a_request())
            assert answered.decision == Admit()
    finally:
        stop.set()


@never_returning
async def test_call_that_does_not_return_blocks_no_other(hook_of: HookOf) -> None:
    """Neither one of the same hook that comes a moment later, nor one of another hook."""
    stop = threading.Event()
    bad = hook_of(stop)

    def plain(request: Request) -> Any:
        return bad(request) if request.task_id == "bad" else admit()

    async def asynchronous(request: Request) -> Any:
        return await bad(request) if request.task_id == "bad" else admit()

    is_async = asyncio.iscoroutinefunction(bad)
    try:
        async with caller_of(asynchronous if is_async else plain, 1.0) as caller:
            async with caller_of(lambda request: refuse("other")) as other:
                stuck = asyncio.create_task(caller.ask(a_request(task_id="bad")))
                await asyncio.sleep(0.05)
                answers = await asyncio.gather(*[caller.ask(a_request()) for _ in range(10)])
                assert [a.decision for a in answers] == [Admit()] * 10
                assert (await other.ask(a_request())).decision == Refuse("other")
                with pytest.raises(HookBroken):
                    await stuck
    finally:
        stop.set()


async def test_async_hook_is_cancelled_at_its_deadline() -> None:
    """And is out of it then: nothing is left to count."""
    ended = threading.Event()

    async def hook(request: Request) -> Decision:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        return admit()

    async with caller_of(hook, SHORT) as caller:
        assert (await broken(caller)).timed_out
        assert ended.wait(10)
        while caller.abandoned:
            await asyncio.sleep(0.001)
        assert (await broken(caller)).timed_out


async def test_cancelled_question_cancels_an_async_hook_and_counts_for_nothing() -> None:
    began, ended = threading.Event(), threading.Event()

    async def hook(request: Request) -> Decision:
        if request.task_id != "slow":
            return admit()
        began.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        return admit()

    async with caller_of(hook) as caller:
        ask = asyncio.create_task(caller.ask(a_request(task_id="slow")))
        while not began.is_set():
            await asyncio.sleep(0.001)
        ask.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ask
        assert ended.wait(10)
        assert (await caller.ask(a_request())).decision == Admit()
        assert caller.abandoned == 0


async def test_cancelled_question_to_a_plain_hook_counts_once_its_deadline_has_passed() -> None:
    stop = threading.Event()
    async with caller_of(sleeping(stop), SHORT) as caller:
        ask = asyncio.create_task(caller.ask(a_request()))
        await asyncio.sleep(0.01)
        ask.cancel()
        await asyncio.gather(ask, return_exceptions=True)
        assert caller.abandoned == 0
        await asyncio.sleep(SHORT * 1.5)
        assert caller.abandoned == 1
        stop.set()
        while caller.abandoned:
            await asyncio.sleep(0.001)


async def test_cancelled_while_waiting_for_a_turn_is_never_called() -> None:
    stop, called = threading.Event(), []

    def hook(request: Request) -> Decision:
        called.append(request.uid)
        stop.wait()
        return admit()

    async with caller_of(hook) as caller:
        asks = [asyncio.create_task(caller.ask(a_request(uid=str(n)))) for n in range(MAX_AT_ONCE + 2)]
        await asyncio.sleep(0.05)
        asks[-2].cancel()
        await asyncio.gather(asks[-2], return_exceptions=True)
        stop.set()
        await asyncio.gather(*asks[:-2], asks[-1])
    assert sorted(called, key=int) == [str(n) for n in range(MAX_AT_ONCE)] + [str(MAX_AT_ONCE + 1)]


async def test_hook_that_stops_its_event_loop_or_exits_in_a_task_of_its_own_is_called_again() -> None:
    async def exits() -> None:
        raise SystemExit

    async def hook(request: Request) -> Decision:
        if request.task_id == "stop":
            asyncio.get_running_loop().stop()
        if request.task_id == "exit":
            hook.task = asyncio.ensure_future(exits())  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
            hook.task.exception()  # type: ignore[attr-defined]
        return admit()

    async with caller_of(hook) as caller:
        for task_id in ("stop", "exit", "other"):
            assert (await caller.ask(a_request(task_id=task_id))).decision == Admit()


@pytest.mark.parametrize("hook", ["plain", "blocking", "stubborn", "to_thread", "spinning"])
def test_hook_that_does_not_return_does_not_hold_up_the_shutdown(hook: str) -> None:
    """R8.3: the interpreter ends though calls are still out, in threads that asyncio would wait for too."""
    program = textwrap.dedent(f"""
        import asyncio, threading, time
        from dexaflow.base.errors import HookBroken
        from dexaflow.hooks.inprocess import InProcessCaller
        from tests.hooks.building import a_request

        def plain(request):
            threading.Event().wait()
        async def blocking(request):
            threading.Event().wait()
        async def stubborn(request):
            while True:
                try: await asyncio.sleep(1000)
                except asyncio.CancelledError: pass
        async def to_thread(request):
            await asyncio.to_thread(threading.Event().wait)
        def spinning(request):
            while True: pass

        async def main():
            caller = InProcessCaller({hook}, timeout=0.1)
            for _ in range(3):
                try: await caller.ask(a_request())
                except HookBroken as error: assert error.timed_out
            await caller.close()
            print("done")
        asyncio.run(main())
    """)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "done\n" in ended.stdout
    assert ended.stderr == ""


@pytest.mark.parametrize("hook", [lambda request: admit(), Named, 7])
def test_hook_without_a_name_or_that_is_none_is_an_error_at_boot(hook: Any) -> None:
    with pytest.raises(ConfigError):
        InProcessCaller(hook, timeout=1.0)
