"""The shared vectors: what Go and Kubernetes made of each input (`vectors/README.md`)."""

import json
from pathlib import Path
from typing import Any

__all__ = ["load"]

_FOLDER = Path(__file__).parent / "vectors"


def load(name: str) -> list[dict[str, Any]]:  # Any: each file has its own fields, described in the README
    """Return the cases of one file, given without its ending: ``load("names")``."""
    cases: list[dict[str, Any]] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return cases
