"""Our transport alone, against Go's `net/http` doing the same."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.asking import WARM_UP, body
from bench.endpoint import TOKEN, Endpoint, endpoint, pinned
from bench.gate import asking
from bench.rounds import ROOT, fresh, rounds
from bench.scale import Scale
from bench.table import Line, line, not_measured

__all__ = ["against_go"]

FLIGHT = 16
_WHAT = "transport alone, CPU, against Go's net/http"


def _go() -> str | None:
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def _build(go: str, folder: Path) -> Path:
    environ = os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    environ.setdefault("GOCACHE", str(ROOT / "build" / ".bench" / "go"))
    command = [go, "build", "-o", str(folder / "goclient"), "."]
    subprocess.run(command, cwd=ROOT / "bench" / "goclient", env=environ, check=True, capture_output=True)
    return folder / "goclient"


def against_go(scale: Scale) -> list[Line]:
    """Ours on uvloop, as in the server, and on asyncio's own loop, for whoever uses the gate as a library."""
    go = _go()
    if go is None:
        return [not_measured(_WHAT, "Go is not installed", in_flight=FLIGHT)]
    sent = asyncio.run(body())
    with tempfile.TemporaryDirectory() as name, endpoint(Path(name)) as asked:
        program = _build(go, Path(name))
        found = rounds(("go", "uvloop", "asyncio"), lambda side: _measure(side, program, asked, sent, scale),
                       scale.repeats)  # fmt: skip
    return [
        line(f"{_WHAT}, ours on uvloop", [r["uvloop"] / r["go"] for r in found], unit="x", in_flight=FLIGHT,
             at_most=1.0),
        line("  the same, ours on asyncio's own loop", [r["asyncio"] / r["go"] for r in found], unit="x",
             in_flight=FLIGHT),
        line("  one POST of Go's net/http", [r["go"] for r in found], unit="us", in_flight=FLIGHT),
        line("  one POST of our transport", [r["uvloop"] for r in found], unit="us", in_flight=FLIGHT),
    ]  # fmt: skip


def _measure(side: str, program: Path, asked: Endpoint, sent: bytes, scale: Scale) -> float:
    if side != "go":
        return asking("transport", asked, loop=side, in_flight=FLIGHT, questions=scale.questions)
    questions = scale.questions
    command = [str(program), asked.url, str(asked.ca_file), TOKEN, str(FLIGHT), str(questions),
               str(min(WARM_UP, questions))]  # fmt: skip
    with pinned(1):
        return fresh(command, stdin=sent)["us"]
