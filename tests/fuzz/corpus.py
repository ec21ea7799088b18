"""Inputs worth keeping: those found by fuzzing, in `tests/corpus`, and those of the vectors.

`tests/corpus/<target>.json` is a list of texts; bytes that are not UTF-8 stand there as lone surrogates.
"""

import json
from pathlib import Path

from tests.vectors_loader import body_of, load

__all__ = ["FOLDER", "kept", "seeds", "write"]

FOLDER = Path(__file__).parent.parent / "corpus"


def kept(name: str) -> list[bytes]:
    """Return what is kept for a target, findings of old among it."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return []
    return [text.encode("utf-8", "surrogateescape") for text in json.loads(path.read_text())]


def write(name: str, inputs: list[bytes]) -> None:
    """Keep these inputs, and no others, for a target: the short ones first, one a line."""
    texts = [
        data.decode("utf-8", "surrogateescape") for data in sorted(set(inputs), key=lambda data: (len(data), data))
    ]
    lines = ",\n".join(json.dumps(text) for text in texts)
    (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def seeds(name: str) -> list[bytes]:
    """Return what a target begins with: what is kept, and what the vectors hold for it."""
    found = kept(name)
    match name:
        case "answers":
            found += [body_of(case) for case in load("decode") if "body_b64" in case]
            found += [body_of(case) for case in load("answer_semantics")]
        case "names":
            found += [case["value"].encode() for case in load("names") if isinstance(case.get("value"), str)]
        case "quantities":
            found += [f"{case['a']}\n{case.get('b', '')}".encode() for case in load("quantities")]
    return [data for data in found if len(data) <= 70_000]
