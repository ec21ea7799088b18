"""What one decision costs, without the database: the gate, its transport, its hooks and its breaker."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.asking import TOKEN
from bench.endpoint import Address, endpoint
from bench.scale import Scale
from bench.table import Line, line

__all__ = ["at_once", "breaker_open", "one_by_one"]

ROOT = Path(__file__).parents[1]


def _cpu(side: str, address: Address, in_flight: int, questions: int) -> float:
    """Return the microseconds of CPU of one question, measured in a fresh process."""
    done = subprocess.run(
        [
            sys.executable, "-m", "bench.asking", side, address.url, str(address.ca_file), str(in_flight),
            str(questions),
        ],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{side} ended with {done.returncode}: {done.stderr[-2000:]}")
    return float(done.stdout)


def _rounds(sides: Sequence[str], in_flight: int, scale: Scale) -> list[dict[str, float]]:
    """Return each side's figure by repeat: A B B A, so that what drifts meanwhile falls on both alike."""
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name, endpoint(Path(name)) as address:
        (Path(name) / "token").write_text(TOKEN)
        for _ in range(scale.repeats):
            order = [*sides, *reversed(sides)]
            figures = [(side, _cpu(side, address, in_flight, scale.questions)) for side in order]
            rounds.append({side: sum(f for s, f in figures if s == side) / 2 for side in sides})
    return rounds


def at_once(scale: Scale) -> list[Line]:
    """Sixteen questions in flight."""
    rounds = _rounds(("aiohttp", "gate", "gate-checks", "transport", "gate+async", "gate+plain"), 16, scale)
    flight = 16

    def more(side: str, than: str) -> list[float]:
        return [r[side] - r[than] for r in rounds]

    return [
        line("whole gate, decisions per CPU-second, against bare aiohttp",
             [r["aiohttp"] / r["gate"] for r in rounds], unit="x", in_flight=flight, at_least=1.3),
        line("  one decision of the whole gate", [r["gate"] for r in rounds], unit="us", in_flight=flight),
        line("  of it own checks", more("gate", "gate-checks"), unit="us", in_flight=flight),
        line("  of it the transport", [r["transport"] for r in rounds], unit="us", in_flight=flight),
        line("  one bare aiohttp POST", [r["aiohttp"] for r in rounds], unit="us", in_flight=flight),
        line("gate over its own transport (own checks apart)", more("gate-checks", "transport"), unit="us",
             in_flight=flight, at_most=35),
        line("in-process hook more, async", more("gate+async", "gate"), unit="us", in_flight=flight, at_most=60),
        line("in-process hook more, plain", more("gate+plain", "gate"), unit="us", in_flight=flight, at_most=60),
    ]  # fmt: skip


def one_by_one(scale: Scale) -> list[Line]:
    """One question in flight."""
    rounds = _rounds(("aiohttp", "gate"), 1, scale)
    ratios = [r["gate"] / r["aiohttp"] for r in rounds]
    return [line("whole gate, CPU, against bare aiohttp", ratios, unit="x", in_flight=1, at_most=0.8)]


def breaker_open(scale: Scale) -> list[Line]:
    """A decision without asking."""
    nowhere = Address("-", Path("-"))
    figures = [_cpu("breaker", nowhere, 1, scale.questions * 5) for _ in range(scale.repeats)]
    return [line("breaker open, decision without asking", figures, unit="us", in_flight=1, at_most=5)]
