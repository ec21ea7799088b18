"""Nights from seeds: every promise kept whatever befalls the control plane. `make simulate` runs more of them."""

import pytest
from simulation.running import many, told

SEEDS = 100


@pytest.mark.timeout(600)
def test_no_night_breaks_a_promise() -> None:
    broken = [told(outcome) for outcome in many(range(1, SEEDS + 1), 2) if outcome.violations]

    assert not broken, "\n\n".join(broken[:3])
