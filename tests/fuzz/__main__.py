"""`make soak`: an hour of each target; see `soak`. `python -m tests.fuzz --help` says what can be chosen."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.soak import Outcome, soak
from tests.fuzz.targets import TARGETS

API = "api"  # not one reader but all of them, behind a real server


def main() -> int:
    """Run, print the summary, return the exit status: 1 when there was a finding."""
    parser = argparse.ArgumentParser(prog="make soak", description="Fuzz what reads text from outside.")
    parser.add_argument("targets", nargs="*", help=f"which of {', '.join([*TARGETS, API])}; all when none is named")
    parser.add_argument("--minutes", type=float, default=60.0, help="of each target; 60 by default")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="targets at a time")
    parser.add_argument("--findings", type=Path, default=Path(".soak"), help="folder of inputs that broke a promise")
    parser.add_argument("--keep", type=Path, help="folder for all inputs that reached new code")
    given = parser.parse_args()
    names = given.targets or [*TARGETS, API]
    unknown = [name for name in names if name not in TARGETS and name != API]
    if unknown:
        parser.error(f"there is no target {unknown[0]}")
    found = 0
    print(f"{'target':<18} {'minutes':>8} {'executions':>12} {'a second':>9} {'edges':>7} {'inputs':>7}  finding")
    for outcome in _outcomes(names, given):
        rate = outcome.executions / outcome.seconds
        print(
            f"{outcome.name:<18} {outcome.seconds / 60:>8.1f} {outcome.executions:>12,} {rate:>9,.0f}"
            f" {outcome.edges:>7,} {outcome.inputs:>7,}  {outcome.finding or '-'}",
            flush=True,
        )
        if outcome.finding is not None:
            found += 1
            print("\n".join(f"    {line}" for line in outcome.said.splitlines()), flush=True)
            if outcome.name != API:
                print(f"    again: .venv/bin/python -m tests.fuzz.replay {outcome.name} {outcome.finding}", flush=True)
    print(f"{len(names)} targets, {found} findings")
    return 1 if found else 0


def _outcomes(names: list[str], given: argparse.Namespace) -> Iterator[Outcome]:
    yield from soak(
        [name for name in names if name != API], given.minutes * 60, given.findings, jobs=given.jobs, keep=given.keep
    )
    if API in names:
        yield _api(given.minutes * 60, given.findings)


def _api(seconds: float, findings: Path) -> Outcome:
    """Ask server after server everything until the time is over, or an answer is not as documented."""
    from tests.fuzz.world import ask_a_real_server

    began, requests, said = time.monotonic(), 0, ""
    while not said and (not requests or time.monotonic() - began < seconds):
        with tempfile.TemporaryDirectory(prefix="dexaflow-soak-") as folder:
            asked = ask_a_real_server(Path(folder), examples=2 if seconds < 60 else 40)
        requests += asked.requests
        said = "\n\n".join(f"{label}: {kind}\n{text}" for (label, kind), text in asked.findings.items())
    finding = None
    if said:
        finding = findings / "api-failed.txt"
        findings.mkdir(parents=True, exist_ok=True)
        finding.write_text(said)
    return Outcome(API, time.monotonic() - began, requests, 0, 0, finding, said)


if __name__ == "__main__":
    sys.exit(main())
