"""The shared vectors: what Go and Kubernetes made of each input (`vectors/README.md`)."""

import base64
import json
from pathlib import Path
from typing import Any

__all__ = ["body_of", "load"]

_FOLDER = Path(__file__).parent / "vectors"


def load(name: str) -> list[dict[str, Any]]:  # Any: each file has its own fields, described in the README
    """Return the cases of one file, given without its ending: ``load("names")``."""
    cases: list[dict[str, Any]] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return cases


def body_of(case: dict[str, Any]) -> bytes:
    """Return the body of a case: written as text, in Base64, or in parts that are repeated."""
    if "body_text" in case:
        return str(case["body_text"]).encode("utf-8", "surrogatepass")
    parts = case.get("body_parts_b64") or [[case["body_b64"], 1]]
    return b"".join(base64.b64decode(part) * times for part, times in parts)
