"""The endpoint behind a URL as a hook (R2.3, R4, R7.1)."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import structlog
import trustme

from dexaflow.admission.decisions import Admit, Hold, Refuse
from dexaflow.admission.envelope import AnswerError, question
from dexaflow.base.errors import ConfigError, HookBroken
from dexaflow.hooks.webhook import CA_FILE_KEY, TOKEN_FILE_KEY, WebhookCaller
from tests.hooks.asking import LONG, SHORT
from tests.hooks.building import a_request
from tests.hooks.misbehaving import Endpoint, Peer, answer, decided, deciding
from tests.hooks.mounts import mounted, put_version


async def test_question_goes_out_and_the_decision_comes_back() -> None:
    changes = {"node_selector": {"tenant": "acme"}}
    for script, expected in [
        (deciding(decision="admit"), Admit()),
        (deciding(decision="hold", reason="later"), Hold("later")),
        (deciding(decision="refuse", reason="never"), Refuse("never")),
    ]:
        async with Endpoint(script) as endpoint, WebhookCaller(endpoint.url, timeout=LONG) as caller:
            answered = await caller.ask(a_request())
            assert answered.decision == expected
            assert answered.seconds > 0
            assert json.loads(endpoint.questions[0].partition(b"\r\n\r\n")[2])["request"]["task_id"] == "extract"
    async with Endpoint(deciding(decision="admit", changes=changes)) as endpoint:
        async with WebhookCaller(endpoint.url, timeout=LONG) as caller:
            admitted = (await caller.ask(a_request())).decision
            assert isinstance(admitted, Admit)
            assert admitted.changes.node_selector == {"tenant": "acme"}
            assert caller.name == "webhook"
            assert caller.stale_files() == {}


@pytest.mark.parametrize(
    ("changes", "usable"),
    [
        ({"labels": {f"k{n}": None for n in range(4_000)}}, True),
        ({"tolerations": [{"key": ""}] * 4_000}, True),
        ({"tolerations": [{"kind": ""}] * 4_000}, False),
    ],
    ids=["labels", "tolerations", "unknown fields"],
)
async def test_while_a_long_answer_is_read_other_attempts_get_their_turn(
    changes: dict[str, object], usable: bool
) -> None:
    """An endpoint, hostile or clumsy, that sends 64 KB of names delays nobody by more than a step of the reading."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with Endpoint(deciding(decision="admit", changes=changes)) as endpoint:
        async with WebhookCaller(endpoint.url, timeout=LONG) as caller:
            response = await caller.send(question(a_request()))  # how it reads is known apart from how it arrives
            reading = caller._long_answers.do(caller._answers.reading(response.body, a_request().uid))
            beside = asyncio.create_task(others())
            try:
                if usable:
                    assert isinstance((await reading)[0], Admit)
                else:
                    with pytest.raises(AnswerError):
                        await reading
            finally:
                beside.cancel()
            assert turns >= 4_000 // 256
            if usable:
                assert isinstance((await caller.ask(a_request())).decision, Admit)


