"""R1, R3, R5, R7, R8, R9: the gate, with hooks that answer what they are told."""

import asyncio
from types import MappingProxyType

import pytest

from dexaflow.admission.breaker import BreakerState
from dexaflow.admission.decisions import Admit, Changes, Hold, Refuse, Request, admit, hold, refuse
from dexaflow.admission.envelope import question
from dexaflow.admission.ports import Answered
from dexaflow.admission.results import Admitted, Held, Outcome, Refused, Verdict
from dexaflow.base.errors import HookBroken
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution
from dexaflow.policy.checked import Checked, Setting
from dexaflow.policy.checks import check
from dexaflow.policy.policy import Policy
from tests.admission.builders import PLAIN, Pausing, Scripted, World, a_gate, an_attempt, checked

BROKEN = HookBroken("connect https://admission.policy.svc:8443/admit: refused, status 503")


def nobody(hook: str) -> bool:
    return False


def admitted(verdict: Verdict) -> Admitted:
    assert isinstance(verdict, Admitted), verdict
    return verdict


def held(verdict: Verdict) -> Held:
    assert isinstance(verdict, Held), verdict
    return verdict


def refused(verdict: Verdict) -> Refused:
    assert isinstance(verdict, Refused), verdict
    return verdict


# -- asking


async def test_without_hooks_nothing_is_asked_and_no_metric_moves() -> None:
    """R1.5."""
    world = a_gate()

    verdict = admitted(await world.gate.review(checked()))

    assert verdict.reviews == ()
    assert verdict.execution == PLAIN
    assert not verdict.dedicated
    assert world.watching.reviewed_as == []


async def test_an_admit_is_good_for_a_minute_from_the_answer() -> None:
    """R1.6; waiting for a connection does not age it (R7.1)."""
    pausing = Pausing(admit())
    world = a_gate(Scripted(pausing))
    review = asyncio.create_task(world.gate.review(checked()))
    await pausing.reached.wait()
    world.clock.seconds += 500
    pausing.release.set()

    verdict = admitted(await review)

    assert verdict.good_at(world.clock.seconds + 59.9)
    assert not verdict.good_at(world.clock.seconds + 60.0)


async def test_each_question_has_a_uid_of_its_own() -> None:
    """R3.1: `uid` is new for every ask."""
    first, second = Scripted(admit(), name="first"), Scripted(admit(), name="second")
    world = a_gate(first, second)

    await world.gate.review(checked())
    await world.gate.review(checked())

    uids = [request.uid for hook in (first, second) for request in hook.asked]
    assert len(set(uids)) == 4


async def test_a_hook_is_asked_about_what_the_task_would_get() -> None:
    """R3.2, R3.3."""
    hook = Scripted(admit())
    task = checked(
        Execution(service_account="etl", labels={"team": "data"}, tolerations=(Toleration("spot", "Exists"),)),
        service_account_chosen=True,
    )

    await a_gate(hook).gate.review(task)

    (request,) = hook.asked
    assert request.execution == task.execution
    assert request.resources == task.resources
    assert request.image == task.image
    assert request.service_account_chosen is True
    assert (request.tenant_id, request.dag_id, request.run_id) == ("acme", "nightly_etl", "0193f2c4")
    assert (request.task_id, request.try_number, request.operator) == ("extract", 1, "python")


async def test_what_own_checks_passed_walks_through_with_who_set_what() -> None:
    """R1.2, R9.2: from the real own checks, under the operator's real policy."""
    policy = Policy(service_accounts=frozenset({"etl"}), default_service_account="dexaflow-task")
    passed = check(an_attempt(TaskSpec("extract", "python", execution=Execution(labels={"team": "data"}))), policy)
    assert isinstance(passed, Checked)
    hook = Scripted(admit(labels={"team": "ops"}, service_account="etl"))

    verdict = admitted(await a_gate(hook, policy=policy).gate.review(passed))

    assert hook.asked[0].execution == Execution(service_account="dexaflow-task", labels={"team": "data"})
    assert verdict.execution == Execution(service_account="etl", labels={"team": "ops"})
    assert {(s.field, s.key): s.by for s in verdict.settings} == {
        ("service_account", ""): "hook:webhook",
        ("labels", "team"): "hook:webhook",
    }


