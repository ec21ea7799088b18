"""More attempts due at once than can be asked in a second, on a real server (R6.2, R7.1)."""

from pathlib import Path

from tests.system.crowd import crowd


def test_a_thousand_due_at_once_are_paced_none_fails_and_another_tenant_goes_on(tmp_path: Path) -> None:
    """Each question takes 50 ms; the last waits longer than a question may take, and `fail_open` lets nobody by."""
    seen = crowd(tmp_path, 1_000, takes=0.05)
    assert seen.decided > 1_000 / 16 * 0.05 > 2.0  # the timeout that is set there
    assert seen.other_tenant_again < seen.asked_again  # it was not the last in the line
    assert seen.memory_mb < 300