BROKEN: dict[str, bytes] = {
    "status 500": answer(b"{}", status="500 Oops"),
    "status 201": answer(b"{}", status="201 Created"),
    "redirect": answer(b"", "Location: /elsewhere", status="302 Found"),
    "a page of some proxy": answer(b"<html>blocked</html>", "Content-Type: text/html"),
    "nothing": answer(b""),
    "another uid": answer(
        b'{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview","response":{"uid":"x","decision":"admit"}}'
    ),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_anything_but_a_decision_is_a_broken_hook(how: str) -> None:
    """R7.1; the author sees that it failed and no more (R7.2)."""

    async def script(peer: Peer) -> None:
        while await peer.question() is not None:
            peer.send(BROKEN[how])

    async with Endpoint(script) as endpoint, WebhookCaller(endpoint.url, timeout=LONG) as caller:
        with pytest.raises(HookBroken) as caught:
            await caller.ask(a_request())
    assert str(caught.value) == "the request failed"
    assert f"http://127.0.0.1:{endpoint.port}: " in caught.value.cause
    assert not caught.value.ambiguous
    assert not caught.value.timed_out
    assert caught.value.seconds is not None


async def test_answer_with_two_decisions_is_ambiguous() -> None:
    """It may be a refusal, so `fail_open` must not let it by (R4.2)."""

    async def script(peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            uid = json.loads(body)["request"]["uid"]
            document = (
                '{"api_version":"dexaflow.io/admission/v1","kind":"AdmissionReview",'
                f'"response":{{"uid":"{uid}","decision":"refuse","decision":"admit"}}}}'
            )
            peer.send(answer(document.encode()))

    async with Endpoint(script) as endpoint, WebhookCaller(endpoint.url, timeout=LONG) as caller:
        with pytest.raises(HookBroken) as caught:
            await caller.ask(a_request())
    assert caught.value.ambiguous


@pytest.mark.parametrize("how", ["as it was", "with another uid"])
async def test_answer_that_was_there_before_the_question_decides_nothing(how: str) -> None:
    """An endpoint, or whoever stands before it, plays back an admit to each new connection."""
    before: list[bytes] = []

    async def script(peer: Peer) -> None:
        if before:
            peer.send(before[0] if how == "as it was" else before[0].replace(b'"uid": "', b'"uid": "x'))
        body = await peer.question()
        assert body is not None
        before.append(decided(body, "Connection: close", decision="admit"))
        if peer.number == 1:
            peer.send(before[0])
        await peer.gone()

    async with Endpoint(script) as endpoint, WebhookCaller(endpoint.url, timeout=LONG) as caller:
        await caller.ask(a_request())
        for number in range(5):
            with pytest.raises(HookBroken) as caught:
                await caller.ask(a_request(uid=f"00000000-0000-4000-8000-{number:012d}"))
            assert not caught.value.timed_out


async def test_silent_endpoint_times_out() -> None:
    async def script(peer: Peer) -> None:
        await peer.gone()

    async with Endpoint(script) as endpoint, WebhookCaller(endpoint.url, timeout=SHORT) as caller:
        with pytest.raises(HookBroken) as caught:
            await caller.ask(a_request())
    assert caught.value.timed_out
    assert str(caught.value) == "the request timed out"


def bearer(endpoint: Endpoint) -> str:
    """The last token that the endpoint has seen."""
    line = endpoint.questions[-1].partition(b"Authorization: ")[2].partition(b"\r\n")[0]
    return line.decode()


async def test_token_is_read_again_when_kubernetes_swaps_it(tmp_path: Path) -> None:
    """And a bad one leaves the last good one in use, and says so (R2.3)."""
    token = mounted(tmp_path, b"first\n")
    async with Endpoint(deciding(decision="admit")) as endpoint:
        async with WebhookCaller(endpoint.url, timeout=LONG, token_file=token) as caller:
            await caller.ask(a_request())
            assert bearer(endpoint) == "Bearer first"

            put_version(tmp_path, b"second\r\n", "2")
            while bearer(endpoint) != "Bearer second":
                await asyncio.sleep(0.02)
                await caller.ask(a_request())
            assert len(endpoint.peers) == 1  # a new token is no reason for a new connection

            with structlog.testing.capture_logs() as logs:
                put_version(tmp_path, b"s3cret\nX-Evil: 1", "3")
                while not caller.stale_files()["token_file"]:
                    await asyncio.sleep(0.02)
            await caller.ask(a_request())
            assert bearer(endpoint) == "Bearer second"
            assert [line["log_level"] for line in logs] == ["error"]
            assert "s3cret" not in str(logs)

            put_version(tmp_path, b"fourth", "4")
            while caller.stale_files()["token_file"]:
                await asyncio.sleep(0.02)
            await caller.ask(a_request())
            assert bearer(endpoint) == "Bearer fourth"


ECHOES = {
    "a field": '{"TOKEN": 1}',
    "a field twice": '{"TOKEN": 1, "TOKEN": 2}',
    "the uid": '{"api_version": "dexaflow.io/admission/v1", "kind": "AdmissionReview", "response": {"uid": "TOKEN"}}',
    "the kind": '{"api_version": "dexaflow.io/admission/v1", "kind": "Bearer TOKEN"}',
    "a label": '{"response": {"changes": {"labels": {"TOKEN": 1}}}}',
    "a label twice": '{"response": {"changes": {"labels": {"TOKEN": "", "TOKEN": ""}}}}',
}


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("secret", ["s3cret/token+0==", "s3cret-" * 30, "key=s3cret"], ids=["token", "long", "query"])
async def test_a_secret_that_the_endpoint_echoes_does_not_get_into_the_log(
    tmp_path: Path, echo: str, secret: str
) -> None:
    """The token, also one that messages cut off (R2.3); and the query of the URL, which may be a key."""
    (tmp_path / "token").write_text(secret)

    async def script(peer: Peer) -> None:
        while await peer.question() is not None:
            peer.send(answer(ECHOES[echo].replace("TOKEN", secret).encode()))

    async with Endpoint(script) as endpoint:
        url = f"http://127.0.0.1:{endpoint.port}/admit"
        caller = (
            WebhookCaller(f"{url}?{secret}", timeout=LONG)
            if secret.startswith("key=")
            else WebhookCaller(url, timeout=LONG, token_file=tmp_path / "token")
        )
        async with caller:
            with pytest.raises(HookBroken) as caught:
                await caller.ask(a_request())
    assert "(hidden)" in caught.value.cause
    assert "s3cret" not in caught.value.cause


async def test_a_token_that_was_changed_while_it_was_echoed_does_not_get_into_the_log(tmp_path: Path) -> None:
    token = mounted(tmp_path, b"s3cret-first")
    asked, changed = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.question()
        asked.set()
        await changed.wait()
        peer.send(answer(b'{"s3cret-first": 1}'))

    async with Endpoint(script) as endpoint, WebhookCaller(endpoint.url, timeout=LONG, token_file=token) as caller:
        asking = asyncio.create_task(caller.ask(a_request()))
        await asked.wait()
        put_version(tmp_path, b"s3cret-second", "2")
        while caller._tokens == ("s3cret-first",):
            await asyncio.sleep(0.02)
        changed.set()
        with pytest.raises(HookBroken) as caught:
            await asking
    assert "'(hidden)' is not a field" in caught.value.cause


@pytest.mark.parametrize("decision", ["hold", "refuse"])
@pytest.mark.parametrize(
    "secret", ["s3cret/token+0==", 's3cret"\\\\', "s3cret-" * 80], ids=["plain", "escaped", "long"]
)
async def test_a_reason_is_told_without_the_token_that_it_repeats(tmp_path: Path, decision: str, secret: str) -> None:
    """The task's author sees it, and the decision stands (R2.3)."""
    (tmp_path / "token").write_text(secret)

    async def script(peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            peer.send(decided(body, decision=decision, reason=f"asked with {secret}, twice: {secret}"))

    async with (
        Endpoint(script) as endpoint,
        WebhookCaller(endpoint.url, timeout=LONG, token_file=tmp_path / "token") as caller,
    ):
        for _ in range(4):  # also where the answer is one that was met before
            answered = await caller.ask(a_request())

            assert answered.decision == {"hold": Hold, "refuse": Refuse}[decision](
                "asked with (hidden), twice: (hidden)"
            )


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"a": "b", "s3cret-token": ""}},
        {"labels": {"token": "s3cret-token"}},
        {"annotations": {"headers": "Bearer s3cret-token"}},
        {"node_selector": {"pool": "s3cret-token"}},
        {"tolerations": [{"key": "s3cret-token", "operator": "Exists"}]},
        {"priority_class_name": "s3cret-token"},
        {"service_account": "s3cret-token"},
    ],
)
@pytest.mark.parametrize("escaped", [False, True])
async def test_changes_that_hold_the_token_are_no_answer(
    tmp_path: Path, changes: dict[str, Any], escaped: bool
) -> None:
    """They would carry it to the pod, and show it on every page about it (R2.3)."""
    (tmp_path / "token").write_text("s3cret-token")

    async def script(peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            response = {"uid": json.loads(body)["request"]["uid"], "decision": "admit", "changes": changes}
            document = json.dumps(
                {"api_version": "dexaflow.io/admission/v1", "kind": "AdmissionReview", "response": response}
            )
            peer.send(
                answer(document.replace("s3cret-token", "s3cret-toke\\u006e" if escaped else "s3cret-token").encode())
            )

    async with (
        Endpoint(script) as endpoint,
        WebhookCaller(endpoint.url, timeout=LONG, token_file=tmp_path / "token") as caller,
    ):
        for _ in range(4):
            with pytest.raises(HookBroken) as caught:
                await caller.ask(a_request())

            assert caught.value.cause.endswith("response.changes hold the token that the endpoint is asked with")


async def test_a_label_that_holds_the_word_which_a_short_token_is_stands(tmp_path: Path) -> None:
    """A token for a trial is often a word; the hook is not broken by it."""
    (tmp_path / "token").write_text("test")

    async def script(peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            peer.send(decided(body, decision="admit", changes={"labels": {"stage": "test-2"}}))

    async with (
        Endpoint(script) as endpoint,
        WebhookCaller(endpoint.url, timeout=LONG, token_file=tmp_path / "token") as caller,
    ):
        answered = await caller.ask(a_request())

    assert isinstance(answered.decision, Admit)
    assert answered.decision.changes.labels == {"stage": "test-2"}


async def test_connections_made_under_the_old_bundle_are_closed(
    tmp_path: Path, ca: trustme.CA, server_tls: ssl.SSLContext
) -> None:
    """Idle ones at once; one that is asking gets its answer first. Later ones trust the new bundle alone (R2.3)."""
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            if json.loads(body)["request"]["task_id"] == "slow":
                await release.wait()
            peer.send(decided(body, decision="admit"))

    bundle = mounted(tmp_path, ca.cert_pem.bytes())
    async with Endpoint(script, server_tls) as endpoint:
        async with WebhookCaller(endpoint.url, timeout=LONG, ca_file=bundle) as caller:
            slow = asyncio.create_task(caller.ask(a_request(task_id="slow")))
            await endpoint.until(lambda: endpoint.open == 1)
            await caller.ask(a_request())
            assert endpoint.open == 2  # one asking, one idle

            put_version(tmp_path, trustme.CA().cert_pem.bytes(), "2")
            await endpoint.until(lambda: endpoint.open == 1)
            release.set()
            assert (await slow).decision == Admit()
            await endpoint.until(lambda: endpoint.open == 0)
            with pytest.raises(HookBroken, match="failed"):
                await caller.ask(a_request())

            put_version(tmp_path, b"no certificate", "3")
            while not caller.stale_files()["ca_file"]:
                await asyncio.sleep(0.02)

            put_version(tmp_path, ca.cert_pem.bytes(), "4")
            while caller.stale_files()["ca_file"]:
                await asyncio.sleep(0.02)
            assert (await caller.ask(a_request())).decision == Admit()


def test_files_and_url_that_cannot_be_used_stop_the_boot(tmp_path: Path, ca: trustme.CA) -> None:
    """Each names its key, and quotes no secret."""
    bad_ca, bad_token = tmp_path / "ca.crt", tmp_path / "token"
    bad_ca.write_bytes(b"no certificate")
    bad_token.write_bytes(b"s3cret\n\n")
    with pytest.raises(ConfigError) as caught:
        WebhookCaller("https://a.test/", timeout=1.0, ca_file=bad_ca)
    assert caught.value.key == CA_FILE_KEY
    with pytest.raises(ConfigError) as caught:
        WebhookCaller("https://a.test/", timeout=1.0, token_file=bad_token)
    assert caught.value.key == TOKEN_FILE_KEY
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        WebhookCaller("https://user:s3cret@a.test/", timeout=1.0)
    assert caught.value.key == "execution.admission.webhook.url"
    assert "s3cret" not in str(caught.value)
