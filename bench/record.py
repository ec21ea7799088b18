"""An attempt's way through the database: claimed, asked about, recorded; a hundred in one transaction."""

import tempfile
from pathlib import Path

from bench.endpoint import endpoint
from bench.recording import FLIGHT
from bench.rounds import fresh, rounds
from bench.scale import Scale
from bench.table import Line, line

__all__ = ["in_batches"]

SIDES = ("aiohttp", "transport")


def in_batches(scale: Scale) -> list[Line]:
    """The whole loop, once with our transport and once with aiohttp in its place."""
    walls: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as name, endpoint(Path(name)) as asked:

        def measure(side: str) -> float:
            found = fresh(["bench.recording", side, asked.url, str(asked.ca_file), str(scale.batches)])
            walls[side].append(found["wall"])
            return found["us"]

        found = rounds(SIDES, measure, scale.repeats)
    return [
        line("claim, ask, record in SQLite, batches of 100, attempts per CPU-second, against aiohttp as transport",
             [r["aiohttp"] / r["transport"] for r in found], unit="x", in_flight=FLIGHT, at_least=1.5),
        line("  CPU of one attempt", [r["transport"] for r in found], unit="us", in_flight=FLIGHT),
        line("  CPU of one attempt with aiohttp", [r["aiohttp"] for r in found], unit="us", in_flight=FLIGHT),
        line("  attempts a second, on one core", [1e6 / wall for wall in walls["transport"]], unit="/s",
             in_flight=FLIGHT),
        line("  attempts a second with aiohttp", [1e6 / wall for wall in walls["aiohttp"]], unit="/s",
             in_flight=FLIGHT),
    ]  # fmt: skip
