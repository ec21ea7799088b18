"""What reads text from outside, each as one function of bytes that raises when a promise is broken.

The promises: nothing is raised but the error that is declared; its message is one line without control characters and
holds no secret; what comes out is canonical (reading it again gives the same) and can be kept by every reader further
on; the work is in proportion to the input. Where there is a second opinion (Go's decoder, a slower reader of ours, the
same bytes in other pieces), it has to be the same.

`soak` drives these with a coverage-guided fuzzer, the tests with Hypothesis and with the corpus.
"""

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dexaflow.admission import golang_json
from dexaflow.admission.changes import NotAllowed, apply_changes
from dexaflow.admission.check_answer import check_answer
from dexaflow.admission.decisions import Admit, Request, well_formed
from dexaflow.admission.decoding import decode_answer, decode_quickly, decode_strictly
from dexaflow.admission.envelope import AnswerError, QuestionError, answer, question, read_answer, read_question
from dexaflow.api.agent_routes import _finish
from dexaflow.api.answers import encode, kept_json
from dexaflow.api.bodies import check_body
from dexaflow.api.problems import Problem
from dexaflow.base.durations import format_duration, parse_duration
from dexaflow.base.errors import ConfigError, ConfigErrors, DagError, UsageError
from dexaflow.base.text import MAX_REASON_BYTES, clean_reason, cut, quoted, shown
from dexaflow.cli.moments import ago, full, short, until
from dexaflow.cli.run_inputs import conf_from, moment_from
from dexaflow.config.loading import load_config
from dexaflow.hooks.files import token_in
from dexaflow.hooks.finding import load_hook
from dexaflow.hooks.reading import MAX_BODY_BYTES, AnswerReader
from dexaflow.hooks.url import parse_webhook_url
from dexaflow.kube.annotations import annotations_problem
from dexaflow.kube.names import (
    annotation_key_problem,
    dns1123_label_problem,
    dns1123_subdomain_problem,
    label_key_problem,
    label_value_problem,
    service_account_problem,
)
from dexaflow.kube.quantities import Quantity
from dexaflow.kube.tolerations import Toleration, toleration_problem
from dexaflow.loading.loader import _loaded as loaded
from dexaflow.model.dags import DagSpec
from dexaflow.model.execution import Execution
from dexaflow.policy.checks import check_task
from dexaflow.policy.images import ImagePattern, ImageReference
from dexaflow.policy.policy import Policy, Unit
from dexaflow.scheduling.cron import Cron
from dexaflow.tokens.keys import SigningKey, public_keys
from dexaflow.tokens.verify import TokenRejected, Verifier
from tests.fuzz.golang import GO_READER, GoReader

__all__ = ["SECRET", "TARGETS", "Target"]

SECRET: Final = "s3cr3t"  # no message may hold it where it stands in a secret's place
UID: Final = "6f1c2a8e-0d4b-4f5e-9a3c-2b7d8e1f0a42"


@dataclass(frozen=True, slots=True)
class Target:
    """One reader. `words` are what a fuzzer cannot guess; `max_bytes` is somewhat more than the reader takes."""

    name: str
    run: Callable[[bytes], None]
    words: tuple[str, ...] = ()
    max_bytes: int = 4096


def _text(data: bytes) -> str:
    """Return bytes as text of any kind: those that are not UTF-8 as lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def _one_line(message: str, most: int = 2000) -> None:
    assert message == shown(message), f"not one clean line: {message!r}"
    assert message.strip(), "it says nothing"
    assert len(message) <= most, f"{len(message)} characters: {message[:100]!r}"


def _keepable(*texts: str) -> None:
    for text in texts:
        text.encode()


# -- admission


@cache
def _go() -> GoReader | None:
    """Go's opinion, where a program that has it was built (`golang.build`)."""
    path = os.environ.get(GO_READER)
    return GoReader(Path(path)) if path else None


