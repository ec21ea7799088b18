"""The configuration of requirements, section 2: complete, strict, every problem at once."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dexaflow.base.errors import ConfigError, ConfigErrors
from dexaflow.config import Config, load_config

Load = Callable[..., Config]
Problems = Callable[..., list[ConfigError]]

EVERYTHING = """
execution:
  admission:
    webhook:
      url: https://admission.policy.svc:8443/admit
      ca_file: ca.crt
      token_file: token
    timeout: 1s500ms
    fail_open: true
    hooks: [policies.freeze:freeze, "policies.budget:Budget.check"]
    recheck: 1h
  unit: {cpu: 0.5, memory: 1Gi}
  defaults:
    resources: {requests: {cpu: 500m}, limits: {memory: 1Gi}}
    service_account: dexaflow-task
    image: ghcr.io/acme/etl:1.4
execution_allowlist:
  fields: [labels, annotations]
  priority_classes: []
  service_accounts: [dexaflow-task, loader]
image_allowlist: [ghcr.io/acme, "localhost:5000/x"]
tenants: {acme: dags/acme, globex: dags/globex}
parallelism: 4
history: {retention: 7d}
server: {host: 0.0.0.0, port: 9000}
logging: {format: json, level: debug}
loading: {timeout: 1m}
agent: {heartbeat: 2s, silence: 10s}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return the folder with the files that a configuration may name."""
    (tmp_path / "dags/acme").mkdir(parents=True)
    (tmp_path / "dags/globex").mkdir()
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("s3cret-token\n")
    return tmp_path


def keys(problems: list[ConfigError]) -> list[str]:
    return [problem.key for problem in problems]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("execution:\n", "execution"),
        ("execution: {admission: }", "execution.admission"),
        ("execution:\n  admission:\n    webhook:\n    # url: https://a/\n", "execution.admission.webhook"),
    ],
)
def test_a_section_with_nothing_below_it_is_an_error_as_a_key_is(load: Load, text: str, key: str) -> None:
    """Whoever commented out what stood there would run everything unchecked, and nobody would know."""
    with pytest.raises(ConfigErrors) as failed:
        load(text)
    (problem,) = failed.value.problems
    assert (problem.key, problem.problem) == (key, "there is nothing below it")


def test_an_empty_configuration_is_the_defaults_of_the_requirements(load: Load) -> None:
    """Section 2, the column of defaults."""
    for text in ("", "# nothing\n", "{}", "execution: null\n", "execution: {admission: ~}", "---\n...\n"):
        config = load(text)

        assert config.execution.admission.webhook.url is None
        assert config.execution.admission.webhook.ca_file is None
        assert config.execution.admission.webhook.token_file is None
        assert config.execution.admission.timeout == 0.5
        assert config.execution.admission.fail_open is False
        assert config.execution.admission.hooks == ()
        assert config.execution.admission.recheck == 15.0
        assert config.execution_allowlist.fields is None
        assert config.execution_allowlist.priority_classes is None
        assert config.execution_allowlist.service_accounts is None
        assert config.image_allowlist is None
        assert config.execution.unit is None
        assert config.execution.defaults.resources is None
        assert config.execution.defaults.service_account == "default"
        assert config.execution.defaults.image == ""
        assert config.tenant_folders(Path("/dags")) == {"default": Path("/dags")}
        assert config.history.retention == 30 * 86_400
        assert (config.server.host, config.server.port) == ("127.0.0.1", 8080)
        assert config.parallelism >= 8


def test_every_key_can_be_set(load: Load, files: Path) -> None:
    config = load(EVERYTHING)

    admission = config.execution.admission
    assert admission.webhook.url == "https://admission.policy.svc:8443/admit"
    assert admission.webhook.ca_file == files / "ca.crt"
    assert admission.webhook.token_file == files / "token"
    assert (admission.timeout, admission.fail_open, admission.recheck) == (1.5, True, 3600.0)
    assert admission.hooks == ("policies.freeze:freeze", "policies.budget:Budget.check")
    assert config.execution.unit is not None
    assert config.execution.defaults.resources is not None
    assert config.execution.defaults.resources.requests == {"cpu": "500m"}
    assert config.execution_allowlist.fields == frozenset({"labels", "annotations"})
    assert config.execution_allowlist.priority_classes == frozenset()
    assert config.execution_allowlist.service_accounts == frozenset({"dexaflow-task", "loader"})
    assert config.image_allowlist is not None
    assert len(config.image_allowlist) == 2
    assert config.tenant_folders(Path("/unused")) == {
        "acme": (files / "dags/acme").resolve(),
        "globex": (files / "dags/globex").resolve(),
    }
    assert config.parallelism == 4
    assert config.history.retention == 7 * 86_400
    assert (config.server.host, config.server.port) == ("0.0.0.0", 9000)
    assert (config.logging.format, config.logging.level) == ("json", "debug")
    assert config.loading.timeout == 60.0
    assert (config.agent.heartbeat, config.agent.silence) == (2.0, 10.0)


def test_the_policy_is_what_the_configuration_says(load: Load, files: Path) -> None:
    """What own checks go by (R1.2)."""
    config = load(EVERYTHING)

    policy = config.policy()

    assert policy.fields == frozenset({"labels", "annotations"})
    assert policy.priority_classes == frozenset()
    assert policy.service_accounts == frozenset({"dexaflow-task", "loader"})
    assert policy.images == config.image_allowlist
    assert policy.unit is not None
    assert policy.default_resources == config.execution.defaults.resources
    assert policy.default_service_account == "dexaflow-task"
    assert policy.default_image == "ghcr.io/acme/etl:1.4"
    assert load("").policy().unit is None


def test_a_configuration_needs_no_file(tmp_path: Path) -> None:
    config = load_config(None, {"DEXAFLOW_SERVER__PORT": "0"}, base_dir=tmp_path)

    assert config.server.port == 0


@pytest.mark.parametrize(
    ("text", "key", "problem", "fix"),
    [
        (
            "execution: {admission: {timeout: 500}}",
            "execution.admission.timeout",
            "'500' has no unit",
            "write 500ms, 30s or 15m",
        ),
        ("execution: {admission: {timeout: '500'}}", "execution.admission.timeout", "'500' has no unit", "500ms"),
        ("execution: {admission: {timeout: 0.5}}", "execution.admission.timeout", "'0.5' has no unit", "500ms"),
        ("execution: {admission: {timeout: soon}}", "execution.admission.timeout", "'soon' is not a duration", "500ms"),
        ("execution: {admission: {timeout: 9ms}}", "execution.admission.timeout", "less than 10ms", "10ms to 30s"),
        ("execution: {admission: {timeout: 31s}}", "execution.admission.timeout", "more than 30s", "10ms to 30s"),
        ("execution: {admission: {timeout: [1s]}}", "execution.admission.timeout", "a list was found", "duration"),
        ("execution: {admission: {timeout: }}", "execution.admission.timeout", "no value", "leave the key out"),
        ("execution: {admission: {timeout: 1:30}}", "execution.admission.timeout", "'1:30'", "500ms"),
        ("execution: {admission: {recheck: 999ms}}", "execution.admission.recheck", "less than 1s", "1s to 1h"),
        ("execution: {admission: {recheck: 61m}}", "execution.admission.recheck", "more than 1h", "1s to 1h"),
        (
            "execution: {admission: {fail_open: 'true'}}",
            "execution.admission.fail_open",
            "'true' was found",
            "without quotes",
        ),
        ("execution: {admission: {fail_open: 1}}", "execution.admission.fail_open", "a number", "true or false"),
        (
            "execution: {admission: {fail_open: !!bool maybe}}",
            "execution.admission.fail_open",
            "'maybe'",
            "true or false",
        ),
        ("execution: {admission: {hooks: policies:freeze}}", "execution.admission.hooks", "was found", "list"),
        (
            "execution: {admission: {hooks: [freeze]}}",
            "execution.admission.hooks",
            "entry 1: 'freeze'",
            "package.module:name",
        ),
        (
            "execution: {admission: {hooks: [a:b, a:b]}}",
            "execution.admission.hooks",
            "entry 2: 'a:b' is given twice",
            "keep one",
        ),
        ("execution: {admission: {webhook: {url: ''}}}", "execution.admission.webhook.url", "empty", "https"),
        ("execution: {admission: {webhook: {url: 8443}}}", "execution.admission.webhook.url", "a number", "https"),
        (
            "execution: {admission: {webhook: {url: http://example.com/}}}",
            "execution.admission.webhook.url",
            "loopback",
            "https",
        ),
        ("execution: {unit: {cpu: 1}}", "execution.unit.memory", "not set", "both or neither"),
        ("execution: {unit: {memory: 1Gi}}", "execution.unit.cpu", "not set", "both or neither"),
        ("execution: {unit: {cpu: 0, memory: 1Gi}}", "execution.unit.cpu", "zero", "500m"),
        ("execution: {unit: {cpu: -1, memory: 1Gi}}", "execution.unit.cpu", "negative", "500m"),
        ("execution: {unit: {cpu: one, memory: 1Gi}}", "execution.unit.cpu", "'one' is not a quantity", "500m"),
        ("execution: {unit: {cpu: true, memory: 1Gi}}", "execution.unit.cpu", "true or false", "500m"),
        ("execution: {unit: 2}", "execution.unit", "is a section", "cpu, memory"),
        (
            "execution: {defaults: {resources: {cpu: 1}}}",
            "execution.defaults.resources",
            "'cpu' is neither",
            "requests",
        ),
        (
            "execution: {defaults: {resources: {requests: {gpu: 1}}}}",
            "execution.defaults.resources",
            "requests.'gpu': unknown",
            "cpu",
        ),
        (
            "execution: {defaults: {resources: {requests: {cpu: 2}, limits: {cpu: 1}}}}",
            "execution.defaults.resources",
            "above",
            "raise",
        ),
        (
            "execution: {defaults: {service_account: 7}}",
            "execution.defaults.service_account",
            "'7' is a number",
            "in quotes",
        ),
        (
            "execution: {defaults: {service_account: a b}}",
            "execution.defaults.service_account",
            "'a b'",
            "service account",
        ),
        ("execution: {defaults: {image: 'A B'}}", "execution.defaults.image", "'A B'", "ghcr.io/acme"),
        ("execution_allowlist: {fields: [image]}", "execution_allowlist.fields", "'image' is none", "node_selector"),
        ("execution_allowlist: {fields: labels}", "execution_allowlist.fields", "'labels' was found", "list"),
        ("execution_allowlist: {fields: }", "execution_allowlist.fields", "no value", "null"),
        (
            "execution_allowlist: {priority_classes: [true]}",
            "execution_allowlist.priority_classes",
            "entry 1",
            "in quotes",
        ),
        (
            "execution_allowlist: {service_accounts: ['']}",
            "execution_allowlist.service_accounts",
            "entry 1",
            "service account",
        ),
        ("image_allowlist: ['a b']", "image_allowlist", "entry 1", "ghcr.io/acme"),
        ("image_allowlist: ghcr.io/acme", "image_allowlist", "was found", "list"),
        ("tenants: {acme: nowhere}", "tenants", "does not exist", "create it"),
        ("tenants: {acme: dexaflow.yaml}", "tenants", "is not a folder", "path"),
        ("tenants: {'a b': .}", "tenants", "tenant 'a b'", "rename"),
        ("tenants: {}", "tenants", "names no tenant", "leave the key out"),
        ("tenants: [acme]", "tenants", "a list was found", "tenant: folder"),
        ("tenants: {a: ., b: .}", "tenants", "tenant 'b'", "folder of its own"),
        ("parallelism: 0", "parallelism", "0 is less than 1", "whole number"),
        ("parallelism: 1.5", "parallelism", "'1.5'", "whole number"),
        ("parallelism: 010", "parallelism", "'010'", "whole number"),
        ("parallelism: 0x10", "parallelism", "'0x10'", "whole number"),
        ("parallelism: '4'", "parallelism", "'4' was found", "whole number"),
        ("server: {port: 65536}", "server.port", "more than 65535", "whole number"),
        ("server: {port: -1}", "server.port", "less than 0", "whole number"),
        ("server: {host: 300.1.1.1}", "server.host", "'300.1.1.1'", "address"),
        ("server: {host: 'a/b'}", "server.host", "'a/b'", "address"),
        ("logging: {level: loud}", "logging.level", "'loud'", "debug, info, warning or error"),
        ("history: {retention: 59m}", "history.retention", "less than 1h", "1h"),
        ("agent: {heartbeat: 20s}", "agent.silence", "less than two heartbeats", "40s"),
        ("execution: 3", "execution", "is a section", "admission, defaults, unit"),
        ("execution: []", "execution", "is a section", "admission"),
    ],
)
def test_a_value_that_cannot_be_used_says_what_is_wrong_and_what_to_write(
    problems: Problems, text: str, key: str, problem: str, fix: str
) -> None:
    """Wrong types and out-of-range values stop the server at boot, with the key and the fix (section 2)."""
    (found,) = problems(text)

    assert found.key == key
    assert problem in found.problem
    assert fix in found.fix
    assert len(str(found).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "key", "fix"),
    [
        ("excution: {}", "excution", "did you mean execution?"),
        (
            "execution: {admission: {failOpen: true}}",
            "execution.admission.failOpen",
            "did you mean execution.admission.fail_open?",
        ),
        (
            "execution: {admission: {webhook: {caFile: x}}}",
            "execution.admission.webhook.caFile",
            "execution.admission.webhook.ca_file?",
        ),
        ("execution: {admission: {webhook: {token: x}}}", "execution.admission.webhook.token", "webhook.token_file?"),
        ("admission: {timeout: 1s}", "admission", "did you mean execution.admission?"),
        ("execution: {webhook: {url: 'https://x'}}", "execution.webhook", "did you mean execution.admission.webhook?"),
        ("execution.admission.timeout: 1s", "execution.admission.timeout", "{execution: {admission: {timeout: ...}}}"),
        ("zzz: 1", "zzz", "take it out; here belong agent, execution"),
        (
            "execution: {admission: {webhook: {colour: x}}}",
            "execution.admission.webhook.colour",
            "take it out; here belong ca_file, token_file, url",
        ),
        ("execution: {<<: {a: 1}}", "execution.<<", "write the keys out"),
        ("'': 1", "", ""),
        ("logging: {format:json}", "logging.format...", "write a space after `format:`"),
        ("execution: {admission: {webhook: {url:https://a.b/c}}}", "webhook.url...", "write a space after `url:`"),
        (
            "execution: {admission: {time out: 1s}}",
            "execution.admission.time...",
            "did you mean execution.admission.timeout?",
        ),
    ],
)
def test_an_unknown_key_is_a_problem_that_names_the_nearest(problems: Problems, text: str, key: str, fix: str) -> None:
    (found,) = problems(text)

    assert found.problem == "unknown key"
    assert key in found.key
    assert fix in found.fix


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("DEXAFLOW_LOGING__FORMAT", "did you mean DEXAFLOW_LOGGING__FORMAT?"),
        ("DEXAFLOW_ADMISSION__TIMEOUT", "did you mean DEXAFLOW_EXECUTION__ADMISSION__TIMEOUT?"),
        ("DEXAFLOW_PARALELISM", "did you mean DEXAFLOW_PARALLELISM?"),
        ("DEXAFLOW_FOO__BAR", "unset it; `dexaflow config reference` lists the variables"),
        ("DEXAFLOW_EXECUTION__ADMISSION__WEBHOOK__COLOUR", "unset it; `dexaflow config reference` lists the variables"),
    ],
)
def test_an_unknown_variable_is_taken_for_another_only_when_it_is_close(
    problems: Problems, name: str, fix: str
) -> None:
    (found,) = problems("", **{name: "x"})
    assert (found.key, found.fix) == (name, fix)


def test_all_problems_come_at_once(problems: Problems) -> None:
    """Of the file, of the environment, and of what does not go together."""
    found = problems(
        """
        execution:
          admission: {timeout: 500, recheck: 0s, hooks: [a, "b:", c:d]}
          unit: {cpu: 1}
        unknown: 1
        parallelism: many
        parallelism: 3
        """,
        DEXAFLOW_SERVER__PORT="http",
        DEXAFLOW_EXECUTION__ADMISSION__TIMEOUTS="1s",
    )

    assert sorted(keys(found)) == sorted(
        [
            "execution.admission.timeout",
            "execution.admission.recheck",
            "execution.admission.hooks",
            "execution.admission.hooks",
            "execution.unit.memory",
            "unknown",
            "parallelism",
            "parallelism",
            "server.port",
            "DEXAFLOW_EXECUTION__ADMISSION__TIMEOUTS",
        ]
    )


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("parallelism: 1\nparallelism: 2\n", "parallelism", "lines 1 and 2"),
        ("execution:\n  admission: {}\n  admission:\n    timeout: 1s\n", "execution.admission", "lines 2 and 3"),
        ("parallelism: 1\n'parallelism': 2\n", "parallelism", "lines 1 and 2"),
        ("tenants: {acme: ., 'acme': .}", "tenants.acme", "lines 1 and 1"),
    ],
)
def test_a_key_given_twice_is_a_problem(problems: Problems, text: str, key: str, lines: str) -> None:
    """YAML would take the last; two readers would see two configurations."""
    (found,) = problems(text)

    assert found.key == key
    assert found.problem == f"given twice, on {lines}"


def test_a_key_of_any_characters_is_named_with_escapes(problems: Problems) -> None:
    """Whatever is wrong with it."""
    found = problems('"a\\u202e": 1\n"a\\u202e": 2')

    assert {problem.key for problem in found} == {r"a\u202e"}
    assert sorted(problem.problem for problem in found) == ["given twice, on lines 1 and 2", "unknown key"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("execution: [", "line 2, column 1"),
        ("a: b: c", "line 1, column"),
        ("execution:\n\tadmission: {}", "line 2, column 1"),
        ("key: 'open", "line 1"),
        ("a: *nowhere", "anchor"),
        ("a: !!python/object/apply:os.system ['id']", "tags are not read"),
        ("a: !secret x", "tags are not read"),
        ("? [a]\n: 1", "not plain text"),
        ("a: 1\n---\nb: 2", "second document"),
        ("- a", "not a mapping"),
        ("just text", "not a mapping"),
        (b"\xff\xfea", "not UTF-8"),
        (b"a: \x00", "not YAML"),
        (b"a: \x1b[31m", "not YAML"),
        ("[" * 100_000, "nest"),
        ("{a: " * 1000, "nest"),
        ("#" * 300_000, "more than 262144 bytes"),
    ],
)
def test_what_is_not_yaml_is_one_line_with_the_place(problems: Problems, text: str | bytes, said: str) -> None:
    (found,) = problems(text)

    assert "dexaflow.yaml" in found.key
    assert said in str(found)
    assert len(str(found).splitlines()) == 1


def test_a_bomb_of_anchors_stays_small(problems: Problems) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60)]

    assert len(problems("\n".join(lines))) == 60  # each an unknown key


@pytest.mark.parametrize("wide", [2, 20_000])
def test_a_bomb_of_anchors_stays_small_where_it_is_a_value_that_cannot_be_used(problems: Problems, wide: int) -> None:
    lines = [f"image_allowlist: &a0 [{', '.join(['a@b'] * wide)}]"]
    lines += [f"x{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60)]
    lines += [f"tenants: {{{', '.join(f't{n}: *a59' for n in range(9))}}}", "parallelism: *a59"]

    assert {problem.key for problem in problems("\n".join(lines))} > {"image_allowlist", "tenants", "parallelism"}


def test_anchors_can_be_used(load: Load) -> None:
    config = load("execution_allowlist: {service_accounts: &names [a], priority_classes: *names}")

    assert config.execution_allowlist.priority_classes == frozenset({"a"})


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo"])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)

    with pytest.raises(ConfigErrors) as caught:
        load_config(path, {}, base_dir=tmp_path)

    (problem,) = caught.value.problems
    assert problem.key == str(path)
    assert "cannot be read" in problem.problem


def test_null_is_unset_and_an_empty_list_allows_none(load: Load) -> None:
    config = load("execution_allowlist: {fields: null, priority_classes: ~, service_accounts: []}")

    assert config.execution_allowlist.fields is None
    assert config.execution_allowlist.priority_classes is None
    assert config.execution_allowlist.service_accounts == frozenset()


# -- the webhook's files (R2.3, R2.4)

SECRET = "s3cret-in-the-wrong-place"


@pytest.mark.parametrize(
    "text",
    [
        f"execution: {{admission: {{webhook: {{url: 'https://user:{SECRET}@host/'}}}}}}",
        f"execution: {{admission: {{webhook: {{url: 'http://{SECRET}@127.0.0.1/'}}}}}}",
        f"execution: {{admission: {{webhook: {{url: ['https://user:{SECRET}@host/']}}}}}}",
        f"execution: {{admission: {{webhook: {{url: 'https://host/', token_file: {SECRET}}}}}}}",
        f"execution: {{admission: {{webhook: {{token: {SECRET}}}}}}}",
        f"execution: {{admission: {{webhook: {{url: 'https://host/#{SECRET}'}}}}}}",
        f'execution: {{admission: {{webhook: {{url: "https://user:{SECRET}@host/\\n"}}}}}}',
        f'execution: {{admission: {{webhook: {{"https://user:{SECRET}@host/"}}}}}}',
        f'execution: {{admission: {{webhook: {{"https://user:{SECRET}@host/", "https://user:{SECRET}@host/"}}}}}}',
        f'execution: {{admission: {{webhook: {{url: "https://host/", ca_file: "https://user:{SECRET}@host/"}}}}}}',
        f'execution: {{admission: {{hooks: ["https://user:{SECRET}@host/"]}}}}',
        f'execution: {{defaults: {{image: "https://user:{SECRET}@host/etl"}}}}',
        f'image_allowlist: ["https://user:{SECRET}@host/etl"]',
        f'image_allowlist: ["https://user:{SECRET}/{"x" * 100}@host/etl"]',
        f'tenants: {{acme: "https://user:{SECRET}@host/"}}',
        f'parallelism: "https://user:{SECRET}@host/"',
    ],
)
def test_no_problem_quotes_a_secret(problems: Problems, text: str) -> None:
    """User info is refused without printing it (R2.4); a token never appears in an error (R2.3)."""
    found = problems(text)

    assert found
    assert SECRET not in "\n".join(map(str, found))


@pytest.mark.parametrize(
    "written",
    [
        f"https://user:{SECRET}@host/etl",
        f"user:{SECRET}@host/etl",
        f"{SECRET}@host/etl",
        f"//user:{SECRET}@host/etl",
        f"https:user:{SECRET}@host",
        f"https:\\\\user:{SECRET}@host",
        f"https://user:a; {SECRET}@host",
        f"https://user:@{SECRET}@host:5000/etl@sha256:abc",
        f"user:{SECRET}{'x' * 100}@host",
        f"https://host/etl?token={SECRET}",
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "execution: {defaults: {image: %s}}",
        "execution: {defaults: {service_account: %s}}",
        "execution: {defaults: {resources: {requests: {cpu: %s}}}}",
        "execution: {defaults: {resources: {%s: {cpu: 1}}}}",
        "execution: {defaults: {resources: {requests: {%s: 1}}}}",
        "execution: {admission: {hooks: [%s, '']}}",
        "execution: {admission: {timeout: %s}}",
        "execution: {admission: {webhook: {url: 'https://host/', ca_file: %s}}}",
        "execution_allowlist: {fields: [%s]}",
        "image_allowlist: [%s, '']",
        "tenants: {acme: %s}",
        "tenants: {%s: .}",
        "server: {host: %s}",
        "parallelism: %s",
        "%s: 1",
    ],
)
def test_no_problem_quotes_what_a_url_holds_before_its_at_or_in_its_query(
    problems: Problems, text: str, written: str
) -> None:
    """Whether or not it has a scheme; a message quotes a value whole, in parts, or cut off (R2.4)."""
    found = problems(text % f'"{written}"')

    assert found
    assert SECRET not in "\n".join(map(str, found))


def test_a_digest_that_is_none_is_quoted(problems: Problems) -> None:
    """What stands before its `@` is an image."""
    (found,) = problems("execution: {defaults: {image: 'host:5000/etl:1@sha256:abc'}}")

    assert "'host:5000/etl:1@sha256:abc'" in found.problem


def test_no_problem_of_the_environment_quotes_a_secret(problems: Problems) -> None:
    found = problems(
        DEXAFLOW_EXECUTION__ADMISSION__WEBHOOK__URL=f"https://user:{SECRET}@host/",
        DEXAFLOW_EXECUTION__ADMISSION__WEBHOOK__TOKEN=SECRET,
        DEXAFLOW_EXECUTION__ADMISSION__WEBHOOK__TOKEN_FILE=SECRET,
    )

    assert len(found) == 3
    assert SECRET not in "\n".join(map(str, found))


@pytest.mark.parametrize("between", [":", ": ", "=", " ", "|", "/", "@", "->", "\N{FULLWIDTH COLON}", "(", "#", "?"])
@pytest.mark.parametrize("behind", ["", ": 1", ": {a: 1}"])
@pytest.mark.parametrize("word", ["token", "token_file", "url", "x"])
def test_a_value_that_stands_in_a_key_is_not_quoted(problems: Problems, word: str, between: str, behind: str) -> None:
    """`{token:secret}`, without the space, is one key to YAML."""
    for key in (f"{word}{between}{SECRET}", f"{word}{between}{SECRET}.{SECRET}"):
        for text in (f'webhook: {{"{key}"{behind}}}', f'webhook: {{"{key}"{behind}, "{key}": 2}}', f'"{key}"{behind}'):
            found = problems(f"execution: {{admission: {{{text}}}}}")

            assert "unknown key" in {problem.problem for problem in found}
            assert SECRET not in "\n".join(map(str, found))


@pytest.mark.parametrize("between", [": ", ":", " ", "\t", ".", "\n", "\N{NO-BREAK SPACE}", "\N{FULLWIDTH COLON}"])
@pytest.mark.parametrize(
    "key", ["DEXAFLOW_EXECUTION__ADMISSION__WEBHOOK__TOKEN", "DEXAFLOW_ADMISSION__TOKEN", "DEXAFLOW_PARALLELISM"]
)
def test_a_value_that_stands_in_the_name_of_a_variable_is_a_problem_and_is_not_quoted(
    problems: Problems, key: str, between: str
) -> None:
    """`NAME: value` in a file of variables is a name up to the "=" at the end of a token in base64."""
    (found,) = problems("", **{f"{key}{between}{SECRET}": "="})

    assert (found.key, found.fix) == (f"{key}...", "write NAME=value, the name in letters, digits and _")
    assert SECRET not in str(found)


URL = "execution: {admission: {webhook: {url: 'https://host/admit', %s}}}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"", "it is empty"),
        (b"\n", "it is empty"),
        (b"\r\n", "it is empty"),
        (b"a\n\n", "break a header"),
        (b"a b", "break a header"),
        (b"a\x00b", "break a header"),
        (b"\xc3\xa9", "break a header"),
    ],
)
def test_a_token_that_cannot_be_sent_is_a_clear_error(
    problems: Problems, tmp_path: Path, content: bytes | None, said: str
) -> None:
    """A token that is empty or would break a header is a clear error at boot (R2.3)."""
    if content is not None:
        (tmp_path / "token").write_bytes(content)

    (found,) = problems(URL % "token_file: token")

    assert found.key == "execution.admission.webhook.token_file"
    assert said in found.problem


@pytest.mark.parametrize("content", [b"abc", b"abc\n", b"abc\r\n"])
def test_one_trailing_line_end_of_the_token_is_dropped(problems: Problems, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)

    assert problems(URL % "token_file: token") == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"", "PEM certificates"),
        (b"not pem", "PEM certificates"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "PEM certificates"),
        (b"\xff\x00", "PEM certificates"),
    ],
)
def test_a_bundle_that_cannot_be_used_is_a_clear_error(
    problems: Problems, tmp_path: Path, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "ca.crt").write_bytes(content)

    (found,) = problems(URL % "ca_file: ca.crt")

    assert found.key == "execution.admission.webhook.ca_file"
    assert said in found.problem


@pytest.mark.parametrize("written", [SECRET, f"'734892{SECRET}'", f"a/{SECRET}", "734892", "'" + 400 * "734892" + "'"])
def test_a_secret_in_the_place_of_the_bundle_is_not_quoted(problems: Problems, written: str) -> None:
    """People who mix up the two files mix up their content too (R2.3)."""
    (found,) = problems(URL % f"ca_file: {written}")

    assert found.key == "execution.admission.webhook.ca_file"
    assert SECRET not in str(found)
    assert "734892" not in str(found)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("tls/ca.crt", "'{0}/tls/ca.crt' names a file that does not exist"),
        ("tls/bundle", "names a file that does not exist in '{0}/tls'"),
    ],
)
def test_a_bundle_that_is_not_there_is_named_where_that_can_be_no_secret_else_its_folder_is(
    problems: Problems, tmp_path: Path, written: str, said: str
) -> None:
    (tmp_path / "tls").mkdir()

    (found,) = problems(URL % f"ca_file: {written}")

    assert found.problem == said.format(tmp_path)


def test_a_token_without_an_endpoint_is_a_problem(problems: Problems, files: Path) -> None:
    """Whoever mounts one believes that admission is on."""
    found = problems("execution: {admission: {webhook: {ca_file: ca.crt, token_file: token}}}")

    assert keys(found) == ["execution.admission.webhook.ca_file", "execution.admission.webhook.token_file"]
    assert "url is not" in found[0].problem


def test_nested_tenant_folders_are_a_problem(problems: Problems, tmp_path: Path) -> None:
    """A DAG file would belong to two tenants; also through a link."""
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")

    assert keys(problems("tenants: {x: a, y: a/b}")) == ["tenants"]
    assert keys(problems("tenants: {x: a, y: link}")) == ["tenants"]


# -- the environment


def test_the_environment_wins(load: Load) -> None:
    config = load(
        "execution: {admission: {timeout: 1s, fail_open: false}, defaults: {service_account: a}}",
        DEXAFLOW_EXECUTION__ADMISSION__TIMEOUT="2s",
        DEXAFLOW_EXECUTION__ADMISSION__FAIL_OPEN="true",
        DEXAFLOW_EXECUTION__ADMISSION__HOOKS='["a:b"]',
        DEXAFLOW_EXECUTION__DEFAULTS__SERVICE_ACCOUNT="123",
        DEXAFLOW_EXECUTION__DEFAULTS__RESOURCES="{requests: {cpu: 1}}",
        DEXAFLOW_EXECUTION__UNIT__CPU="2",
        DEXAFLOW_EXECUTION__UNIT__MEMORY="1Gi",
        DEXAFLOW_SERVER__PORT="9001",
        DEXAFLOW_TENANTS="{acme: .}",
        DEXAFLOW_IMAGE_ALLOWLIST="[]",
    )

    assert config.execution.admission.timeout == 2.0
    assert config.execution.admission.fail_open is True
    assert config.execution.admission.hooks == ("a:b",)
    assert config.execution.defaults.service_account == "123"
    assert config.execution.defaults.resources is not None
    assert config.execution.unit is not None
    assert config.server.port == 9001
    assert set(config.tenants) == {"acme"}
    assert config.image_allowlist == ()


def test_a_value_of_the_environment_hides_a_bad_one_of_the_file(load: Load) -> None:
    assert load("parallelism: many", DEXAFLOW_PARALLELISM="2").parallelism == 2


def test_null_in_the_environment_unsets_what_the_file_sets(load: Load) -> None:
    config = load("execution_allowlist: {fields: [labels]}", DEXAFLOW_EXECUTION_ALLOWLIST__FIELDS="null")

    assert config.execution_allowlist.fields is None


@pytest.mark.parametrize(
    ("name", "value", "key", "said"),
    [
        (
            "DEXAFLOW_EXECUTION__ADMISSION__TIMEOUT",
            "500",
            "execution.admission.timeout",
            "'500' has no unit (from DEXAFLOW_",
        ),
        ("DEXAFLOW_EXECUTION__ADMISSION__TIMEOUT", "", "execution.admission.timeout", "no value"),
        ("DEXAFLOW_EXECUTION__ADMISSION__WEBHOOK__URL", "", "execution.admission.webhook.url", "no value"),
        ("DEXAFLOW_EXECUTION_ALLOWLIST__FIELDS", "", "execution_allowlist.fields", "no value"),
        ("DEXAFLOW_EXECUTION_ALLOWLIST__FIELDS", "labels", "execution_allowlist.fields", "'labels' was found"),
        ("DEXAFLOW_EXECUTION_ALLOWLIST__FIELDS", "[labels", "execution_allowlist.fields", "not YAML"),
        ("DEXAFLOW_EXECUTION_ALLOWLIST__FIELDS", " # none", "execution_allowlist.fields", "no value"),
        ("DEXAFLOW_TENANTS", "{a: ., a: .}", "tenants", "a: given twice"),
        ("DEXAFLOW_SERVER__PORT", "http", "server.port", "'http'"),
        ("DEXAFLOW_EXECUTION__ADMISSION__FAIL_OPEN", "maybe", "execution.admission.fail_open", "'maybe'"),
        (
            "DEXAFLOW_EXECUTION__ADMISSION__TIMEOUTS",
            "1s",
            "DEXAFLOW_EXECUTION__ADMISSION__TIMEOUTS",
            "DEXAFLOW_EXECUTION__ADMISSION__TIMEOUT?",
        ),
        ("DEXAFLOW_EXECUTION__ADMISSION__FAILOPEN", "1s", "DEXAFLOW_EXECUTION__ADMISSION__FAILOPEN", "FAIL_OPEN?"),
        (
            "DEXAFLOW_execution__admission__timeout",
            "1s",
            "DEXAFLOW_execution__admission__timeout",
            "ADMISSION__TIMEOUT?",
        ),
        ("DEXAFLOW_EXECUTION_ADMISSION_TIMEOUT", "1s", "DEXAFLOW_EXECUTION_ADMISSION_TIMEOUT", "ADMISSION__TIMEOUT?"),
        ("DEXAFLOW_IMAGE_ALLOWLISTS", "[]", "DEXAFLOW_IMAGE_ALLOWLISTS", "DEXAFLOW_IMAGE_ALLOWLIST?"),
        ("DEXAFLOW_X__Y", "1s", "DEXAFLOW_X__Y", "is no key"),
        ("DEXAFLOW_EXECUTION", "{}", "DEXAFLOW_EXECUTION", "names a section"),
        ("DEXAFLOW_EXECUTION__ADMISSION", "{}", "DEXAFLOW_EXECUTION__ADMISSION", "names a section"),
        ("DEXAFLOW_TENANTS__ACME", ".", "DEXAFLOW_TENANTS__ACME", "DEXAFLOW_TENANTS to all of it"),
    ],
)
def test_a_bad_variable_is_a_problem(problems: Problems, name: str, value: str, key: str, said: str) -> None:
    """Unknown variables too: a mistyped one would silently leave the default."""
    (found,) = problems("", **{name: value})

    assert found.key == key
    assert said in str(found)


def test_bytes_of_a_variable_that_are_not_utf8_are_a_problem(problems: Problems) -> None:
    """They come as lone surrogates, which YAML's reader cannot take."""
    found = problems(
        "",
        DEXAFLOW_TENANTS="{acme: \udcff}",
        DEXAFLOW_EXECUTION__ADMISSION__HOOKS="\udcff",
        DEXAFLOW_SERVER__HOST="\udcff",
    )

    assert {problem.key for problem in found} == {"tenants", "execution.admission.hooks", "server.host"}
    assert all(str(problem).isprintable() for problem in found)


