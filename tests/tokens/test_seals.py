"""Who may make which proof: read from the sources, since a seal is only as good as those who know it."""

import re
from pathlib import Path

import pytest

import dexaflow

SOURCES = Path(dexaflow.__file__).parent


def users(pattern: str) -> set[str]:
    """Return the modules in which the pattern occurs."""
    return {
        str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if re.search(pattern, path.read_text("utf-8"))
    }


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        (r"= Launched\.written\(", {"dispatch/line.py"}),
        (r"\bMinter\(", {"server/lite.py"}),
        (r"\.mint\(", {"dispatch/line.py"}),
        (r"from dexaflow\.tokens\.token import .*_SEAL", {"tokens/mint.py", "tokens/verify.py"}),
        (r"from dexaflow\.tokens\.launch import .*_SEAL", set()),
        (r"(?<!class )\bLaunch\(", {"dispatch/line.py"}),
        (r"\.reveal\(", {"executors/process.py", "server/agents.py"}),
    ],
)
def test_each_proof_is_made_and_opened_where_it_should_be(pattern: str, allowed: set[str]) -> None:
    """There is no other way to a token or a process (R1.1, R1.3)."""
    assert users(pattern) <= allowed
