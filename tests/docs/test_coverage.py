"""Nothing is left out of the pages, and no link leads nowhere."""

import ast
import configparser
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from dexaflow.admission.results import Outcome
from dexaflow.api.airflow.states import AIRFLOW_STATES
from dexaflow.api.app import create_app
from dexaflow.authoring.context import Context
from dexaflow.authoring.options import DAG_OPTIONS, TASK_OPTIONS
from dexaflow.config import load_config
from dexaflow.model.dag_rules import PRESETS, TriggerRule
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.states import State
from dexaflow.observe.metrics import Metrics
from dexaflow.policy import author_rules, resources
from tests.docs.blocks import ROOT, blocks_of, headings_of, links_of, pages
from tests.docs.reader import Reader

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    nothing: Any = None
    app = create_app(
        reader=nothing, commands=nothing, api_token=bool, agent_routes=[], metrics=bytes, health=nothing, logs=nothing
    )
    return app.openapi()


def cells_of(page: Path) -> list[list[str]]:
    """Return the rows of all tables of a page."""
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_link_between_pages_resolves(page: Path) -> None:
    for target in links_of(page):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in headings_of(other), f"{page.name}: {target}"


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_page_can_be_found_from_the_readme(page: Path) -> None:
    assert f"docs/{page.name}" in links_of(ROOT / "README.md")


def test_every_block_is_of_a_kind_that_some_test_looks_at() -> None:
    tried = {"README.md", "tutorial.md", "operating.md", "policies.md", "dags.md", "api.md"}
    known = {"sh", "python", "yaml", "json", "text", "go", "js", "ini"}
    for page in pages():
        for block in blocks_of(page):
            if page.name in tried:
                assert block.language in known, block.place
                assert block.language in ("sh", "text", "json") or block.file, f"{block.place}: names no file"
            elif block.language == "sh":
                Reader.look_at_clone(block)
            else:  # the two are printed by the program; tests beside it keep page and print equal
                assert page.name in ("states.md", "configuration.md") or block.language == "text", block.place


def test_the_configuration_of_the_reference_is_right(tmp_path: Path) -> None:
    block = next(b for b in blocks_of(DOCS / "configuration.md") if b.language == "yaml")
    (tmp_path / "policy-token").write_text("token\n")
    text = re.sub(r"\n +ca_file: .*", "", block.text).replace("/etc/dexaflow", str(tmp_path))
    (tmp_path / "dexaflow.yaml").write_text(text)

    load_config(tmp_path / "dexaflow.yaml", {}, base_dir=tmp_path)