def answers(data: bytes) -> None:
    """An answer's body."""
    quick = decode_quickly(data)
    fault: golang_json.Fault | None = None
    decoded = None
    try:
        decoded = decode_strictly(data)
    except golang_json.Fault as found:
        fault = found
        _one_line(str(found))
    assert quick is None or quick == decoded, "the two decoders differ"
    if decoded is not None:
        assert decode_answer(data) == decoded
        _keepable(decoded.uid, decoded.reason, decoded.decision, *decoded.changes.labels.values())
    if _go() is not None and len(data) <= MAX_BODY_BYTES:
        _as_go(data, decoded, fault)
    try:
        decision = read_answer(data, None)
    except AnswerError as error:
        _one_line(str(error))
        assert error.ambiguous == (fault is not None and fault.duplicate)
        assert check_answer(data).problem == str(error)
        return
    assert well_formed(decision) in (decision, well_formed(well_formed(decision)))
    check = check_answer(data, service_accounts=["a"], priority_classes=["a"])
    assert check.problem == shown(check.problem)
    assert clean_reason(check.reason) == check.reason
    if isinstance(decision, Admit):
        with contextlib.suppress(ValueError):  # the same may take more bytes, written our way
            assert read_answer(answer(UID, decision), UID) == decision
        applied = apply_changes(decision.changes, Execution(), (), by="hook:x", allowed=Policy())
        if not isinstance(applied, NotAllowed):
            again = apply_changes(decision.changes, applied.execution, applied.settings, by="hook:x", allowed=Policy())
            assert not isinstance(again, NotAllowed)
            assert not again.changed, "the same change twice changes twice"


def _as_go(data: bytes, decoded: Any, fault: golang_json.Fault | None) -> None:
    go = _go()
    assert go is not None
    theirs = go.read(data)
    if fault is not None:
        assert theirs is None or fault.duplicate, f"Go takes what we refuse: {fault}"
        return
    assert theirs is not None, "Go refuses what we take"
    response = theirs["response"] or {}
    changes = response.get("changes") or {}
    ours = decoded.changes
    assert (theirs["api_version"], theirs["kind"]) == (decoded.api_version, decoded.kind)
    for name in ("uid", "decision", "reason"):
        assert response.get(name, "") == getattr(decoded, name)
    for name in ("labels", "annotations", "node_selector"):
        assert (changes.get(name) or {}) == dict(getattr(ours, name))
    for name in ("service_account", "priority_class_name"):
        assert changes.get(name, "") == getattr(ours, name)
    assert [Toleration(**t) for t in changes.get("tolerations") or ()] == list(ours.tolerations)


def questions(data: bytes) -> None:
    """A question's body, as an endpoint reads it."""
    try:
        request = read_question(data)
    except QuestionError as error:
        _one_line(str(error))
        return
    written = question(request)
    assert read_question(written) == request
    assert question(read_question(written)) == written
    assert isinstance(request, Request)


def http_answers(data: bytes) -> None:
    """The bytes of a connection on which an answer is awaited; in pieces of any size they say the same."""

    def read(pieces: list[bytes]) -> tuple[object, ...]:
        reader = AnswerReader()
        done = False
        for piece in pieces:
            done = reader.feed(piece)
            if done:
                break
        if not done:
            done = reader.end_of_stream()
        assert len(reader.body) <= MAX_BODY_BYTES or reader.status != 200
        if reader.fault:
            assert reader.fault.isprintable(), reader.fault
        if not done:
            return ("waits", reader.status)
        if reader.fault:
            return ("fault",)
        return (reader.status, reader.body if reader.status == 200 else b"")

    if not data:
        return
    cut_at, data = data[0], data[1:]
    whole = read([data] if data else [])
    pieces = [data[:cut_at], data[cut_at:]] if 0 < cut_at < len(data) else [data[n : n + 1] for n in range(len(data))]
    in_pieces = read([piece for piece in pieces if piece])
    if whole[0] != "fault" and in_pieces[0] != "fault":
        # An answer that is complete is taken before what follows it is seen: in one piece, both are there.
        assert whole == in_pieces, f"{whole} in one piece, {in_pieces} in others"


def webhook_urls(data: bytes) -> None:
    """The webhook's URL; its error quotes nothing, for user info may be anywhere in it."""
    text = _text(data)
    try:
        endpoint = parse_webhook_url(text)
    except ValueError as error:
        _one_line(str(error))
        assert SECRET not in str(error)
        return
    assert "@" not in endpoint.authority
    assert endpoint.authority.isascii()
    assert endpoint.target.isascii()
    assert endpoint.target.startswith(("/", "?"))
    assert endpoint.target.isprintable()
    assert " " not in endpoint.authority + endpoint.target
    again = parse_webhook_url(f"{endpoint.scheme}://{endpoint.authority}{endpoint.target}")
    assert again == endpoint


def token_files(data: bytes) -> None:
    """The content of a token's file."""
    try:
        token = token_in(data)
    except ValueError as error:
        _one_line(str(error))
        assert SECRET not in str(error)
        return
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token
    assert token_in(token.encode()) == token


