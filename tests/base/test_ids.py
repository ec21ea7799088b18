"""Ids that are drawn."""

import os
import uuid

from dexaflow.base.ids import RandomIds


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
