"""Issue, "The DAG author": `retries` and `retry_delay`."""

from dexaflow.scheduling.retries import seconds_to_retry
from tests.scheduling.builders import a_task


def test_a_failed_try_is_followed_by_the_next_after_the_retry_delay() -> None:
    assert seconds_to_retry(a_task(retry_delay=90.0), 1, 3) == 90.0
    assert seconds_to_retry(a_task(retry_delay=90.0), 2, 3) == 90.0


def test_a_retry_without_delay_is_due_at_once() -> None:
    assert seconds_to_retry(a_task(retry_delay=0.0), 1, 2) == 0.0


def test_the_last_try_is_followed_by_none() -> None:
    assert seconds_to_retry(a_task(), 3, 3) is None
    assert seconds_to_retry(a_task(), 4, 3) is None  # the task was given fewer tries meanwhile
    assert seconds_to_retry(a_task(), 1, 1) is None
