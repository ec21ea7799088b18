"""`python -m tests.soak.virtual`: a thousand wait for a hook that recovers; ten thousand are held for an hour."""

import tempfile
import time
from pathlib import Path

import structlog

from tests.dispatch.test_load import held_for_four_rechecks, one_probes_and_the_others_follow


def main() -> None:
    """Print what was seen; fails with what was not as promised."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))  # errors alone: there are thousands
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        seconds = one_probes_and_the_others_follow(Path(folder), 1_000)
        print(f"1,000 let go within {seconds:g} s of virtual time, in {time.monotonic() - began:.0f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        shortest, longest = held_for_four_rechecks(Path(folder), 10_000, recheck=900.0)
        assert 900.0 <= shortest <= longest <= 990.0 + 30.0  # due at once, they take 64 turns at a time
        took = time.monotonic() - began
        print(f"10,000 held for an hour: {shortest:.0f} to {longest:.0f} s between two asks, in {took:.0f} s")


if __name__ == "__main__":
    main()