def test_variables_of_others_are_left_alone(problems: Problems) -> None:
    """The command line's own, and what Kubernetes sets for a Service called dexaflow."""
    assert (
        problems(
            DEXAFLOW_URL="http://127.0.0.1:8080",
            DEXAFLOW_TOKEN="t",
            DEXAFLOW_SERVICE_HOST="10.0.0.1",
            DEXAFLOW_PORT="tcp://10.0.0.1:80",
            DEXAFLOW_SERVER_PORT="tcp://10.0.0.1:80",
            DEXAFLOW_PORT_8080_TCP_ADDR="10.0.0.1",
            HOME="/",
        )
        == []
    )


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=80), st.text("{}[]:,&*!|>'\"#%@-?ab \n\t\\0", max_size=60).map(str.encode)))
def test_no_file_makes_more_than_problems(problems: Problems, content: bytes) -> None:
    for problem in problems(content):
        assert len(str(problem).splitlines()) == 1
        str(problem).encode()


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(
        [
            "execution.admission.timeout",
            "execution.admission.fail_open",
            "execution.admission.hooks",
            "execution.unit.cpu",
            "execution.defaults.resources",
            "execution_allowlist.fields",
            "image_allowlist",
            "tenants",
            "server.port",
            "server.host",
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
)
def test_no_value_makes_more_than_problems(problems: Problems, key: str, value: object) -> None:
    document: object = value
    for part in reversed(key.split(".")):
        document = {part: document}
    for problem in problems(json.dumps(document)):
        assert len(str(problem).splitlines()) == 1
        str(problem).encode()
