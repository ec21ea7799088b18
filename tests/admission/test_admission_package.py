"""What the package is to those who use it, and the seals that keep the order of the line."""

import ast
from pathlib import Path

import pytest

import dexaflow
from dexaflow import admission
from dexaflow.admission.results import Admitted
from dexaflow.policy.checked import Checked
from tests.admission.builders import checked

SRC = Path(dexaflow.__file__).parent


def test_what_is_public_is_pinned() -> None:
    """Policy authors and programs that use the gate alone import these."""
    assert set(admission.__all__) == {
        "Admit",
        "Admitted",
        "AllowLists",
        "AnswerError",
        "Answered",
        "BreakerState",
        "Changes",
        "Decision",
        "Execution",
        "Gate",
        "Held",
        "Hold",
        "HookCaller",
        "HookStatus",
        "Observer",
        "Outcome",
        "QuestionError",
        "Refuse",
        "Refused",
        "Request",
        "Resources",
        "Review",
        "Toleration",
        "Verdict",
        "admit",
        "answer",
        "hold",
        "question",
        "read_answer",
        "read_question",
        "refuse",
    }
    assert admission.__all__ == sorted(admission.__all__, key=lambda name: (name.islower(), name))
    for name in admission.__all__:
        assert hasattr(admission, name)


def _who_names_the_seal_of(module: str) -> set[str]:
    """Return the files under src that reach for `_SEAL` in `module`, by import or as an attribute."""
    found = set()
    for path in SRC.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            imports = isinstance(node, ast.ImportFrom) and any(alias.name == "_SEAL" for alias in node.names)
            if (imports and isinstance(node, ast.ImportFrom) and node.module == module) or (
                isinstance(node, ast.Attribute) and node.attr == "_SEAL"
            ):
                found.add(path.relative_to(SRC).as_posix())
    return found


def test_only_the_gate_makes_an_admitted() -> None:
    """R1.3: impossible to do otherwise."""
    assert _who_names_the_seal_of("dexaflow.admission.results") == {"admission/gate.py"}
    with pytest.raises(TypeError, match=r"Gate\.review"):
        Admitted(checked(), checked().execution, (), (), 0.0, dedicated=False, seal=object())


def test_only_own_checks_make_a_checked() -> None:
    """R1.2: what was not checked is never asked about."""
    assert _who_names_the_seal_of("dexaflow.policy.checked") == {"policy/checks.py"}
    real = checked()
    with pytest.raises(TypeError, match="check"):
        Checked(
            real.attempt,
            "",
            real.resources,
            real.execution,
            (),
            service_account_chosen=False,
            own_placement=False,
            seal=None,
        )


def test_the_package_opens_nothing() -> None:
    """The gate awaits what it is handed; sockets, threads, loops, clocks and logs are others'."""
    forbidden = {"asyncio", "socket", "threading", "time", "logging", "os", "random", "uuid", "secrets", "subprocess"}
    for path in (SRC / "admission").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = (
                {alias.name for alias in node.names}
                if isinstance(node, ast.Import)
                else {node.module}
                if isinstance(node, ast.ImportFrom)
                else set()
            )
            assert not {(module or "").partition(".")[0] for module in modules} & forbidden, path
