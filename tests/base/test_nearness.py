"""Suggestions: only for what is really close."""

import pytest

from dexaflow.base.nearness import nearest

KEYS = ("url", "ca_file", "token_file", "timeout", "fail_open", "retries", "retry_delay", "schedule", "hooks", "env")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("uri", "url"), ("tiemout", "timeout"), ("failOpen", "fail_open"), ("fail-opne", "fail_open"),
        ("retrys", "retries"), ("retry", "retries"), ("schedule_interval", "schedule"), ("hook", "hooks"),
        ("tokenfile", "token_file"), ("cafile", "ca_file"), ("environment", "env"),
        ("colour", None), ("timezone", None), ("foo", None), ("", None), ("u", None), ("x" * 10_000, None),
    ],
)  # fmt: skip
def test_a_word_is_taken_for_another_only_when_it_is_close(word: str, meant: str | None) -> None:
    assert nearest(word, KEYS) == meant
