"""What one decision costs, without the database: the gate, its transport, its hooks and its breaker."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.endpoint import ADMIT, ADMIT_ANEW, Endpoint, endpoint
from bench.rounds import Figures, fresh, rounds
from bench.scale import Scale
from bench.table import Line, line

__all__ = ["asking", "at_once", "breaker_open", "one_by_one"]


def asking(side: str, asked: Endpoint, *, loop: str = "uvloop", in_flight: int, questions: int) -> float:
    """Return the microseconds of CPU of one question, measured in a fresh process."""
    command = ["bench.asking", side, loop, asked.url, str(asked.ca_file), str(in_flight), str(questions)]
    return fresh(command)["us"]


def _rounds(
    sides: Sequence[str], in_flight: int, scale: Scale, loop: str = "uvloop", decision: bytes = ADMIT
) -> list[Figures]:
    with tempfile.TemporaryDirectory() as name, endpoint(Path(name), decision=decision) as asked:

        def measure(side: str) -> float:
            return asking(side, asked, loop=loop, in_flight=in_flight, questions=scale.questions)

        return rounds(sides, measure, scale.repeats)


def at_once(scale: Scale) -> list[Line]:
    """Sixteen questions in flight."""
    flight = 16
    found = _rounds(("aiohttp", "gate", "gate-checks", "transport", "gate+async", "gate+plain"), flight, scale)
    plain = _rounds(("aiohttp", "gate"), flight, scale, loop="asyncio")
    anew = _rounds(("aiohttp", "gate"), flight, scale, decision=ADMIT_ANEW)

    def more(side: str, than: str) -> list[float]:
        return [r[side] - r[than] for r in found]

    return [
        line("whole gate, decisions per CPU-second, against bare aiohttp, both on uvloop",
             [r["aiohttp"] / r["gate"] for r in found], unit="x", in_flight=flight, at_least=1.3),
        line("  the same, both on asyncio's own loop", [r["aiohttp"] / r["gate"] for r in plain], unit="x",
             in_flight=flight),
        line("  the same, no two answers alike", [r["aiohttp"] / r["gate"] for r in anew], unit="x",
             in_flight=flight, at_least=1.3),
        line("  one decision of the whole gate", [r["gate"] for r in found], unit="us", in_flight=flight),
        line("  of it own checks", more("gate", "gate-checks"), unit="us", in_flight=flight),
        line("  of it the transport", [r["transport"] for r in found], unit="us", in_flight=flight),
        line("  one bare aiohttp POST", [r["aiohttp"] for r in found], unit="us", in_flight=flight),
        line("gate over its own transport (own checks apart)", more("gate-checks", "transport"), unit="us",
             in_flight=flight, at_most=35),
        line("in-process hook more, async", more("gate+async", "gate"), unit="us", in_flight=flight, at_most=60),
        line("in-process hook more, plain", more("gate+plain", "gate"), unit="us", in_flight=flight, at_most=60),
    ]  # fmt: skip


def one_by_one(scale: Scale) -> list[Line]:
    """One question in flight."""
    found = _rounds(("aiohttp", "gate"), 1, scale)
    ratios = [r["gate"] / r["aiohttp"] for r in found]
    return [line("whole gate, CPU, against bare aiohttp, both on uvloop", ratios, unit="x", in_flight=1, at_most=0.8)]


def breaker_open(scale: Scale) -> list[Line]:
    """A decision without asking."""
    command = ["bench.asking", "breaker", "uvloop", "-", "-", "1", str(scale.questions * 5)]
    figures = [fresh(command)["us"] for _ in range(scale.repeats)]
    return [line("breaker open, decision without asking", figures, unit="us", in_flight=1, at_most=5)]