def test_the_service_leaves_running_tasks_alone() -> None:
    """R10.3: agents outlive the server, also under systemd."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names as written
    unit.read_string(next(b.text for b in blocks_of(DOCS / "operating.md") if b.language == "ini"))

    assert unit["Service"]["KillMode"] == "process"
    assert (
        unit["Service"]["OOMPolicy"] == "continue"
    )  # by default systemd stops the server when a task is out of memory
    assert "dexaflow lite --config" in unit["Service"]["ExecStart"]


def test_the_readme_tells_the_story_of_the_demo() -> None:
    block = next(b for b in blocks_of(ROOT / "README.md") if "shape" in b.words)
    told = "".join(path.read_text() for path in (ROOT / "examples").rglob("*.py"))
    for line in block.text.splitlines():
        for word in re.findall(r"[a-z]\w*_\w+", line):
            assert word in told, f"{word} in {line!r}"
    assert "everything came out as promised" in told


class _Hold:
    hook, held, oldest_seconds = "webhook", 1, 2.0


def test_every_metric_has_its_entry() -> None:
    """R9.1."""
    metrics = Metrics(hooks=["webhook"])
    metrics.attempts_moved({State.RUNNING: 1})
    metrics.read_breakers(lambda: {"webhook": True})
    metrics.read_holds(lambda: [_Hold()])
    metrics.read_stale_files(lambda: {"ca_file": False})
    metrics.read_abandoned_calls(lambda: {"a:b": 1})
    metrics.read_attempts(lambda: {"held": 1})
    metrics.read_slots(lambda: {"default_pool": (1, 2)})
    described = {row[0].strip("`"): row for row in cells_of(DOCS / "operating.md")}
    found = re.findall(r"^# TYPE (\w+) ", metrics.render().decode(), re.MULTILINE)
    for name in found:
        assert name in described, name
        for label in set(re.findall(rf'^{name}(?:_bucket)?{{(\w+)="', metrics.render().decode(), re.MULTILINE)):
            assert f"`{label}`" in described[name][1], (name, label)
    known = {name for name in described if name.startswith("dexaflow_")}
    assert known == set(found)


def test_every_outcome_has_its_entry() -> None:
    named = {row[0].strip("`") for row in cells_of(DOCS / "operating.md")}

    assert set(Outcome) <= named


def test_every_event_that_asks_for_attention_has_its_entry() -> None:
    """Each warning and error of the log, with its level."""
    logged: dict[str, set[str]] = {}
    for path in (ROOT / "src" / "dexaflow").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("warning", "error", "exception")
                and ast.unparse(node.func.value).removeprefix("self.").lstrip("_") in ("log", "troubles")
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                level = node.func.attr.replace("exception", "error")
                logged.setdefault(str(node.args[0].value), set()).add(level)
    described = {name: row[1] for row in cells_of(DOCS / "operating.md") for name in re.findall(r"`(\w+)`", row[0])}
    for event, levels in logged.items():
        assert event in described, event
        assert levels & set(described[event].split()), (event, levels)


def as_written(default: object) -> str:
    """Return a default as the page writes it."""
    return f"{default:g}" if isinstance(default, float) else str(default) or '""'


@pytest.mark.parametrize(("options", "spec"), [(DAG_OPTIONS, DagSpec), (TASK_OPTIONS, TaskSpec)])
def test_every_option_has_its_entry_with_its_default(options: Mapping[str, Any], spec: type[Any]) -> None:
    rows = {row[0].strip("`"): row for row in cells_of(DOCS / "dags.md")}
    defaults = {field.name: field.default for field in fields(spec)}
    assert set(options) <= set(rows)
    for name in set(options) & set(defaults):
        if defaults[name] is not MISSING:
            assert rows[name][1] == f"`{as_written(defaults[name])}`", name


def test_every_trigger_rule_preset_and_part_of_the_context_has_its_entry() -> None:
    page = (DOCS / "dags.md").read_text()
    named = {row[0].strip("`") for row in cells_of(DOCS / "dags.md")}

    assert set(TriggerRule) <= named
    assert all(f"`{preset}`" in page for preset in PRESETS)
    for field in fields(Context):
        assert field.name in named, field.name


def test_every_rule_of_own_checks_has_its_entry() -> None:
    """R1.2: a rejection names its rule."""
    rules = {author_rules.PLACEMENT, author_rules.IMAGE, author_rules.KUBERNETES, author_rules.PREFIX}
    rules.add(resources.RULE_UNIT)

    assert rules <= {row[0].strip("`") for row in cells_of(DOCS / "errors.md")}


def test_every_path_of_the_api_has_its_entry(openapi: dict[str, Any]) -> None:
    there = {f"{method.upper()} {path}" for path, operations in openapi["paths"].items() for method in operations}
    described = {row[0].strip("`") for row in cells_of(DOCS / "api.md") if "/" in row[0]}

    assert described == there


def test_every_state_is_mapped_as_the_page_says() -> None:
    rows = {row[0].strip("`"): row[1] for row in cells_of(DOCS / "api.md") if len(row) == 2}
    for ours, theirs in AIRFLOW_STATES.items():
        if theirs is None or str(ours) != str(theirs):
            assert rows[str(ours)].startswith("null" if theirs is None else f"`{theirs}`"), ours


def test_every_status_of_the_api_has_its_entry(openapi: dict[str, Any]) -> None:
    statuses = {
        status
        for operations in openapi["paths"].values()
        for operation in operations.values()
        for status in operation["responses"]
        if int(status) >= 400
    }

    assert statuses <= {row[0] for row in cells_of(DOCS / "api.md")}


def test_one_thing_has_one_line_in_the_glossary() -> None:
    words = [row[0] for row in cells_of(DOCS / "glossary.md")[1:]]

    assert len(set(words)) == len(words)
    assert words == sorted(words, key=str.lower)


def test_every_alert_has_its_row_among_what_to_do() -> None:
    rules = (ROOT / "src" / "dexaflow" / "observe" / "alerts.yaml").read_text()
    page = (DOCS / "operating.md").read_text()
    for alert in re.findall(r"- alert: (\w+)", rules):
        assert f"[{alert}](alerts.md#{alert.lower()})" in page


def test_the_reasons_are_written_as_the_program_says_them() -> None:
    said = "".join(path.read_text() for path in (ROOT / "src" / "dexaflow").rglob("*.py"))
    for row in cells_of(DOCS / "errors.md"):
        for reason in re.findall(r"`([^`]+)`", row[0]):
            for part in re.split(r"\bNAME\b|\bID\b|\b[NM]\b|; |\.\.\.|'|\(|30 s|SIGKILL|: |a >> b >> a", reason):
                words = part.strip(" :();")
                assert len(words) < 10 or words in said, reason