def hook_paths(data: bytes) -> None:
    """`package.module:name`; only what cannot be found is asked for."""
    text = _text(data)
    if re.search(r"[^\W\d]\w*", text):
        text = re.sub(r"[^\W\d]\w*", lambda m: f"zz_{m[0]}", text)  # no module of the machine's is imported
    try:
        load_hook(text)
    except ConfigError as error:
        _one_line(str(error))


# -- text


def texts(data: bytes) -> None:
    """Cleaning, cutting and showing."""
    text = _text(data)
    kept = clean_reason(text)
    assert clean_reason(kept) == kept
    assert len(kept.encode()) <= MAX_REASON_BYTES
    assert not re.search("[\x00-\x1f\x7f-\x9f]", kept)
    line = shown(text)
    assert line == shown(line)
    assert len(line.splitlines()) <= 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]", line)
    assert len(line) <= 10 * len(text)
    for most in (0, 1, 2, 3, 7, 512):
        part = cut(text, most)
        assert text.startswith(part)
        assert len(part.encode("utf-8", "surrogatepass")) <= most
    assert len(quoted(text)) <= 802


def durations(data: bytes) -> None:
    """``1m30s``."""
    text = _text(data)
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        _one_line(str(error))
        return
    written = format_duration(seconds)
    assert abs(parse_duration(written) - seconds) <= 1e-6
    assert format_duration(parse_duration(written)) == written


# Summer time north and south, by half an hour, in Ramadan; a day that never was (2011).
_ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia", "UTC")
_FIRST = datetime(2009, 1, 1, tzinfo=UTC)


def crons(data: bytes) -> None:
    """Five fields; after a line end, the zone and the moment. Both ways are one another's."""
    first, _, rest = data.partition(b"\n")
    text = _text(first)
    zone = _ZONES[(rest[0] if rest else 0) % len(_ZONES)]
    now = _FIRST + timedelta(minutes=int.from_bytes(rest[1:4], "big"))  # 32 years of them
    try:
        schedule = Cron(text, ZoneInfo(zone))
    except ValueError as error:
        _one_line(str(error))
        return
    following = schedule.after(now)
    if following is None:
        return
    assert following > now
    assert schedule.after(following - timedelta(seconds=1)) == following
    before = schedule.before(following + timedelta(seconds=1))
    assert before == following, (text, zone, before, following)
    last = schedule.before(following)
    if last is not None:
        assert last <= now, f"{text} in {zone} fires at {last}, between {now} and {following}"
        assert schedule.after(last) == following, (text, zone, last, schedule.after(last), following)


# -- Kubernetes


def quantities(data: bytes) -> None:
    """Amounts; two of them, with the second after a line end."""
    first, _, second = _text(data).partition("\n")
    found = []
    for text in (first, second):
        try:
            found.append(Quantity.parse(text))
        except ValueError as error:
            _one_line(str(error))
    for one in found:
        assert Quantity.parse(one.exact_text) == one
        assert Quantity.parse(one.string).sign == one.sign
        assert one.compare(one) == 0
        assert one.sub(one).sign == 0
        assert hash(Quantity.parse(one.exact_text)) == hash(one)
        assert one.value() * 1000 >= one.milli_value() or one.sign < 0
        _ = one.decimal
    if len(found) == 2:
        one, other = found
        assert one.compare(other) == -other.compare(one)
        assert (one == other) == (one.compare(other) == 0)
        assert one.add(other) == other.add(one)
        assert one.add(other).sub(other) == one
        if other.sign > 0:
            units = one.units(other)
            assert other.mul(units).compare(one) >= 0
            assert other.mul(units - 1).compare(one) < 0


def names(data: bytes) -> None:
    """Keys, values, names and tolerations: functions of any text at all."""
    text = _text(data)
    for problem in (
        label_key_problem(text),
        annotation_key_problem(text),
        label_value_problem(text),
        dns1123_label_problem(text),
        dns1123_subdomain_problem(text),
        service_account_problem(text),
        annotations_problem({text: text}),
    ):
        if problem is not None:
            _one_line(problem)
    if label_key_problem(text) is None:
        assert annotation_key_problem(text) is None
        assert len(text.encode()) <= 253 + 1 + 63
        assert text.isascii()
    if dns1123_label_problem(text) is None:
        assert dns1123_subdomain_problem(text) is None
    parts = [*text.split("\n"), "", "", ""][:4]
    problem = toleration_problem(Toleration(*parts))
    if problem is not None:
        _one_line(problem)


