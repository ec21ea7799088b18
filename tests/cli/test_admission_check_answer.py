"""`dexaflow admission check-answer`: what would the gate make of this answer?"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dexaflow.admission.check_answer import check_answer
from dexaflow.cli.answer_lines import check_lines
from dexaflow.policy.policy import Policy

MAIN = "import sys; from dexaflow.cli.admission_commands import app; app(prog_name='dexaflow admission')"


def run(*arguments: str, body: bytes = b"", cwd: Path | None = None) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-c", MAIN, "check-answer", *arguments], input=body, capture_output=True, timeout=120, cwd=cwd
    )


def answer(decision: str, uid: str = "u1", **fields: Any) -> bytes:
    return json.dumps(
        {
            "api_version": "dexaflow.io/admission/v1",
            "kind": "AdmissionReview",
            "response": {"uid": uid, "decision": decision, **fields},
        }
    ).encode()


def b64(body: bytes) -> str:
    return base64.b64encode(body).decode()


def lines(*objects: object) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in objects)


@pytest.mark.parametrize(
    ("body", "code", "verdict"),
    [
        (answer("admit"), 0, "admit"),
        (answer("admit", changes={"labels": {"team": "a"}}), 0, "admit"),
        (answer("hold", reason="freeze until 06:00"), 0, "hold"),
        (answer("refuse"), 0, "refuse"),
        (answer("admit", changes={"labels": {"dexaflow.io/x": "a"}}), 1, "change_refused"),
        (answer("admit", changes={"service_account": "x"}), 1, "change_refused"),
        (answer("maybe"), 1, "broken"),
        (b"<html>", 1, "broken"),
        (b"", 1, "broken"),
        (b" " * 70_000, 1, "broken"),
    ],
)
def test_one_answer_gives_its_verdict_and_exit_code(body: bytes, code: int, verdict: str) -> None:
    """0 for admit, hold and refuse, 1 for the others."""
    ended = run("--output", "json", body=body)

    assert (ended.returncode, ended.stderr) == (code, b"")
    result = json.loads(ended.stdout)
    assert result["verdict"] == verdict
    assert bool(result["problem"]) == (code == 1)


@pytest.mark.parametrize("decision", ["hold", "refuse"])
def test_an_answer_without_a_reason_is_shown_so(decision: str) -> None:
    """R4.3: to people; programs get the reason as it is."""
    rows = [line.split(None, 1) for line in run(body=answer(decision)).stdout.decode().splitlines()]
    assert rows == [["verdict", decision], ["reason", "no reason given"]]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"name": "a", "body_b64": "e30=", "service_acounts": []}', "no key 'service_acounts'"),
        (b'{"name": "a", "body_b64": "e30=", "\\u001b[2J": 1}', "no key '\\u001b[2J'"),
        (b'{"name": "a", "body_b64": "e30=", "body_b64": "e30="}', "body_b64 is given twice"),
        (b'{"name": "a", "body_b64": "e30=", "uid": "u1", "uid": "u2"}', "uid is given twice"),
    ],
)
def test_a_line_with_a_key_that_nobody_reads_or_twice_is_told(line: bytes, error: str) -> None:
    """A mistyped list would be no list, and of two bodies one would not be looked at."""
    ended = run("--jsonl", body=line + b"\n" + lines({"name": "b", "body_b64": b64(answer("admit"))}))
    first, second = (json.loads(each) for each in ended.stdout.splitlines())
    assert ended.returncode == 1
    assert first.keys() == {"name", "error"}
    assert error in first["error"]
    assert second["verdict"] == "admit"


def test_the_uid_must_be_the_requests_when_it_is_given() -> None:
    assert run("--uid", "u1", body=answer("admit")).returncode == 0
    assert run("--uid", "u2", body=answer("admit")).returncode == 1


def test_a_file_can_be_named_and_a_table_is_for_people(tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_bytes(
        answer("admit", changes={"node_selector": {"tenant": "acme"}, "priority_class_name": "high"})
    )

    ended = run("answer.json", cwd=tmp_path)

    assert ended.returncode == 0
    rows = [line.split(None, 1) for line in ended.stdout.decode().splitlines()]
    assert rows == [
        ["verdict", "admit"],
        ["changes.node_selector", "tenant=acme"],
        ["changes.priority_class_name", "high"],
    ]


def test_a_toleration_is_written_for_people_too() -> None:
    ended = run(body=answer("admit", changes={"tolerations": [{"key": "tenant", "operator": "Exists"}]}))

    assert ended.stdout.decode().splitlines()[1].split() == ["changes.tolerations", "{key=tenant,", "operator=Exists}"]


def test_how_large_a_body_is_that_was_not_read_to_its_end_is_not_said(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b" " * 5_000_000)

    assert json.loads(run("--output", "json", "large", cwd=tmp_path).stdout)["problem"] == (
        "the answer cannot be read: it has more than the 65536 bytes allowed"
    )


def test_the_configuration_says_what_changes_may_set(tmp_path: Path) -> None:
    (tmp_path / "dexaflow.yaml").write_text(
        "execution_allowlist: {service_accounts: [loader], priority_classes: [high]}"
    )
    good = answer("admit", changes={"service_account": "loader", "priority_class_name": "high"})
    bad = answer("admit", changes={"priority_class_name": "low"})

    assert run("--config", "dexaflow.yaml", body=good, cwd=tmp_path).returncode == 0
    assert run("--config", "dexaflow.yaml", body=bad, cwd=tmp_path).returncode == 1


@pytest.mark.parametrize("arguments", [["nowhere.json"], ["--config", "nowhere.yaml"], ["--jsonl", "nowhere"], ["."]])
def test_what_cannot_be_read_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    ended = run(*arguments, cwd=tmp_path)

    assert ended.returncode == 2
    assert ended.stdout == b""
    assert len(ended.stderr.splitlines()) == 1


def test_a_hostile_reason_is_text_on_the_terminal() -> None:
    """R4.4: no escapes, no line of its own; JSON gives it as kept."""
    body = answer("hold", reason="a\x1b[31m\nb\u202e\u2028<b>\ud800\x00")

    table = run(body=body).stdout.decode()
    result = json.loads(run("--output", "json", body=body).stdout)

    assert result["reason"] == "a[31mb\u202e\u2028<b>\ufffd"
    assert len(table.splitlines()) == 2
    assert "a[31mb\\u202e\\u2028<b>\ufffd" in table


def test_lines_in_give_lines_out_with_the_same_names() -> None:
    ended = run(
        "--jsonl",
        body=lines(
            {"name": "one", "body_b64": b64(answer("admit"))},
            {"name": "two", "body_b64": b64(answer("hold", reason="later")), "uid": "u1"},
            {"name": "three", "body_b64": b64(answer("hold")), "uid": "u2"},
            {"name": "", "body_b64": ""},
        ),
    )

    assert ended.returncode == 0
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(item["name"], item["verdict"]) for item in results] == [
        ("one", "admit"),
        ("two", "hold"),
        ("three", "broken"),
        ("", "broken"),
    ]
    assert all(item.keys() == {"name", "verdict", "reason", "changes", "problem"} for item in results)


def test_a_null_list_is_not_set_and_an_absent_one_is_the_configurations(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("execution_allowlist: {service_accounts: [a], priority_classes: []}")
    body = b64(answer("admit", changes={"service_account": "a"}))
    priority = b64(answer("admit", changes={"priority_class_name": "high"}))

    ended = run(
        "--jsonl",
        "--config",
        "c.yaml",
        cwd=tmp_path,
        body=lines(
            {"name": "configured", "body_b64": body},
            {"name": "null", "body_b64": body, "service_accounts": None},
            {"name": "empty", "body_b64": body, "service_accounts": []},
            {"name": "own", "body_b64": body, "service_accounts": ["b", "a"]},
            {"name": "priority configured", "body_b64": priority},
            {"name": "priority null", "body_b64": priority, "priority_classes": None},
        ),
    )

    verdicts = {item["name"]: item["verdict"] for item in map(json.loads, ended.stdout.splitlines())}
    assert verdicts == {
        "configured": "admit",
        "null": "change_refused",
        "empty": "change_refused",
        "own": "admit",
        "priority configured": "change_refused",
        "priority null": "admit",
    }


def test_a_bad_line_gives_an_error_and_the_rest_goes_on() -> None:
    good = {"name": "good", "body_b64": b64(answer("admit"))}
    bad: list[bytes] = [
        b"not json\n",
        b"[1]\n",
        b"null\n",
        b'{"name": 7, "body_b64": ""}\n',
        b'{"name": NaN, "body_b64": ""}\n',
        b'{"name": 1e999, "body_b64": ""}\n',
        b'{"name": "no body"}\n',
        b'{"name": "not base64", "body_b64": "%%%"}\n',
        b'{"name": "half", "body_b64": "YQ"}\n',
        b'{"name": "letters", "body_b64": "\xc3\xa9"}\n',
        b'{"name": "uid", "body_b64": "", "uid": 1}\n',
        b'{"name": "list", "body_b64": "", "priority_classes": "high"}\n',
        b'{"name": "entries", "body_b64": "", "service_accounts": [1]}\n',
        b'{"name": "\xff"}\n',
        b"[" * 100_000 + b"\n",
        b"1" * 10_000 + b"\n",
        b"\n",
        b"\xef\xbb\xbf{}\n",
    ]

    ended = run("--jsonl", body=b"".join(line + lines(good) for line in bad))

    assert ended.returncode == 1
    assert ended.stderr == b""
    assert b"NaN" not in ended.stdout
    assert b"Infinity" not in ended.stdout
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [item for item in results if item.get("verdict")] == [results[1]] * len(bad)
    errors = [item for item in results if "error" in item]
    assert len(errors) == len(bad) - 1  # a blank line is no line
    assert [item["name"] for item in errors] == [
        None,
        None,
        None,
        7,
        None,  # Python would write NaN and Infinity back, and no other reader takes them
        None,
        "no body",
        "not base64",
        "half",
        "letters",
        "uid",
        "list",
        "entries",
        *[None] * 4,
    ]


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    body = lines(*({"name": str(n), "body_b64": b64(answer("admit"))} for n in range(20_000)))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", MAIN, "check-answer", "--jsonl"],
            input=body,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writer)

    assert ended.stderr == b""


def checked(item: object) -> dict[str, Any]:
    (line,) = check_lines([json.dumps(item).encode() + b"\n"], Policy())
    assert line.text.isascii()
    assert "\n" not in line.text
    result: dict[str, Any] = json.loads(line.text)
    return result


ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "api_version": st.sampled_from(["dexaflow.io/admission/v1", "v1"]),
        "kind": st.just("AdmissionReview"),
        "response": st.fixed_dictionaries(
            {},
            optional={
                "uid": st.text(max_size=4),
                "decision": st.sampled_from(["admit", "hold", "refuse", "Admit"]),
                "reason": st.text(st.characters(), max_size=40),
                "changes": st.dictionaries(
                    st.sampled_from(["labels", "annotations", "node_selector", "tolerations", "image"]),
                    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2) | st.none(),
                ),
            },
        ),
    },
)


@settings(max_examples=300)
@given(st.text(st.characters(), max_size=10), st.binary(max_size=200) | ANSWERS.map(lambda a: json.dumps(a).encode()))
def test_no_body_makes_more_than_one_line_of_json(name: str, body: bytes) -> None:
    """NUL, invalid UTF-8, lone surrogates: the line stays ASCII JSON, the name the same."""
    result = checked({"name": name, "body_b64": b64(body)})

    assert result["name"] == name
    assert result["verdict"] == str(check_answer(body).verdict)


@pytest.mark.parametrize("body", [b"\x00" * 65_536, b"[" * 65_536, b'"' + b"\xff" * 65_534 + b'"', b'{"a":' * 13_000])
def test_large_bodies_are_judged_like_any(body: bytes) -> None:
    assert checked({"name": "x", "body_b64": b64(body)})["verdict"] == "broken"