async def test_a_hook_is_not_shown_the_control_planes_own_labels() -> None:
    """R3.2; they stay on the pod."""
    hook = Scripted(admit())
    own = Execution(labels={"dexaflow.io/run": "r", "team": "data"}, annotations={"leoflow.io/x": "y"})

    verdict = admitted(await a_gate(hook).gate.review(checked(own)))

    assert hook.asked[0].execution == Execution(labels={"team": "data"})
    assert verdict.execution == own


async def test_a_question_never_carries_what_is_the_tasks_alone() -> None:
    """R3.4: a marker in the environment, the source and the retries of a task shows in no byte that is sent."""
    hook = Scripted(admit())
    task = TaskSpec("extract", "bash", env={"MARKER": "marker-7d1"}, bash_command="echo marker-7d1", pool="marker-7d1")

    await a_gate(hook).gate.review(checked(task=task))

    assert b"marker" not in question(hook.asked[0]).lower()


async def test_two_hooks_of_one_name_or_one_of_none_are_an_error() -> None:
    """R8.1."""
    for names in (("a", "a"), ("",)):
        with pytest.raises(ValueError, match="name"):
            a_gate(*(Scripted(admit(), name=name) for name in names))


# -- the chain


async def test_each_later_hook_sees_the_earlier_ones_changes() -> None:
    """R8.2; whether the account was chosen stays as it was (R3.3)."""
    first = Scripted(admit(labels={"tier": "gold"}, service_account="etl"), name="first")
    second = Scripted(admit(labels={"tier": "iron", "seen": "yes"}), name="second")
    world = a_gate(first, second, policy=Policy(service_accounts=frozenset({"etl"})))

    verdict = admitted(await world.gate.review(checked()))

    assert second.asked[0].execution == Execution(service_account="etl", labels={"tier": "gold"})
    assert second.asked[0].service_account_chosen is False
    assert verdict.execution == Execution(service_account="etl", labels={"tier": "iron", "seen": "yes"})
    assert set(verdict.settings) == {
        Setting("service_account", "", "etl", "hook:first"),
        Setting("labels", "tier", "iron", "hook:second"),
        Setting("labels", "seen", "yes", "hook:second"),
    }


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (hold("freeze"), Outcome.HOLD),
        (refuse("over budget"), Outcome.REFUSE),
        (admit(labels={"dexaflow.io/x": "y"}), Outcome.CHANGE_REFUSED),
        (BROKEN, Outcome.ERROR),
    ],
)
async def test_the_first_hook_that_does_not_admit_ends_the_asking(answer: object, outcome: Outcome) -> None:
    """R8.2: a later hook may book budget for what it admits, and would do so in vain."""
    later = Scripted(admit(), name="later")
    world = a_gate(Scripted(admit(), name="first"), Scripted(answer, name="second"), later)

    verdict = await world.gate.review(checked())

    assert not isinstance(verdict, Admitted)
    assert verdict.hook == "second"
    assert later.asked == []
    assert [(r.hook, r.outcome) for r in verdict.reviews] == [("first", Outcome.ADMIT), ("second", outcome)]
    assert world.watching.outcomes() == [Outcome.ADMIT, outcome]


async def test_one_review_is_kept_for_each_hook_that_was_asked() -> None:
    """R9.2: who was asked, what came back, the changes, how long it took."""
    world = a_gate(Scripted(admit(labels={"a": "b"}), seconds=0.125), Scripted(hold("frie\nrt"), name="freeze"))

    verdict = held(await world.gate.review(checked()))

    first, second = verdict.reviews
    assert (first.uid, first.reason, first.seconds, first.asked) == ("uid-1", "", 0.125, True)
    assert first.changes == Changes(labels={"a": "b"})
    assert (second.uid, second.reason, second.seconds) == ("uid-2", "friert", 0.25)
    assert world.watching.reviewed_as == [("webhook", Outcome.ADMIT, 0.125), ("freeze", Outcome.HOLD, 0.25)]


# -- decisions


async def test_a_hold_holds_with_its_reason() -> None:
    verdict = held(await a_gate(Scripted(hold("freeze until 06:00 UTC"))).gate.review(checked()))

    assert (verdict.hook, verdict.reason, verdict.broken, verdict.asked) == (
        "webhook",
        "freeze until 06:00 UTC",
        False,
        True,
    )


async def test_a_refusal_refuses_with_its_reason() -> None:
    """R1.4: the reason and the hook's name."""
    verdict = refused(await a_gate(Scripted(refuse("over budget"))).gate.review(checked()))

    assert (verdict.hook, verdict.reason) == ("webhook", "over budget")


