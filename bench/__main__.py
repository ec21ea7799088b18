"""Measures everything, or what is named: `python -m bench [NAME ...]`, or `make bench ONLY=NAME,NAME`."""

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import airflow, crowd, gate, held, history, lite, record, stalls, transport
from bench.scale import FULL, TINY, Scale
from bench.table import Line, table

__all__ = ["MEASUREMENTS", "main"]

MEASUREMENTS: dict[str, Callable[[Scale], list[Line]]] = {
    "gate": gate.at_once,
    "gate-alone": gate.one_by_one,
    "breaker": gate.breaker_open,
    "transport": transport.against_go,
    "record": record.in_batches,
    "stalls": stalls.each,
    "crowd": crowd.at_once,
    "held": held.many,
    "history": history.against_an_empty_database,
    "lite": lite.end_to_end,
    "airflow": airflow.against_lite,
    "downstream": lite.downstream,
    "idle": lite.idle,
}


def machine() -> str:
    """Return what this was measured on."""
    try:
        rows = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        rows = []
    model = next((row.partition(":")[2].strip() for row in rows if row.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}"


def main(arguments: Sequence[str]) -> int:
    """Measure and print. Returns 1 where a line falls short by more than a fifth, with `--check` or `CHECK=1`."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure what Dexaflow costs.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; all of them without one"
    )
    parser.add_argument("--tiny", action="store_true", help="only see that the measurements run; the figures are none")
    parser.add_argument(
        "--check", action="store_true", default=os.environ.get("CHECK") == "1", help="fail where a line falls short"
    )
    given = parser.parse_args(arguments)
    names = [name for given_name in given.names for name in given_name.split(",") if name]
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        parser.error(f"there is no measurement {', '.join(unknown)}; choose from {', '.join(MEASUREMENTS)}")
    lines: list[Line] = []
    for name in names or MEASUREMENTS:
        began = time.monotonic()
        lines += MEASUREMENTS[name](TINY if given.tiny else FULL)
        print(f"{name}: measured in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(lines))
    load = os.getloadavg()
    print(f"\n{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {machine()}, load {load[0]:.1f} at the end", flush=True)
    if load[0] > 1.5 * (os.cpu_count() or 1):
        print("the machine is busy: trust ratios and CPU, not attempts a second")
    short = [found.name.strip() for found in lines if found.falls_short]
    if given.check and short:
        print(f"more than a fifth short: {'; '.join(short)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