def images(data: bytes) -> None:
    """Image references, and an allowlist's entries."""
    text = _text(data)
    try:
        reference = ImageReference.parse(text)
    except ValueError as error:
        _one_line(str(error))
    else:
        assert ImageReference.parse(str(reference)) == reference
        assert str(reference).isascii()
    try:
        pattern = ImagePattern.parse(text)
    except ValueError as error:
        _one_line(str(error))
        return
    example = "/".join((pattern.registry, *(pattern.path or ("x",))))
    with contextlib.suppress(ValueError):
        whole = ImageReference.parse(
            example + (f":{pattern.tag}" if pattern.tag else "") + (f"@{pattern.digest}" if pattern.digest else "")
        )
        assert pattern.allows(whole), (text, whole)


# -- configuration

_FOLDER = Path(tempfile.mkdtemp(prefix="dexaflow-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
_USER_INFO = re.compile(rf"://[^\s\0/@'\",]*{SECRET}[^\s\0/@'\",]*@")


def configurations(data: bytes) -> None:
    """A file, and after a NUL `NAME=value` lines of the environment."""
    content, _, rest = data.partition(b"\0")
    environ = {}
    for line in rest.split(b"\0"):
        name, _, value = os.fsdecode(line).partition("=")
        environ["DEXAFLOW_" + name] = value
    path = _FOLDER / "dexaflow.yaml"
    path.write_bytes(content)
    try:
        config = load_config(path, environ if rest else {}, base_dir=_FOLDER)
    except ConfigErrors as errors:
        whole = _text(data)
        hidden = SECRET in whole and SECRET not in _USER_INFO.sub("", whole)
        for problem in errors.problems:
            _one_line(str(problem), 4000)
            assert not hidden or SECRET not in str(problem), f"it tells the secret: {problem}"
        return
    config.policy()


# -- DAGs

_POLICIES = (
    Policy(),
    Policy(
        fields=frozenset({"labels"}),
        priority_classes=frozenset(),
        service_accounts=frozenset({"a"}),
        images=(ImagePattern.parse("ghcr.io/acme"),),
        unit=Unit(Quantity.parse("500m"), Quantity.parse("1Gi")),
    ),
)


def dag_documents(data: bytes) -> None:
    """What the process that loads a DAG file hands over; that process ran foreign code."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    try:
        found = loaded("dags/a.py", document, "")
    except (ValueError, RecursionError):  # the loader says that it cannot be used
        return
    if isinstance(found, DagError):
        _one_line(str(found))
        return
    for error in found.errors:
        _one_line(str(error))
    for spec in found.dags:
        written = json.dumps(spec.to_json())
        assert DagSpec.from_json(json.loads(written)) == spec
        json.dumps(spec.to_json(), ensure_ascii=False, allow_nan=False).encode()
        assert "\0" not in written.encode().decode("unicode_escape", "replace") or "\\u0000" not in written
        for task in spec.tasks:
            for policy in _POLICIES:
                for rejection in check_task(task, policy):
                    _one_line(rejection.message)


# -- the API and the command line


def api_bodies(data: bytes) -> None:
    """A body that passed can be kept and sent on by every reader after it."""
    try:
        check_body(data)
    except Problem as problem:
        assert problem.status in (400, 422)
        _one_line(problem.detail)
        return
    value = json.loads(data)  # what the routes read it with
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def run_inputs(data: bytes) -> None:
    """`--conf` and `--logical-date`, and the moments that an answer of the API holds."""
    text = _text(data)
    if not text.startswith("@"):  # a file
        try:
            conf = conf_from(text)
        except UsageError as error:
            _one_line(str(error))
        else:
            assert isinstance(conf, dict)
    try:
        moment = moment_from(text)
    except UsageError as error:
        _one_line(str(error))
    else:
        assert datetime.fromisoformat(moment).tzinfo is not None
        assert moment_from(moment) == moment
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for line in (short(text, now), full(text), until(text, now), ago(text, now)):
        assert line == shown(line)


def agent_reports(data: bytes) -> None:
    """What an agent says at the end; a task may have got hold of its token."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(said, dict):
        return
    try:
        finish = _finish(said)
    except Problem as problem:
        assert problem.status in (400, 413)
        return
    _keepable(finish.reason)
    assert len(finish.reason) <= 4096
    if finish.result is not None:
        json.dumps(json.loads(finish.result), allow_nan=False)
        encode(kept_json(finish.result, None))


_KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(32)), "corpus")
_VERIFIER = Verifier(public_keys(_KEY), time.monotonic)