@pytest.mark.parametrize("make", [Hold, Refuse])
@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("a\tb\x00c\x85\x7f", "abc"),
        ("x" * 513, "x" * 512),
        ("x" * 511 + "é", "x" * 511),
        ("a\ud800b", "a\ufffdb"),
        ("<b>\u202e ", "<b>\u202e "),
        ("\n", ""),
    ],
)
async def test_a_reason_from_any_hook_is_kept_cleaned_and_cut(
    make: type[Hold] | type[Refuse], said: str, kept: str
) -> None:
    """R4.4: also one from a hook in process."""
    verdict = await a_gate(Scripted(make(said))).gate.review(checked())

    assert isinstance(verdict, Held | Refused)
    assert verdict.reason == kept
    assert verdict.reviews[0].reason == kept


async def test_a_change_that_may_not_be_made_refuses_naming_hook_and_key() -> None:
    """R5.2; for the breaker it is success."""
    world = a_gate(Scripted(admit(labels={"dexaflow.io/x": "y"}, annotations={"fine": "1"})))

    for _ in range(6):
        verdict = refused(await world.gate.review(checked()))

    assert "webhook" in verdict.reason
    assert "dexaflow.io/x" in verdict.reason
    assert verdict.reviews[0].changes.annotations == {"fine": "1"}
    assert world.watching.outcomes() == [Outcome.CHANGE_REFUSED] * 6
    assert world.watching.breakers == []


async def test_what_a_hook_may_change_is_looked_up_when_it_is_judged() -> None:
    """The policy may be read again while the server runs."""
    hook = Scripted(admit(service_account="etl"))
    world = a_gate(hook)
    lists = [Policy(), Policy(service_accounts=frozenset({"etl"}))]
    world.gate._policy = lambda: lists.pop(0)

    refused(await world.gate.review(checked()))
    admitted(await world.gate.review(checked()))


@pytest.mark.parametrize(
    ("own_placement", "answer", "dedicated"),
    [
        (False, admit(), False),
        (True, admit(), True),
        (False, admit(labels={"team": "data"}), False),  # leaves the pod as it was
        (False, admit(labels={"team": "ops"}), True),
        (False, admit(annotations={"a": ""}), True),
    ],
)
async def test_a_changed_attempt_gets_a_pod_of_its_own(own_placement: bool, answer: Admit, dedicated: bool) -> None:
    """R5.4."""
    world = a_gate(Scripted(answer))

    verdict = admitted(
        await world.gate.review(checked(Execution(labels={"team": "data"}), own_placement=own_placement))
    )

    assert verdict.dedicated is dedicated


async def test_what_one_hook_changes_and_another_changes_back_is_no_change() -> None:
    """R5.4: a change that leaves the pod as it was."""
    world = a_gate(
        Scripted(admit(labels={"team": "ops"}), name="a"), Scripted(admit(labels={"team": "data"}), name="b")
    )

    verdict = admitted(await world.gate.review(checked(Execution(labels={"team": "data"}))))

    assert not verdict.dedicated


async def test_a_hook_cannot_change_the_pod_after_the_check() -> None:
    """A hook in process may keep the mapping it answered with; the pod must be what was checked."""
    labels = {"a": "b"}
    world = a_gate(Scripted(Admit(Changes(labels=MappingProxyType(labels)))))

    verdict = admitted(await world.gate.review(checked()))
    labels["dexaflow.io/x"] = "y"

    assert verdict.execution.labels == {"a": "b"}
    assert verdict.reviews[0].changes.labels == {"a": "b"}


# -- broken


@pytest.mark.parametrize(
    "answer",
    [
        BROKEN,
        RuntimeError("boom"),
        OSError("https://admission.policy.svc:8443/admit"),
        None,
        "admit",
        Admit,
        Hold(7),  # type: ignore[arg-type]  # as a careless hook would
        Admit(Changes(labels={"a": 1})),  # type: ignore[dict-item]
        Admit(Changes(labels=["a"])),  # type: ignore[arg-type]
        Admit({"labels": {}}),  # type: ignore[arg-type]
        Admit(Changes(tolerations=("spot",))),  # type: ignore[arg-type]
    ],
)
async def test_a_hook_without_a_decision_is_broken_and_holds(answer: object) -> None:
    """R7.1, R7.2: the message says that the request failed, and under which id the log has more; nothing else."""
    hook = Scripted(answer)
    if answer is Admit:
        hook.answers = [_returning(Admit)]
    world = a_gate(hook)

    verdict = held(await world.gate.review(checked()))

    assert verdict.broken
    assert verdict.asked
    assert verdict.reason == "admission hook webhook: the request failed (incident incident-1)"
    (review,) = verdict.reviews
    assert (review.outcome, review.reason, review.incident) == (Outcome.ERROR, "the request failed", "incident-1")
    ((name, incident, cause, bypassed),) = world.watching.failures
    assert (name, incident, bypassed) == ("webhook", "incident-1", False)
    assert cause
    assert world.watching.outcomes() == [Outcome.ERROR]


