"""Hooks found by module and name, and modules of hooks that do what they like while they are loaded (R8.1)."""

import signal
from pathlib import Path

import pytest

from dexaflow.admission.decisions import Decision, Request, admit
from dexaflow.base.errors import ConfigError, ConfigErrors
from dexaflow.hooks.finding import load_hook, load_hooks
from dexaflow.hooks.naming import hook_name

HERE = "tests.hooks.test_finding"


def freeze(request: Request) -> Decision:
    return admit()


def test_everything_that_is_wrong_with_hooks_is_said_at_once(tmp_path: Path) -> None:
    """R8.1: those given and those named, and two of one name, the webhook's name among them."""
    (tmp_path / "policy_called_webhook.py").write_text("def hook(request): ...\nhook.name = 'webhook'\n")
    good = load_hooks([f"{HERE}:freeze"], tmp_path, names=["webhook"])
    assert good == (freeze,)
    with pytest.raises(ConfigErrors) as caught:
        load_hooks(
            ["nomod:fn", "policy_called_webhook:hook", "os:nothere", f"{HERE}:freeze"],
            tmp_path,
            given=[lambda request: admit(), freeze],
            names=["webhook"],
        )
    said = [problem.problem for problem in caught.value.problems]
    assert [
        (part in one) for part, one in zip(["a lambda", "no module nomod", "os has no 'nothere'"], said, strict=False)
    ] == [True] * 3
    assert said[3:] == [f"two hooks are called '{HERE}:freeze'", "two hooks are called 'webhook'"]


@pytest.mark.parametrize(
    "target", ["a" * 2000 + ":x", "a." * 1000 + "a:x", "os:" + "a" * 2000, "os:" + "a." * 1000 + "a"]
)
def test_a_target_of_any_length_gets_a_short_line(target: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_hook(target)

    assert len(str(caught.value)) < 500


def test_hook_is_found_by_module_and_name(tmp_path: Path) -> None:
    assert load_hook(f"{HERE}:freeze") is freeze
    (tmp_path / "policy_of_test_finding.py").write_text("def review(request): ...\n")
    assert hook_name(load_hook("policy_of_test_finding:review", tmp_path)) == "policy_of_test_finding:review"


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("", "nowhere_to_be_found:x", "no module"),
        ("", "tests.nowhere_to_be_found:x", "no module"),
        ("import nowhere_to_be_found", "{}:x", "cannot be imported"),
        ("1 / 0", "{}:x", "ZeroDivisionError"),
        ("raise SystemExit('bye\\nbye')", "{}:x", "SystemExit"),
        ("def (", "{}:x", "SyntaxError"),
        ("raise ValueError('a\\nb\\x1b[31m')", "{}:x", "ValueError"),
        ("y = 1", "{}:x", "has no 'x'"),
        ("x = 1", "{}:x", "not a hook"),
        ("x = None", "{}:x", "not a hook"),
        ("class x: pass", "{}:x", "class"),
        ("x = lambda request: None", "{}:x", "lambda"),
        ("def __getattr__(name): raise ValueError(name)", "{}:x", "has no 'x'"),
        ("def __getattr__(name): raise KeyboardInterrupt", "{}:x", "has no 'x'"),
        ("raise KeyboardInterrupt", "{}:x", "cannot be imported: KeyboardInterrupt"),
        (
            "class E(Exception): __str__ = lambda self: exit(3)\nraise E",
            "{}:x",
            "imported: E: its text cannot",
        ),
        ("raise GeneratorExit", "{}:x", "cannot be imported: GeneratorExit"),
        ("class C: review = property(lambda self: exit(3))\nx = C()", "{}:x", "cannot be read: SystemExit: 3"),
        ("def x(): ...", "{}:x", "x takes no argument; have it take one argument, the request"),
        ("", "no_colon", "package.module:name"),
        ("", "a:b:c", "package.module:name"),
        ("", "a/b:c", "package.module:name"),
        ("", "a:b\n", "package.module:name"),
        ("", ":x", "package.module:name"),
        ("", "", "package.module:name"),
    ],
)
def test_hook_that_cannot_be_loaded_is_an_error_in_one_line(
    source: str, target: str, said: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    module = f"bad_hook_{request.node.name.encode().hex()[-40:]}"
    (tmp_path / f"{module}.py").write_text(source)
    with pytest.raises(ConfigError) as caught:
        load_hook(target.format(module), tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_the_user_info_of_a_url_in_what_a_hook_raises_is_left_out(tmp_path: Path) -> None:
    """Clients of databases say with which URL they failed (R2.4)."""
    (tmp_path / "hook_of_a_database.py").write_text("raise ValueError('no postgres://jo:s3cret@db/x for jo@acme')")
    with pytest.raises(ConfigError) as caught:
        load_hook("hook_of_a_database:x", tmp_path)
    assert "ValueError: no postgres://...@db/x for jo@acme" in str(caught.value)


def test_ctrl_c_while_a_hook_is_loaded_is_no_fault_of_the_hooks(tmp_path: Path) -> None:
    """And afterwards it means what it meant before."""
    before = signal.getsignal(signal.SIGINT)
    (tmp_path / "hook_of_ctrl_c.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    with pytest.raises(KeyboardInterrupt):
        load_hook("hook_of_ctrl_c:x", tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