def agent_tokens(data: bytes) -> None:
    """A bearer token that nobody here has minted is never good."""
    try:
        _VERIFIER.verify(_text(data))
    except TokenRejected as error:
        _one_line(str(error))
        assert SECRET not in str(error)
    else:
        raise AssertionError("a token that nobody minted was taken")


_ENVELOPE = ("api_version", "kind", "dexaflow.io/admission/v1", "AdmissionReview", '"response"', '"request"')
_PLACEMENT = (
    '"node_selector"', '"tolerations"', '"labels"', '"annotations"', '"priority_class_name"', '"service_account"',
    '"key"', '"operator"', '"value"', '"effect"', "NoSchedule", "Exists", "\u017f", "\u212a", "\\ud83d\\ude00", "null",
)  # fmt: skip
_DAG_WORDS = (
    '"dags"', '"files"', '"error"', '"line"', '"cause"', '"dag_id"', '"tasks"', '"task_id"', '"operator"', '"bash"',
    '"python"', '"upstream"', '"results_from"', '"env_from"', '"bash_command"', '"schedule"', '"timezone"',
    '"start_date"', '"catchup"', '"max_active_runs"', '"dagrun_timeout"', '"tags"', '"image"', '"resources"',
    '"requests"', '"limits"', '"execution"', '"retries"', '"retry_delay"', '"trigger_rule"', '"all_success"',
    '"dags/a.py"', "NaN", "1e999", "-0.0", '"@daily"', "Europe/Berlin", "2026-01-01T00:00:00+00:00", "\\u0000",
)  # fmt: skip
_CONFIG_WORDS = (
    "execution:", "admission:", "webhook:", "url:", "ca_file:", "token_file:", "timeout:", "fail_open:", "hooks:",
    "recheck:", "execution_allowlist:", "fields:", "image_allowlist:", "unit:", "cpu:", "memory:", "defaults:",
    "tenants:", "history:", "retention:", f"https://jo:{SECRET}@policy.svc", "!!binary", "&a", "*a", "<<:", "? ", "---",
    "EXECUTION__ADMISSION__TIMEOUT=", "EXECUTION__ADMISSION__HOOKS=", "EXECUTION__UNIT__CPU=",
)  # fmt: skip

TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        Target("answers", answers, (*_ENVELOPE, *_PLACEMENT, '"uid"', '"decision"', '"admit"', '"hold"'), 66_000),
        Target("questions", questions, (*_ENVELOPE, *_PLACEMENT, '"resources"', '"try_number"', '"dag_id"'), 8192),
        Target(
            "http_answers",
            http_answers,
            ("HTTP/1.1 200 OK\r\n", "Content-Length: ", "Transfer-Encoding: chunked\r\n", "\r\n\r\n", "HTTP/1.1 100 "),
            70_000,
        ),
        Target("webhook_urls", webhook_urls, ("https://", "localhost", "[::1]", "127.0.0.1", "xn--", f":{SECRET}@")),
        Target("token_files", token_files, (SECRET, "\r\n"), 20_000),
        Target("hook_paths", hook_paths, (".", ":")),
        Target("texts", texts, ("\x1b[", "\u202e", "\u2028", "\ud83d"), 10_000),
        Target("durations", durations, ("ms", "30s", "1h", "d"), 100),
        Target("crons", crons, ("* * * * *", "0 6 * * 1-5", "L", "#", "FEB", "*/", "@daily"), 200),
        Target("quantities", quantities, ("Ki", "Gi", "Ei", "e9", "E-9", "m", "n", "u"), 1400),
        Target("names", names, ("dexaflow.io/", "leoflow.io/", "Exists", "Equal", "\u212a", "\u0130"), 600),
        Target("images", images, ("ghcr.io/", "@sha256:", "localhost:5000/", "docker.io/", "library/"), 1200),
        Target("configurations", configurations, _CONFIG_WORDS, 8192),
        Target("dag_documents", dag_documents, _DAG_WORDS, 16_384),
        Target("api_bodies", api_bodies, ("\\ud800", "NaN", "1e999", "18446744073709551616", "\\u0000"), 8192),
        Target("run_inputs", run_inputs, ("2026-01-01T00:00:00+00:00", '{"a":', "W01"), 2048),
        Target(
            "agent_reports",
            agent_reports,
            (
                '"state"',
                '"success"',
                '"failed"',
                '"exit_code"',
                '"reason"',
                '"timed_out"',
                '"log_tail"',
                '"log_offset"',
                '"result"',
                "\\ud800",
                "NaN",
                "aGk=",
            ),
            8192,
        ),
        Target("agent_tokens", agent_tokens, ("eyJ", ".", SECRET), 9000),
    )
}
