"""The page for policy authors: its examples run, its tables are whole."""

import os
import re
import shutil
import subprocess
from dataclasses import fields

import pytest

from dexaflow.admission import Request, read_answer, read_question
from dexaflow.admission.check_answer import check_answer
from dexaflow.config import load_config
from dexaflow.model.execution import Execution
from tests.docs.blocks import ROOT, Block, blocks_of, steps_of
from tests.docs.reader import Reader

PAGE = ROOT / "docs" / "policies.md"


def block_of(language: str) -> Block:
    return next(block for block in blocks_of(PAGE) if block.language == language)


def test_its_hooks_configurations_and_commands_work(reader: Reader) -> None:
    for step in steps_of(PAGE):
        reader.take(step)
    for name in ("inprocess.yaml", "webhook.yaml"):
        load_config(reader.folder / name, {}, base_dir=reader.folder)
    code = "import app, serve, window; assert callable(app.app) and serve.server.run and window.year_end(None)"
    subprocess.run(["python", "-c", code], cwd=reader.folder, env=reader.environ, check=True)


def test_its_question_and_answers_are_well_formed() -> None:
    """R3.1, R4.3."""
    for block in blocks_of(PAGE):
        if block.language == "json":
            body = block.text.encode()
            if '"request"' in block.text:
                assert read_question(body).tenant_id == "acme", block.place
            else:
                read_answer(body, "6f1c2a8e-0d4b-4f5e-9a3c-2b7d8e1f0a42")


@pytest.mark.parametrize(
    ("language", "command", "program"), [("go", "go run endpoint.go", "go"), ("js", "node endpoint.mjs", "node")]
)
def test_an_endpoint_in_another_language_is_understood(
    reader: Reader, language: str, command: str, program: str
) -> None:
    if shutil.which(program) is None:
        assert not os.environ.get("CI"), f"{program} must be there in CI"
        pytest.skip(f"there is no {program} here")
    certificate = next(b for b in blocks_of(PAGE) if b.language == "sh" and "openssl" in b.text)
    config = next(b for b in blocks_of(PAGE) if b.file == "webhook.yaml")
    for step in (certificate, config, block_of(language)):
        reader.take(step)
    reader.take(Block(PAGE, 0, "sh", ("server",), command))
    reader.take(Block(PAGE, 0, "sh", (), "dexaflow admission ask --config webhook.yaml"))
    reader.take(Block(PAGE, 0, "text", (), "< status 200\nverdict  hold\nreason   default has no nodes yet"))


def test_every_field_of_the_question_has_its_entry() -> None:
    """R3.1, R3.2."""
    page = PAGE.read_text()
    for field in (*fields(Request), *fields(Execution)):
        assert f"`{field.name}`" in page, field.name


_ENVELOPE = b'{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview","response":{%s}}'
BROKEN = [
    b"",
    b"<html>",
    b"{}",
    b'{"api_version":"dexaflow.io/admission/v1"}',
    _ENVELOPE % b'"decision":"admit"',
    _ENVELOPE % b'"uid":"2","decision":"admit"',
    _ENVELOPE % b'"uid":"1","decision":"allow"',
    _ENVELOPE % b'"uid":"1","decision":"admit","reason":"fine"',
    _ENVELOPE % b'"uid":"1","decision":"hold","changes":{"labels":{"a":"b"}}',
    _ENVELOPE % b'"uid":"1","decision":"admit","request":{}',
    _ENVELOPE % b'"uid":"1","uid":"1","decision":"admit"',
    _ENVELOPE % b'"uid":"1","decision":"admit","changes":{"labels":{"a":4711}}',
    _ENVELOPE % b'"uid":"1","decision":"admit"' + b"x",
    b" " * 65_537,
]


@pytest.mark.parametrize("body", BROKEN, ids=range(len(BROKEN)))
def test_what_is_wrong_with_an_answer_is_explained(body: bytes) -> None:
    """R4: every way to be broken has its row."""
    checked = check_answer(body, uid="1")

    assert checked.verdict == "broken"
    said = re.findall(r"^\| `([^`]+)` \| ", PAGE.read_text(), re.MULTILINE)
    assert any(text in checked.problem for text in said), checked.problem