def _returning(value: object) -> object:
    async def answer(request: object) -> object:
        return value

    return answer


async def test_a_time_out_is_called_one() -> None:
    """R7.2."""
    for answer in (HookBroken("no answer within 0.5 s", timed_out=True), TimeoutError()):
        verdict = held(await a_gate(Scripted(answer)).gate.review(checked()))
        assert verdict.reason == "admission hook webhook: the request timed out (incident incident-1)"


async def test_an_error_that_cannot_be_printed_is_a_failure_like_any_other() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    world = a_gate(Scripted(OddError()))

    assert held(await world.gate.review(checked())).broken
    assert world.watching.failures[0][2].startswith("OddError (")  # and where it came from


async def test_how_long_a_failed_question_took_is_the_callers_word_or_measured() -> None:
    """R9.1: without waiting for a connection, where the caller can tell."""
    pausing = Pausing(HookBroken("gone"))
    world = a_gate(Scripted(HookBroken("gone", seconds=0.5), pausing))
    await world.gate.review(checked())
    review = asyncio.create_task(world.gate.review(checked()))
    await pausing.reached.wait()
    world.clock.seconds += 2
    pausing.release.set()
    await review

    assert [seconds for _, _, seconds in world.watching.reviewed_as] == [0.5, 2.0]


# -- fail_open


async def test_fail_open_admits_unchanged_by_the_broken_hook_and_keeps_earlier_changes() -> None:
    """R7.3; told for every such attempt."""
    world = a_gate(
        Scripted(admit(labels={"a": "b"}), name="first"),
        Scripted(BROKEN, name="second"),
        Scripted(admit(labels={"c": "d"}), name="third"),
        fail_open=True,
    )

    verdict = admitted(await world.gate.review(checked()))

    assert verdict.execution.labels == {"a": "b", "c": "d"}
    assert [r.outcome for r in verdict.reviews] == [Outcome.ADMIT, Outcome.FAIL_OPEN, Outcome.ADMIT]
    assert world.watching.outcomes() == [Outcome.ADMIT, Outcome.FAIL_OPEN, Outcome.ADMIT]
    assert world.watching.failures == [("second", "incident-1", BROKEN.cause, True)]


@pytest.mark.parametrize("answer", [hold("no"), refuse("no"), admit(labels={"dexaflow.io/x": "y"})])
async def test_fail_open_lets_no_decision_by(answer: object) -> None:
    """R7.3: a hold or refuse still applies, and so do the checks on changes."""
    verdict = await a_gate(Scripted(answer), fail_open=True).gate.review(checked())

    assert isinstance(verdict, Held | Refused)


async def test_an_answer_that_may_be_a_refusal_is_held_even_with_fail_open() -> None:
    """R4.2: also once enough of them have opened the breaker, and until a success."""
    hook = Scripted(HookBroken("decision given twice", ambiguous=True))
    world = a_gate(hook, fail_open=True)

    outcomes = []
    for _ in range(7):
        verdict = held(await world.gate.review(checked()))
        outcomes.append(verdict.reviews[0].outcome)

    assert outcomes == [Outcome.ERROR] * 5 + [Outcome.BREAKER_OPEN] * 2
    hook.answers = [admit(), BROKEN]
    world.clock.seconds += 30
    admitted(await world.gate.review(checked()))
    assert admitted(await world.gate.review(checked())).reviews[0].outcome is Outcome.FAIL_OPEN


# -- the breaker


async def failing(world: World, times: int = 5) -> None:
    for _ in range(times):
        await world.gate.review(checked())


async def test_after_five_failures_in_a_row_attempts_are_held_without_asking() -> None:
    """R7.4."""
    hook = Scripted(BROKEN)
    world = a_gate(hook)
    await failing(world)

    verdict = held(await world.gate.review(checked()))

    assert len(hook.asked) == 5
    assert (verdict.broken, verdict.asked, verdict.hook) == (True, False, "webhook")
    assert "webhook" in verdict.reason
    assert "not asked" in verdict.reason
    assert "admission.policy" not in verdict.reason
    (review,) = verdict.reviews
    assert (review.outcome, review.uid, review.asked) == (Outcome.BREAKER_OPEN, "", False)
    assert world.watching.reviewed_as[-1] == ("webhook", Outcome.BREAKER_OPEN, None)
    assert len(world.watching.failures) == 5
    assert world.watching.breakers == [("webhook", True)]


