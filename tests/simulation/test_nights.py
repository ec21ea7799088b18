"""Nights from seeds: every promise kept whatever befalls the control plane. `make simulate` runs more of them."""

from collections import Counter

import pytest
from simulation.running import many, told

SEEDS = 300


@pytest.mark.timeout(900)
def test_no_night_breaks_a_promise() -> None:
    """And together they have seen everything that a night can bring."""
    broken, counts = [], Counter[str]()
    for outcome in many(range(1, SEEDS + 1), 2):
        counts.update(outcome.counts)
        if outcome.violations:
            broken.append(told(outcome))

    assert not broken, "\n\n".join(broken[:3])
    for what in (
        "crashes", "second plane", "clock step", "full disk", "stall", "kill agent", "cancel", "clear", "pause",
        "stolen tokens", "breakers opened", "breakers closed", "dispatch_failed", "agents turned away",
        "outcome admit", "outcome hold", "outcome refuse",
        "outcome change_refused", "outcome error", "outcome breaker_open", "outcome fail_open",
        "doors: 200", "doors: 401", "doors: 403", "doors: 410",
    ):  # fmt: skip
        assert counts[what] > 0, what
