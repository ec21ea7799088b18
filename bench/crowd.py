"""A thousand attempts at once on a cold pool: all are decided, however long the endpoint takes for each.

`python -m bench.crowd URL CA_FILE ATTEMPTS` is the asking process. It asks about all of them at once, says what came of
it, waits for a line, and asks about as many again on the connections that it has by then.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.asking import Counting, checked, gate_of, in_loop
from bench.endpoint import Endpoint, endpoint, pin
from bench.rounds import ROOT
from bench.scale import Scale
from bench.table import Line, line
from dexaflow.admission.results import Admitted
from dexaflow.hooks.webhook import WebhookCaller

__all__ = ["at_once", "main"]

TIMEOUT = 0.5  # the default: the last of a thousand waits six times as long for its turn, at 50 ms each
MOST_CONNECTIONS = 16
ENDPOINTS = {"instant endpoint": 0.0, "endpoint of 50 ms": 0.05}


def _told(attempts: int, asked: Endpoint) -> tuple[dict[str, Any], int, int]:
    """Return what the process says of its first wave, and from the endpoint: most open, opened by the second wave."""
    command = [sys.executable, "-m", "bench.crowd", asked.url, str(asked.ca_file), str(attempts)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        before = asked.counts()
        process.stdin.write("again\n")
        process.stdin.flush()
        second = json.loads(process.stdout.readline())
        after = asked.counts()
    first["failures"] += second["failures"]
    first["decided"] = min(first["decided"], second["decided"])
    return first, after.most_open, after.opened - before.opened


def at_once(scale: Scale) -> list[Line]:
    """An endpoint that answers at once, and one that takes 50 ms for each answer."""
    lines: list[Line] = []
    many = scale.crowd
    for name, takes in ENDPOINTS.items():
        decided, failures, most, opened, seconds = [], [], [], [], []
        for _ in range(scale.repeats):
            with tempfile.TemporaryDirectory() as folder, endpoint(Path(folder), takes=takes) as asked:
                told, most_open, opened_again = _told(many, asked)
            decided.append(told["decided"])
            failures.append(told["failures"])
            seconds.append(told["seconds"])
            most.append(most_open)
            opened.append(opened_again)
        lines += [
            line(f"{many:,} at once on a cold pool, {name}: decided", [min(decided)], in_flight=many,
                 at_least=many),
            line(f"  failures counted, {name}", [max(failures)], in_flight=many, at_most=0),
            line(f"  connections open at most, {name}", [max(most)], in_flight=many, at_most=MOST_CONNECTIONS),
            line(f"  opened by {many:,} more after them, {name}", [max(opened)], in_flight=many, at_most=0),
            line(f"  until the last is decided, {name}", seconds, unit="s", in_flight=many),
        ]  # fmt: skip
    return lines


async def _run(url: str, ca_file: Path, attempts: int) -> None:
    counting = Counting()
    async with WebhookCaller(
        url, timeout=TIMEOUT, ca_file=ca_file, token_file=ca_file.with_name("token")
    ) as caller:  # fmt: skip
        gate = gate_of([caller], counting)
        for _ in range(2):
            counting.failures = 0
            began = time.perf_counter()
            verdicts = await asyncio.gather(*(gate.review(checked()) for _ in range(attempts)))
            took = time.perf_counter() - began
            decided = sum(isinstance(verdict, Admitted) for verdict in verdicts)
            print(json.dumps({"decided": decided, "failures": counting.failures, "seconds": took}), flush=True)
            await asyncio.to_thread(sys.stdin.readline)


def main(arguments: Sequence[str]) -> None:
    """Ask twice about so many at once."""
    url, ca_file, attempts = arguments
    pin(1)
    in_loop("uvloop", _run(url, Path(ca_file), int(attempts)))


if __name__ == "__main__":
    main(sys.argv[1:])