async def test_with_fail_open_an_open_breaker_admits_and_says_so() -> None:
    """R7.4, R7.3: logged for every such attempt."""
    world = a_gate(Scripted(BROKEN), fail_open=True)
    await failing(world)

    verdict = admitted(await world.gate.review(checked()))

    assert verdict.reviews[0].outcome is Outcome.FAIL_OPEN
    assert not verdict.reviews[0].asked
    assert world.watching.failures[-1] == ("webhook", "incident-6", "its breaker is open", True)
    assert world.watching.reviewed_as[-1] == ("webhook", Outcome.FAIL_OPEN, None)


@pytest.mark.parametrize("answer", [admit(), hold("x"), refuse("x"), admit(labels={"no space": "x"})])
async def test_any_decision_is_success(answer: object) -> None:
    """R7.4: a hold or refuse never counts as a failure, nor does a change that may not be made (R5.2)."""
    world = a_gate(Scripted(*[BROKEN] * 4, answer, *[BROKEN] * 4, admit()))

    await failing(world, 10)

    assert world.watching.breakers == []


async def test_when_the_30_seconds_end_only_the_chosen_is_asked() -> None:
    """R7.4; the asker is consulted only when there is a probe to give."""
    hook = Scripted(*[BROKEN] * 5, admit())
    world = a_gate(hook)
    consulted: list[str] = []

    def chosen(name: str) -> bool:
        consulted.append(name)
        return True

    await failing(world)
    await world.gate.review(checked(), may_probe=chosen)
    assert consulted == []
    world.clock.seconds += 30
    assert world.gate.next_probe("webhook") == world.clock.seconds
    held(await world.gate.review(checked(), may_probe=nobody))
    assert len(hook.asked) == 5

    admitted(await world.gate.review(checked(), may_probe=chosen))

    assert consulted == ["webhook"]
    assert world.watching.breakers == [("webhook", True), ("webhook", False)]
    assert world.gate.next_probe("webhook") is None


async def test_while_a_probe_is_out_everybody_else_is_held() -> None:
    """R7.4: exactly one is asked."""
    pausing = Pausing(admit())
    world = a_gate(Scripted(*[BROKEN] * 5, pausing))
    await failing(world)
    world.clock.seconds += 30
    probe = asyncio.create_task(world.gate.review(checked()))
    await pausing.reached.wait()

    assert not held(await world.gate.review(checked())).asked

    pausing.release.set()
    admitted(await probe)


async def test_a_cancelled_probe_frees_its_place() -> None:
    """R7.4."""
    pausing = Pausing(admit())
    world = a_gate(Scripted(*[BROKEN] * 5, pausing, admit()))
    await failing(world)
    world.clock.seconds += 30
    probe = asyncio.create_task(world.gate.review(checked()))
    await pausing.reached.wait()
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe

    admitted(await world.gate.review(checked()))


async def test_a_probe_that_never_became_a_question_frees_its_place() -> None:
    """R7.4: a probe that is lost; here because no id could be drawn for it."""
    world = a_gate(Scripted(*[BROKEN] * 5, admit()))
    await failing(world)
    world.clock.seconds += 30
    draw = world.gate._new_uid

    def no_dice() -> str:
        raise OSError("no entropy")

    world.gate._new_uid = no_dice
    with pytest.raises(OSError, match="entropy"):
        await world.gate.review(checked())
    world.gate._new_uid = draw

    admitted(await world.gate.review(checked()))


async def test_a_cancelled_question_is_neither_success_nor_failure_and_has_no_outcome() -> None:
    """R7.4, R9.1."""
    pausing = Pausing(admit())
    world = a_gate(Scripted(*[BROKEN] * 4, pausing, BROKEN))
    await failing(world, 4)
    review = asyncio.create_task(world.gate.review(checked()))
    await pausing.reached.wait()
    review.cancel()
    with pytest.raises(asyncio.CancelledError):
        await review
    assert world.gate.status()[0].failures == 4
    assert len(world.watching.reviewed_as) == 4

    await world.gate.review(checked())

    assert world.gate.status()[0].state is BreakerState.OPEN


