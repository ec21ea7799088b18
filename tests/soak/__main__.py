"""`make soak`: an hour of hostile input for each part that reads text from outside, and the long races and loads.

`python -m tests.soak --help` says what can be chosen.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.fuzz.soak import Outcome, soak
from tests.fuzz.targets import TARGETS

API = "api"  # not one reader but all of them, behind a real server
FULL_MINUTES = 10.0  # from so many on, loads have their full size

# A module of this package each, and its arguments for so many minutes.
LOADS: Mapping[str, Callable[[float], list[str]]] = {
    "races": lambda minutes: [str(round(minutes * 60))],
    "held": lambda minutes: [str(round(min(minutes, FULL_MINUTES) * 60))] if minutes >= 2 else ["120", "1000"],
    "crowd": lambda minutes: ["10000" if minutes >= FULL_MINUTES else "1000"],
    "history": lambda minutes: ["100000" if minutes >= FULL_MINUTES else "2000"],
    "virtual": lambda minutes: [],
}


def main() -> int:
    """Run, print the summary, return the exit status: 1 when there was a finding."""
    parser = argparse.ArgumentParser(prog="make soak", description="Hours of hostile input, long races and loads.")
    everything = [*TARGETS, API, *LOADS]
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(everything)}; all when none is named")
    parser.add_argument("--minutes", type=float, default=60.0, help="of each part; 60 by default")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="fuzzers at a time")
    parser.add_argument("--findings", type=Path, default=Path(".soak"), help="folder of inputs that broke a promise")
    parser.add_argument("--keep", type=Path, help="folder for all inputs that reached new code")
    given = parser.parse_args()
    names = given.parts or everything
    unknown = [name for name in names if name not in everything]
    if unknown:
        parser.error(f"there is no part {unknown[0]}")
    found = 0
    print(
        f"{'part':<18} {'minutes':>8} {'executions':>12} {'a second':>9} {'edges':>7} {'inputs':>7}  finding",
        flush=True,
    )
    for outcome in _outcomes(names, given):
        rate = outcome.executions / outcome.seconds
        print(
            f"{outcome.name:<18} {outcome.seconds / 60:>8.1f} {outcome.executions:>12,} {rate:>9,.0f}"
            f" {outcome.edges:>7,} {outcome.inputs:>7,}  {outcome.finding or '-'}",
            flush=True,
        )
        if outcome.said:
            print("\n".join(f"    {line}" for line in outcome.said.splitlines()), flush=True)
        if outcome.finding is not None:
            found += 1
            if outcome.name in TARGETS:
                print(f"    again: .venv/bin/python -m tests.fuzz.replay {outcome.name} {outcome.finding}", flush=True)
    print(f"{len(names)} parts, {found} findings")
    return 1 if found else 0


def _outcomes(names: list[str], given: argparse.Namespace) -> Iterator[Outcome]:
    fuzzed = [name for name in names if name in TARGETS]
    yield from soak(fuzzed, given.minutes * 60, given.findings, jobs=given.jobs, keep=given.keep)
    if API in names:
        yield _api(given.minutes * 60, given.findings)
    for name in names:
        if name in LOADS:
            yield _load(name, LOADS[name](given.minutes), given.findings)


def _api(seconds: float, findings: Path) -> Outcome:
    """Ask server after server everything until the time is over, or an answer is not as documented."""
    from tests.fuzz.agents import ask_the_doors
    from tests.fuzz.world import ask_a_real_server, ask_by_its_own_program

    began, requests, said = time.monotonic(), 0, ""
    while not said and (not requests or time.monotonic() - began < seconds):
        with tempfile.TemporaryDirectory(prefix="dexaflow-soak-") as folder:
            examples = 2 if seconds < 60 else 40
            asked = [
                ask_a_real_server(Path(folder) / "people", examples),
                ask_by_its_own_program(Path(folder) / "program", examples),
                ask_the_doors(Path(folder) / "agents", examples),
            ]
        requests += sum(one.requests for one in asked)
        found = {key: text for one in asked for key, text in one.findings.items()}
        said = "\n\n".join(f"{label}: {kind}\n{text}" for (label, kind), text in found.items())
    finding = _saved(findings / "api-failed.txt", said) if said else None
    return Outcome(API, time.monotonic() - began, requests, 0, 0, finding, said)


def _load(name: str, arguments: list[str], findings: Path) -> Outcome:
    """Run one of the long races and loads; what it printed is its result."""
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", f"tests.soak.{name}", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    finding = _saved(findings / f"{name}-failed.txt", ended.stdout) if ended.returncode else None
    said = "\n".join(ended.stdout.splitlines()[-30:])
    return Outcome(name, time.monotonic() - began, 0, 0, 0, finding, said)


def _saved(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


if __name__ == "__main__":
    sys.exit(main())
