"""Work in steps: all of it is done, others get their turn, and one work at a time is done."""

import asyncio

import pytest

from dexaflow.base.in_steps import Steps, Turns, at_once


def counting(to: int, done: list[str], name: str) -> Steps[int]:
    for _ in range(to):
        done.append(name)
        yield
    return to


def failing() -> Steps[None]:
    yield
    raise ValueError("half way")


def test_at_once_does_all_of_it() -> None:
    done: list[str] = []

    assert at_once(counting(5, done, "a")) == 5
    assert done == ["a"] * 5
    with pytest.raises(ValueError, match="half way"):
        at_once(failing())


async def test_between_two_steps_the_loop_serves_others() -> None:
    done: list[str] = []

    async def other() -> None:
        for _ in range(5):
            done.append("other")
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    assert await Turns().do(counting(5, done, "work")) == 5
    await beside

    assert done == ["work", "other"] * 5


async def test_however_many_there_are_one_work_is_done_at_a_time() -> None:
    done: list[str] = []
    turns = Turns()

    await asyncio.gather(*(turns.do(counting(3, done, name)) for name in "abc"))

    assert done == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


async def test_work_that_fails_or_is_given_up_leaves_the_turn_to_the_next() -> None:
    turns = Turns()
    given_up = asyncio.create_task(turns.do(counting(1_000_000, [], "a")))
    await asyncio.sleep(0)
    given_up.cancel()

    with pytest.raises(ValueError, match="half way"):
        await turns.do(failing())
    assert await turns.do(counting(2, [], "b")) == 2
    assert given_up.cancelled()