@pytest.mark.parametrize("late", [admit(), BROKEN])
async def test_an_answer_to_a_question_put_before_it_opened_changes_nothing(late: Admit | HookBroken) -> None:
    """R7.4: it neither closes the breaker nor moves the probe; the attempt itself gets its answer."""
    pausing = Pausing(late)
    world = a_gate(Scripted(pausing, BROKEN))
    early = asyncio.create_task(world.gate.review(checked()))
    await pausing.reached.wait()
    await failing(world)
    before = world.gate.next_probe("webhook")
    world.clock.seconds += 10
    pausing.release.set()

    verdict = await early

    assert isinstance(verdict, Admitted) == isinstance(late, Admit)
    assert world.gate.next_probe("webhook") == before
    assert world.watching.breakers == [("webhook", True)]


async def test_each_hook_has_a_breaker_of_its_own() -> None:
    """R7.4: one for each hook."""
    sound, broken = Scripted(admit(), name="sound"), Scripted(BROKEN, name="broken")
    world = a_gate(sound, broken)

    await failing(world, 7)

    assert len(sound.asked) == 7
    assert len(broken.asked) == 5
    assert [status.state for status in world.gate.status()] == [BreakerState.CLOSED, BreakerState.OPEN]


async def test_operators_see_each_hook_and_why_it_failed() -> None:
    """Each hook with its breaker, failures in a row, next probe, last cause."""
    world = a_gate(Scripted(*[BROKEN] * 5, admit()))
    (fresh,) = world.gate.status()
    await failing(world)
    world.clock.seconds += 10
    (opened,) = world.gate.status()
    world.clock.seconds += 25
    (due,) = world.gate.status()
    await world.gate.review(checked())
    (closed,) = world.gate.status()

    assert (fresh.name, fresh.state, fresh.failures, fresh.retry_in, fresh.last_cause) == (
        "webhook",
        BreakerState.CLOSED,
        0,
        None,
        "",
    )
    assert (opened.state, opened.failures, opened.retry_in) == (BreakerState.OPEN, 5, 20.0)
    assert (fresh.failed_ago, opened.failed_ago, closed.failed_ago) == (None, 10.0, 35.0)
    assert opened.last_cause == closed.last_cause == BROKEN.cause
    assert (due.state, due.retry_in) == (BreakerState.HALF_OPEN, 0.0)
    assert (closed.state, closed.failures, closed.retry_in) == (BreakerState.CLOSED, 0, None)


async def test_a_hook_nobody_knows_has_no_probe() -> None:
    with pytest.raises(KeyError):
        a_gate().gate.next_probe("webhook")


MANY = {
    "labels": Changes(labels={f"k{n}": "v" for n in range(5_000)}),
    "annotations": Changes(annotations={f"example.com/k{n}": "v" for n in range(5_000)}),
    "node_selector": Changes(node_selector={f"k{n}": "v" for n in range(5_000)}),
    "tolerations": Changes(tolerations=tuple(Toleration(f"k{n}", "Exists") for n in range(2_000))),
    "the last may not be made": Changes(labels={f"k{n}": "v" for n in range(5_000)} | {"dexaflow.io/x": "v"}),
}


@pytest.mark.parametrize("what", MANY)
async def test_while_thousands_of_changes_are_made_another_attempt_is_asked_and_decided(what: str) -> None:
    """A clumsy or hostile hook costs its own attempt time, and nobody else's."""
    changes = MANY[what]
    made = a_gate(Answering(Admit(changes)))
    other = a_gate(Scripted(hold("not today")))
    order: list[str] = []

    async def review(world: World, name: str) -> Verdict:
        verdict = await world.gate.review(checked())
        order.append(name)
        return verdict

    large = asyncio.create_task(review(made, "large"))
    await asyncio.sleep(0)
    small = asyncio.create_task(review(other, "small"))
    verdict = await large
    await small

    assert order == ["small", "large"]
    if what.startswith("the last"):
        assert refused(verdict).reviews[0].outcome is Outcome.CHANGE_REFUSED
    else:
        assert len(admitted(verdict).settings) >= 2_000
        assert made.watching.outcomes() == [Outcome.ADMIT]


class Answering:
    """A hook that gives a decision as the reader of answers would, whatever is in it."""

    name = "webhook"

    def __init__(self, decision: Admit) -> None:
        self._decision = decision

    async def ask(self, request: Request) -> Answered:
        return Answered(self._decision, 0.25)
