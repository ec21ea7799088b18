"""Ids that are drawn."""

import os
import uuid

from hypothesis import given
from hypothesis import strategies as st

from dexaflow.base.ids import RandomIds, TimeOrderedIds


def test_random_ids_are_uuids_of_version_4_each_new() -> None:
    draw = RandomIds(os.urandom)
    drawn = [draw() for _ in range(1_000)]

    assert len(set(drawn)) == 1_000
    for text in drawn:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)


def test_random_ids_come_from_the_bytes_given_alone() -> None:
    first, second = RandomIds(bytes), RandomIds(bytes)
    assert [first(), first()] == [second(), second()] == ["00000000-0000-4000-8000-000000000000"] * 2


def test_time_ordered_ids_are_uuids_of_version_7_that_say_when() -> None:
    drawn = uuid.UUID(TimeOrderedIds(lambda: 0x0123_4567_89AB, os.urandom)())

    assert (drawn.version, drawn.variant) == (7, uuid.RFC_4122)
    assert drawn.int >> 80 == 0x0123_4567_89AB


@given(st.lists(st.integers(0, 2**47), min_size=1, max_size=20), st.integers(1, 5_000))
def test_each_time_ordered_id_sorts_behind_the_one_before_it(times: list[int], more: int) -> None:
    clock = iter([*times, *[times[-1]] * more])
    draw = TimeOrderedIds(lambda: next(clock), os.urandom)
    drawn = [draw() for _ in range(len(times) + more)]

    assert sorted(set(drawn)) == drawn
    assert all(uuid.UUID(text).version == 7 for text in drawn)
