"""The promises, each a check of its own: what the record and the database say, held against each other.

A check is told of everything that happens at the edges and of every committed transaction, and speaks up in the
moment a promise is broken.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from dexaflow.admission import Admit, Hold, Refuse
from dexaflow.admission.results import Admitted, Outcome
from dexaflow.base.errors import TermLost
from dexaflow.executors.ports import Launch
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution
from dexaflow.policy.policy import Policy
from simulation.check import EPSILON, Check, Violation, Walk
from simulation.drawing import MANY_PLACES, Drawn
from simulation.people import PeopleAreHeard, TriesAreTheAuthors
from simulation.probing import OneProbesInTurn
from simulation.reading import ENDED, IN_USE, Outside, Row, Seen
from simulation.record import Broken, Issued, Process, Question, Record, Spoken, Start, Try, shown_try
from simulation.sharing import TenantsShareThePace
from simulation.tokens import TokensOpenTheirOwnDoor

__all__ = ["Checks"]


class NothingUnchecked(Check):
    """No attempt starts without an admit of all its hooks for that very try (or a recorded fail-open), and none whose
    admit was overtaken by a cancel."""

    def minted(self, start: Start, walk: Walk | None) -> None:
        every, drawn = self.all, self.all.drawn
        row = every.now.rows.get(start.attempt_id)
        if row is not None and row.tried != start.tried:
            self.fail(f"{shown_try(start.tried)} got the token of {shown_try(row.tried)}")
        written = every.launched_at.get(start.launch_id)
        if written is None:
            self.fail(f"{shown_try(start.tried)} got a token for a launch that never was written")
            return
        if not drawn.hooks:
            return
        if walk is None:
            self.fail(f"{shown_try(start.tried)} got a token, and this control plane never asked about it")
            return
        newest, last = 0.0, 0
        for hook in drawn.hooks:
            question = walk.questions.get(hook.name)
            if hook.name in walk.bypassed:
                self._bypassed(start, hook.name, question)
                if question is not None:  # it may have waited long for its connection, which ages no admit (R7.1)
                    newest = max(newest, question.answered_at)
            elif question is None or not isinstance(question.answer, Admit) or question.number < last:
                answer = None if question is None else question.answer
                self.fail(f"{shown_try(start.tried)} got a token, but {hook.name} did not admit it: {answer}")
            else:
                newest, last = max(newest, question.answered_at), question.number
        if newest and written - newest >= 60.0 + EPSILON:
            self.fail(f"{shown_try(start.tried)} was launched {written - newest:.1f} s after its admit")

    def _bypassed(self, start: Start, hook: str, question: Question | None) -> None:
        every = self.all
        what = f"{shown_try(start.tried)} passed {hook} by"
        if not every.drawn.fail_open:
            self.fail(f"{what} without fail_open")
        if question is not None and question.answer is not None:
            if not isinstance(question.answer, Broken):
                self.fail(f"{what} although it answered {question.answer}")
            elif question.answer.ambiguous:
                self.fail(f"{what} although its answer may have been a refusal")
        kept = [r for r in every.outside.reviews(start.attempt_id) if r.hook == hook and r.outcome == "fail_open"]
        if not kept:
            self.fail(f"{what}, and no review says so")

    def begun(self, process: Process) -> None:
        row = self.all.now.rows.get(process.attempt_id)
        if process.launch_id not in self.all.record.minted:
            self.fail(f"{shown_try(process.tried)} runs without a token")
        if row is None or row.state != "running" or row.launch_id != process.launch_id:
            state = "gone" if row is None else row.state
            self.fail(f"{shown_try(process.tried)} begins to run, but it is {state}")

    def seen(self, before: Seen, after: Seen) -> None:
        for attempt_id, was in before.rows.items():
            if was.state in ENDED:
                row = after.rows.get(attempt_id)
                if row is not None and row.state != was.state:
                    self.fail(f"{shown_try(row.tried)} was {was.state}, and is {row.state} now")

    def asked(self, question: Question) -> None:
        task = self.all.task(question.tried)
        if rejected(task, self.all.drawn.policy):
            self.fail(f"{question.hook} is asked about {shown_try(question.tried)}, which own checks reject")


class RefusedNeverRan(Check):
    """No refused attempt ever had a token, a process or a pod."""

    def minted(self, start: Start, walk: Walk | None) -> None:
        questions = [q for q in self.all.record.by_try.get(start.tried, ()) if q.plane == start.plane and q.answered]
        if questions and isinstance(questions[-1].answer, Refuse):
            self.fail(f"{shown_try(start.tried)} got a token after {questions[-1].hook} refused it")

    def seen(self, before: Seen, after: Seen) -> None:
        every = self.all
        for attempt_id, row in after.rows.items():
            was = before.rows.get(attempt_id)
            if row is was or row.state not in ("failed", "up_for_retry") or was is None or was.state == row.state:
                continue
            answered = [q for q in every.record.by_try.get(row.tried, ()) if q.answered]
            if was.state not in ("queued", "held") or not answered:
                continue
            if not isinstance(answered[-1].answer, Refuse):
                continue
            if row.state == "up_for_retry":
                self.fail(f"{shown_try(row.tried)} was refused, and is retried")
            if row.hook != answered[-1].hook or not row.reason:
                self.fail(
                    f"{shown_try(row.tried)} was refused by {answered[-1].hook}, and says {row.hook}: {row.reason}"
                )
            for process in every.record.processes:
                if process.attempt_id == attempt_id and process.begun_at is not None:
                    self.fail(f"{shown_try(row.tried)} was refused, and had run")


class NothingTwice(Check):
    """No attempt runs twice at once."""

    def started(self, start: Start, launch: Launch) -> None:
        if sum(s.launch_id == start.launch_id for s in self.all.record.starts) > 1:
            self.fail(f"launch {start.launch_id} of {shown_try(start.tried)} is started twice")

    def begun(self, process: Process) -> None:
        for other in self.all.record.processes:
            if other is process or other.begun_at is None or other.tried[:2] != process.tried[:2]:
                continue
            if other.ended_at is None:
                self.fail(f"{shown_try(process.tried)} begins while {shown_try(other.tried)} still runs")
            if other.attempt_id == process.attempt_id:
                self.fail(f"{shown_try(process.tried)} begins a second time")


class NothingLost(Check):
    """No attempt is lost: each reaches an end or is waiting with a reason and a next time."""

    def seen(self, before: Seen, after: Seen) -> None:
        for attempt_id, row in after.rows.items():
            if row is before.rows.get(attempt_id):
                continue
            if row.state == "held" and not (row.reason and row.hook and row.next_ask_due is not None):
                self.fail(f"{shown_try(row.tried)} is held without a reason, a hook or a next time")
            if row.state == "up_for_retry" and row.retry_due is None:
                self.fail(f"{shown_try(row.tried)} waits for its next try without a time")

    def ended(self, seen: Seen) -> None:
        every = self.all
        runs = every.outside.runs()
        for row in seen.rows.values():
            if row.state not in ENDED and not (row.state == "scheduled" and every.never_fits(row) and row.reason):
                self.fail(f"{shown_try(row.tried)} is {row.state} long after all was well: {row.reason!r}")
            if row.state in ENDED and row.state != "success" and not row.reason:
                self.fail(f"{shown_try(row.tried)} is {row.state} and does not say why")
        for run_id, (state, _) in runs.items():
            tasks = [row for row in seen.rows.values() if row.run_id == run_id]
            if state in ("success", "failed") and any(row.state not in ENDED for row in tasks):
                self.fail(f"run {run_id} is {state}, and not all its tasks have ended")
            if state not in ("success", "failed") and all(row.state in ENDED for row in tasks):
                self.fail(f"run {run_id} is {state}, and all its tasks have ended")
        history = every.outside.history()
        for row in seen.rows.values():
            tries = sorted(n for r, t, n, _ in history.values() if (r, t) == (row.run_id, row.task_id))
            if tries != list(range(1, row.try_number)):
                self.fail(f"{shown_try(row.tried)}: its earlier tries are {tries}")
        for run, task, number, state in history.values():
            if state not in ENDED and state != "up_for_retry":
                self.fail(f"{shown_try((run, task, number))} is kept as {state}, which is no end")


class SlotsAreExact(Check):
    """Slots in use are exactly those of queued, launching and running attempts; never negative, never above the
    pool's."""

    def seen(self, before: Seen, after: Seen) -> None:
        was, used = _used(before), _used(after)
        for pool, slots in used.items():
            size = after.pools.get(pool, 0)
            if slots > size and slots > was.get(pool, 0):
                self.fail(f"{slots} slots of pool {pool} are in use, which has {size}")
        running = sum(row.state in IN_USE for row in after.rows.values())
        if running > self.all.drawn.parallelism and running > sum(r.state in IN_USE for r in before.rows.values()):
            self.fail(f"{running} attempts at once, above the parallelism of {self.all.drawn.parallelism}")

    def passed(self, seconds: float) -> None:
        """A queued attempt takes slots because somebody asks about it; one that nobody asks about leaks them."""
        every = self.all
        for row in every.now.rows.values():
            if row.state == "queued":
                idle = every.idle_for(row)
                if idle > 150.0:
                    self.fail(
                        f"{shown_try(row.tried)} is queued, holds its slots, and nobody has asked for {idle:.0f} s"
                    )


def _used(seen: Seen) -> dict[str, int]:
    used: dict[str, int] = defaultdict(int)
    for row in seen.rows.values():
        if row.state in IN_USE:
            used[row.pool] += row.pool_slots
    return used


class NothingElseChanged(Check):
    """What would run is what the author wrote, own defaults, and the hooks' changes, and nothing else."""

    def asked(self, question: Question) -> None:
        walk = self.all.walks[question.plane, question.tried]
        expected = self.all.expected(question.tried, walk, before=question.hook)
        if question.request.execution != expected:
            self.fail(f"{question.hook} is asked about {question.request.execution} and not {expected}")

    def started(self, start: Start, launch: Launch) -> None:
        every = self.all
        task, policy = every.task(start.tried), every.drawn.policy
        expected = every.expected(start.tried, every.walks.get((start.plane, start.tried)), before=None)
        what = shown_try(start.tried)
        if launch.admitted.execution != expected:
            self.fail(f"{what} would run with {launch.admitted.execution} and not {expected}")
        kept = every.outside.placement(start.attempt_id)
        row = every.now.rows.get(start.attempt_id)
        if row is None or row.launch_id != start.launch_id or kept is None:
            return  # moved on meanwhile
        shown = json.loads(kept)
        if shown["execution"] != {**asdict(replace(expected, tolerations=())), "tolerations": _plain(expected)}:
            self.fail(f"{what} shows {shown['execution']} and not {expected}")
        resources = task.resources or policy.default_resources
        wanted = {"requests": {}, "limits": {}} if resources is None else {
            "requests": dict(resources.requests), "limits": dict(resources.limits)
        }  # fmt: skip
        if shown["resources"] != wanted:
            self.fail(f"{what} shows the resources {shown['resources']} and not {wanted}")
        if shown["image"] != (task.image or policy.default_image):
            self.fail(f"{what} shows the image {shown['image']}")
        own = replace(task.execution, service_account=task.execution.service_account or policy.default_service_account)
        if shown["dedicated"] != (task.execution != Execution() or expected != own):
            self.fail(f"{what} has dedicated={shown['dedicated']}")


def _plain(execution: Execution) -> list[dict[str, str]]:
    return [asdict(t) for t in execution.tolerations]


@dataclass(slots=True)
class _Fuse:
    """The breaker as the promise has it."""

    failures: int = 0
    opened_at: float | None = None
    closed_at: float = 0.0
    ambiguous: bool = False  # one of the failures may have been a refusal
    since: int = 0  # what was asked before this number says nothing
    probe: Question | None = None


class BreakerKeepsQuiet(Check):
    """After the fifth failure in a row at most one question in 30 s, and not before; with `fail_open` none is let by
    unasked while one of the failures may have been a refusal."""

    def __init__(self, all_: "Checks") -> None:
        super().__init__(all_)
        self._fuses: dict[tuple[int, str], _Fuse] = defaultdict(_Fuse)

    def is_open(self, plane: int, hook: str) -> bool:
        return self._fuses[plane, hook].opened_at is not None

    def probe_due(self, plane: int, hook: str) -> float | None:
        """When the hook may be asked again; None: it may be now, or somebody finds out already."""
        fuse = self._fuses[plane, hook]
        return None if fuse.opened_at is None or fuse.probe is not None else fuse.opened_at + 30.0

    def asked(self, question: Question) -> None:
        fuse = self._fuses[question.plane, question.hook]
        if fuse.opened_at is None:
            return
        if question.at < fuse.opened_at + 30.0 - EPSILON:
            self.fail(f"{question.hook} is asked {question.at - fuse.opened_at:.1f} s after its breaker opened")
        if fuse.probe is not None and question.at < fuse.probe.at + 30.0 - EPSILON:
            self.fail(f"{question.hook} is asked twice within {question.at - fuse.probe.at:.1f} s, its breaker open")
        fuse.probe, fuse.since = question, question.number

    def answered(self, question: Question) -> None:
        fuse = self._fuses[question.plane, question.hook]
        if question.number < fuse.since:
            return
        number = self.all.record.number
        if isinstance(question.answer, Broken):
            fuse.failures += 1
            fuse.ambiguous |= question.answer.ambiguous
            if fuse.opened_at is not None or fuse.failures >= 5:
                fuse.opened_at, fuse.probe, fuse.since = question.answered_at, None, number
        else:
            if fuse.opened_at is not None:
                fuse.since, fuse.closed_at = number, question.answered_at
            fuse.failures, fuse.opened_at, fuse.probe, fuse.ambiguous = 0, None, None, False

    def passed_by(self, plane: int, hook: str, what: str, *, bypassed: bool) -> None:
        fuse = self._fuses[plane, hook]
        if fuse.opened_at is None:
            if self.all.record.now() > fuse.closed_at + EPSILON:
                self.fail(f"{hook} is not asked about {what} after {fuse.failures} failures in a row")
        elif bypassed and fuse.ambiguous:
            self.fail(f"{what} is let by {hook}, of whose failures one may have been a refusal")


class BrokenWaitingEnds(Check):
    """`dispatch_failed` at 15 minutes of broken waiting and not before."""

    LIMIT = 900.0
    _MARK: ClassVar[str] = "admission hook "

    def __init__(self, all_: "Checks") -> None:
        super().__init__(all_)
        self._waited: dict[str, float] = {}  # while a control plane was up
        self._able: dict[str, float] = {}  # of that, while it could have done something about it

    def passed(self, seconds: float) -> None:
        every = self.all
        for attempt_id, waited in self._waited.items():
            if every.up:
                self._waited[attempt_id] = waited + seconds
                row = every.now.rows[attempt_id]
                if every.able and not every.is_asked(row.tried):
                    able = self._able[attempt_id] = self._able[attempt_id] + seconds
                    if able > self.LIMIT + 5.0:
                        self.fail(f"{shown_try(row.tried)} has waited {waited:.1f} s on a broken hook")
                        return

    def seen(self, before: Seen, after: Seen) -> None:
        for attempt_id, row in after.rows.items():
            was = before.rows.get(attempt_id)
            if row is was:
                continue
            broken = row.state == "held" and row.reason.startswith(self._MARK)
            if broken and attempt_id not in self._waited:
                self._waited[attempt_id] = self._able[attempt_id] = 0.0
            if row.state in ("failed", "up_for_retry") and row.reason.startswith("dispatch_failed"):
                waited = self._waited.get(attempt_id, 0.0)
                if was is None or was.state != row.state:
                    self.all.record.count("dispatch_failed")
                    if waited < self.LIMIT - EPSILON:
                        self.fail(f"{shown_try(row.tried)} is dispatch_failed after {waited:.1f} s of broken waiting")
            if not broken:
                self._waited.pop(attempt_id, None)
                self._able.pop(attempt_id, None)
        for attempt_id in [a for a in self._waited if a not in after.rows]:
            del self._waited[attempt_id], self._able[attempt_id]


class HeldIsAskedAgain(Check):
    """A held attempt is asked again within its recheck time plus jitter, or as soon as its tenant's share of the pace
    allows."""

    def __init__(self, all_: "Checks") -> None:
        super().__init__(all_)
        self._waited: dict[str, float] = {}

    def passed(self, seconds: float) -> None:
        every = self.all
        if not every.able:
            return
        most = every.drawn.recheck * 1.1 + 3.0
        for attempt_id, waited in self._waited.items():
            row = every.now.rows[attempt_id]
            if not every.is_asked(row.tried) and not every.pace_is_used_up(row):
                self._waited[attempt_id] = waited + seconds
                if waited + seconds > most:
                    self.fail(f"{shown_try(row.tried)} is held by {row.hook} and was not asked for {waited:.1f} s")
                    return

    def asked(self, question: Question) -> None:
        every = self.all
        row = every.row_of(question.tried)
        if row is None or row.state != "held" or question.hook != every.drawn.hooks[0].name:
            return
        earlier = [q for q in every.record.by_try[question.tried] if q is not question]
        last = earlier[-1] if earlier else None
        if last is None or not isinstance(last.answer, Hold) or last.plane != question.plane:
            return
        if every.fuses.is_open(question.plane, last.hook):
            return  # somebody has to probe
        waited = question.at - last.answered_at
        if waited < every.drawn.recheck - EPSILON and last.answered_at > every.asked_now_at:
            self.fail(f"{shown_try(question.tried)} is asked again {waited:.1f} s after {last.hook} held it")

    def seen(self, before: Seen, after: Seen) -> None:
        for attempt_id, row in after.rows.items():
            if row is before.rows.get(attempt_id):
                continue
            if row.state == "held":
                was = before.rows.get(attempt_id)
                if was is None or was.next_ask_due != row.next_ask_due or was.state != "held":
                    self._waited[attempt_id] = 0.0
            else:
                self._waited.pop(attempt_id, None)
        for attempt_id in [a for a in self._waited if a not in after.rows]:
            del self._waited[attempt_id]


class ReviewsAreWhole(Check):
    """The record of reviews tells the whole story: every question asked is counted in it, once."""

    def ended(self, seen: Seen) -> None:
        every = self.all
        kept: dict[tuple[Try, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
        last: dict[tuple[str, str], tuple[str, str, str]] = {}
        for row in every.outside.reviews():
            tried = row.run_id, row.task_id, row.try_number
            if row.outcome != "breaker_open" and row.uid:
                kept[tried, row.hook][_kind(row.outcome)] += row.count
            reason = row.reason.replace(row.incident, "*") if row.incident else row.reason
            same = row.outcome, reason, row.changes
            if last.get((row.attempt_id, row.hook)) == same:
                self.fail(f"two entries in a row for {shown_try(tried)} and {row.hook} are equal: {same}")
            last[row.attempt_id, row.hook] = same
        put: dict[tuple[Try, str], dict[str, list[Question]]] = defaultdict(lambda: defaultdict(list))
        for question in every.record.questions:
            if question.answer is not None:
                put[question.tried, question.hook][_answer_kind(question)].append(question)
        for key in put.keys() | kept.keys():
            for kind in sorted(put[key].keys() | kept[key].keys()):
                questions, count = put[key][kind], kept[key][kind]
                least = sum(not every.unwritten(q) for q in questions)
                if not least <= count <= len(questions):
                    what = f"{key[1]} answered {len(questions)} questions about {shown_try(key[0])} with {kind}"
                    self.fail(f"{what}, and {count} are kept (at least {least} should be)")


def _kind(outcome: str) -> str:
    return {"error": "broken", "fail_open": "broken", "change_refused": "admit"}.get(outcome, outcome)


def _answer_kind(question: Question) -> str:
    match question.answer:
        case Admit():
            return "admit"
        case Hold():
            return "hold"
        case Refuse():
            return "refuse"
        case _:
            return "broken"


class NothingFailsByItself(Check):
    """What the control plane logs as trouble was trouble, and no fault of its own."""


class Checks:
    """All of them, and what they share: how things stand, and who is asking about what."""

    def __init__(self, drawn: Drawn, record: Record, outside: Outside) -> None:
        self.drawn = drawn
        self.record = record
        self.outside = outside
        self.violations: list[Violation] = []
        self.now = Seen({}, {})
        self.launched_at: dict[str, float] = {}
        self.walks: dict[tuple[int, Try], Walk] = {}  # the latest of each plane and try
        self.asked_now_at = 0.0
        self.store_works = True
        self._tasks = {(dag.dag_id, t.task_id): t for _, dag in drawn.dags for t in dag.tasks}
        self._dag_of: dict[str, str] = {}
        self._first = drawn.hooks[0].name if drawn.hooks else ""
        self.up_seconds = 0.0  # for how long control planes have been up
        self.planes = 0  # that have begun
        self._leading: int | None = None
        self._ready: set[int] = set()
        self._died: dict[int, int] = {}
        self._failed_writes: list[tuple[int, float]] = []
        self._looked_at = record.now()
        self._touched: dict[str, float] = {}
        self._done: dict[Try, float] = {}  # when anything was last done about a try
        self._speaking: list[Spoken] = []
        self._last_launch: dict[str, str | None] = {}  # by attempt
        self._all = [kind(self) for kind in (
            NothingUnchecked, RefusedNeverRan, NothingTwice, NothingLost, SlotsAreExact, NothingElseChanged,
            BreakerKeepsQuiet, OneProbesInTurn, BrokenWaitingEnds, HeldIsAskedAgain, ReviewsAreWhole,
            TenantsShareThePace, TokensOpenTheirOwnDoor, TriesAreTheAuthors, PeopleAreHeard,
        )]  # fmt: skip
        self._sharing = next(check for check in self._all if isinstance(check, TenantsShareThePace))
        self._tokens = next(check for check in self._all if isinstance(check, TokensOpenTheirOwnDoor))
        self._by_itself = NothingFailsByItself(self)
        self.fuses = next(check for check in self._all if isinstance(check, BreakerKeepsQuiet))

    # What is told by the edges

    def leads(self, plane: int) -> None:
        self.pass_time()
        self.planes += 1
        self._leading = plane

    def serves(self, plane: int) -> None:
        self.pass_time()
        self._ready.add(plane)

    def plane_died(self, plane: int) -> None:
        self.pass_time()
        self._died[plane] = self.record.next()
        if self._leading == plane:
            self._leading = None
        self.asked_now_at = self.record.now()  # whoever comes next asks what became due meanwhile

    def plane_ended(self, plane: int, failure: BaseException | None) -> None:
        if self._leading == plane or not all(isinstance(cause, TermLost) for cause in _causes(failure)):
            self._by_itself.fail(f"plane {plane} ended by itself: {failure!r}")

    def failed_by_itself(self, what: str) -> None:
        self._by_itself.fail(what)

    def write_failed(self, plane: int) -> None:
        self._failed_writes.append((plane, self.record.now()))

    def asked(self, question: Question) -> None:
        self.pass_time()
        key = question.plane, question.tried
        walk = self.walks.get(key)
        if walk is None or question.hook == self._first:
            walk = self.walks[key] = Walk(self.record.now())
        walk.questions[question.hook] = question
        self._done[question.tried] = self.record.now()
        for check in self._all:
            check.asked(question)

    def answered(self, question: Question) -> None:
        self._done[question.tried] = self.record.now()
        for check in self._all:
            check.answered(question)

    def reviewed(self, plane: int, attempt: Attempt, hook: str, outcome: Outcome, *, put: bool) -> None:
        tried = attempt.run_id, attempt.task_id, attempt.try_number
        walk = self.walks.get((plane, tried))
        if not put and (walk is None or hook == self._first):
            walk = self.walks[plane, tried] = Walk(self.record.now())
        if walk is None:
            self._by_itself.fail(f"{hook} is said to have been asked about {shown_try(tried)}")
            return
        self.record.count(f"outcome {outcome}")
        self._done[tried] = self.record.now()
        if not put:
            for check in self._all:
                check.passed_by(plane, hook, shown_try(tried), bypassed=outcome is Outcome.FAIL_OPEN)
            walk.questions.pop(hook, None)
            self.record.say("  {} passed by for {}: {}", hook, shown_try(tried), outcome)
        if outcome is Outcome.FAIL_OPEN:
            walk.bypassed.add(hook)
        else:
            walk.bypassed.discard(hook)

    def minted(self, plane: int, admitted: Admitted, attempt_id: str, launch_id: str) -> None:
        self.pass_time()
        attempt = admitted.attempt
        tried = attempt.run_id, attempt.task_id, attempt.try_number
        start = Start(self.record.next(), self.record.now(), plane, attempt_id, launch_id, tried, attempt.tenant_id)
        if launch_id in self.record.minted:
            self._by_itself.fail(f"two tokens for one launch of {shown_try(tried)}")
        self.record.minted[launch_id] = start
        self.record.say("  token for {} ({})", shown_try(tried), launch_id[-6:])
        for check in self._all:
            check.minted(start, self.walks.get((plane, tried)))

    def issued(self, secret: str, attempt_id: str, launch_id: str) -> None:
        self.pass_time()
        issued = Issued(secret, attempt_id, launch_id, self.up_seconds, self.planes)
        self.record.issued[secret] = issued
        for check in self._all:
            check.issued(issued)

    def says(self, what: str, launch_id: str) -> None:
        """An agent begins to say something of its own."""
        self._tokens.says(what, launch_id)

    def speaks(self, plane: int, door: str, secret: str, launch_id: str) -> Spoken:
        """Somebody shows a token; how it ends is told to `spoke`."""
        self.pass_time()
        counts = self.counts(launch_id)
        spoken = Spoken(plane, door, self.record.issued.get(secret), launch_id, counted=counts, always=counts)
        self._speaking.append(spoken)
        return spoken

    def spoke(self, spoken: Spoken, status: int | None) -> None:
        self.pass_time()
        self._speaking.remove(spoken)
        spoken.status = status
        for check in self._all:
            check.spoke(spoken)

    def started(self, start: Start, launch: Launch) -> None:
        for check in self._all:
            check.started(start, launch)

    def forked(self, process: Process) -> None:
        if process.launch_id not in self.record.minted:
            self._by_itself.fail(f"{shown_try(process.tried)} has a process and no token")

    def begun(self, process: Process) -> None:
        self.pass_time()
        for check in self._all:
            check.begun(process)

    def committed(self, on_the_way: Iterable[Seen] = (), changed: bool = True) -> None:
        """A transaction was committed: look. `on_the_way` is what each verb in it but the last one left."""
        self.pass_time()
        for seen in on_the_way:
            self._see(seen)
        if changed:
            self._see(self.outside.seen())

    def _see(self, after: Seen) -> None:
        before, self.now = self.now, after
        for attempt_id, row in after.rows.items():
            was = before.rows.get(attempt_id)
            if row is was:
                continue
            self._touched[attempt_id] = self._done[row.tried] = self.record.now()
            self._dag_of[row.run_id] = row.dag_id
            self._last_launch[attempt_id] = row.launch_id
            if row.launch_id is not None:
                self.launched_at.setdefault(row.launch_id, self.record.now())
            if was is None or was.state != row.state:
                self.record.say("{} is {}{}", shown_try(row.tried), row.state, f": {row.reason}" if row.reason else "")
        for spoken in self._speaking:
            counts = self.counts(spoken.launch_id)
            spoken.counted, spoken.always = spoken.counted or counts, spoken.always and counts
        for check in self._all:
            check.seen(before, after)

    def pass_time(self) -> None:
        """Let the checks count the time since they last looked."""
        now = self.record.now()
        seconds, self._looked_at = now - self._looked_at, now
        if seconds > 0:
            self.up_seconds += seconds * self.up
            for check in self._all:
                check.passed(seconds)

    def end(self) -> None:
        self.pass_time()
        for check in self._all:
            check.ended(self.now)

    # What the checks ask

    @property
    def up(self) -> bool:
        """Whether a control plane leads."""
        return self._leading is not None

    @property
    def leading(self) -> int | None:
        """Which control plane leads."""
        return self._leading

    @property
    def able(self) -> bool:
        """Whether it can do what it wants to: nothing hinders it."""
        return self._leading is not None and self._leading in self._ready and self.store_works

    def counts(self, launch_id: str) -> bool:
        """Whether a launch counts now."""
        started = self.record.minted.get(launch_id)
        row = None if started is None else self.now.rows.get(started.attempt_id)
        return row is not None and row.launch_id == launch_id and row.state in ("launching", "running")

    def was_last(self, launch_id: str) -> bool:
        """Whether a launch is its attempt's latest, and was not taken back."""
        started = self.record.minted.get(launch_id)
        return started is not None and self._last_launch.get(started.attempt_id) == launch_id

    def task(self, tried: Try) -> TaskSpec:
        return self._tasks[self._dag_of[tried[0]], tried[1]]

    def row_of(self, tried: Try) -> Row | None:
        return next((row for row in self.now.rows.values() if row.tried == tried), None)

    def is_asked(self, tried: Try) -> bool:
        walk = None if self._leading is None else self.walks.get((self._leading, tried))
        return walk is not None and any(q.answer is None for q in walk.questions.values())

    def open_questions(self) -> list[Question]:
        """Return the questions of the leading control plane that have not been answered."""
        walks = (walk for (plane, _), walk in self.walks.items() if plane == self._leading)
        return [q for walk in walks for q in walk.questions.values() if q.answer is None]

    def last_done(self, row: Row) -> float:
        """When anything was last asked about a row, answered or written."""
        return self._done[row.tried]

    def troubled(self, plane: int) -> bool:
        """Whether a write failed so lately that what it was about may still be set aside."""
        now = self.record.now()
        return any(of == plane and now - at < 130.0 for of, at in self._failed_writes)

    def pace_is_used_up(self, row: Row) -> bool:
        """Whether there may be no place in which a held attempt could be asked again."""
        return self.drawn.places < MANY_PLACES and self._sharing.may_be_full(row.tenant_id)

    def idle_for(self, row: Row) -> float:
        """Seconds since anything was done about a row, while something could have been."""
        if not self.able or self.is_asked(row.tried):
            self._touched[row.attempt_id] = self.record.now()
        return self.record.now() - self._touched[row.attempt_id]

    def never_fits(self, row: Row) -> bool:
        return row.pool_slots > self.now.pools.get(row.pool, 0)

    def unwritten(self, question: Question) -> bool:
        """Whether what came of a question need not be kept: whoever asked died first, or could not write."""
        if question.plane in self._died:
            last = [q for q in self.record.by_try[question.tried] if q.plane == question.plane]
            firsts = [q.number for q in last if q.hook == self._first]
            if not firsts or question.number >= firsts[-1]:
                return True
        return any(
            plane == question.plane and question.at <= at <= question.answered_at + 80.0
            for plane, at in self._failed_writes
        )

    def expected(self, tried: Try, walk: Walk | None, *, before: str | None) -> Execution:
        """Return what a try would run with after the hooks that stand before `before`; None: after all of them."""
        task, policy = self.task(tried), self.drawn.policy
        found: dict[str, Any] = {
            "service_account": task.execution.service_account or policy.default_service_account,
            "priority_class_name": task.execution.priority_class_name,
            "node_selector": dict(task.execution.node_selector),
            "labels": dict(task.execution.labels),
            "annotations": dict(task.execution.annotations),
            "tolerations": list(task.execution.tolerations),
        }
        for hook in self.drawn.hooks:
            if hook.name == before:
                break
            question = None if walk is None else walk.questions.get(hook.name)
            if question is None or not isinstance(question.answer, Admit):
                continue
            changes = question.answer.changes
            for name in ("node_selector", "labels", "annotations"):
                found[name].update(getattr(changes, name))
            found["tolerations"] += [t for t in changes.tolerations if t not in found["tolerations"]]
            found["service_account"] = changes.service_account or found["service_account"]
            found["priority_class_name"] = changes.priority_class_name or found["priority_class_name"]
        return Execution(**{**found, "tolerations": tuple(found["tolerations"])})


def _causes(failure: BaseException | None) -> list[BaseException | None]:
    if isinstance(failure, BaseExceptionGroup):
        return [cause for one in failure.exceptions for cause in _causes(one)]
    return [failure]


def rejected(task: TaskSpec, policy: Policy) -> bool:
    """Whether own checks are against a task, of the two kinds that are drawn."""
    execution = task.execution
    own: Mapping[str, Any] = {
        name: getattr(execution, name)
        for name in ("node_selector", "tolerations", "labels", "annotations", "priority_class_name", "service_account")
    }
    if policy.fields is not None and any(value and name not in policy.fields for name, value in own.items()):
        return True
    accounts = policy.service_accounts
    return accounts is not None and bool(execution.service_account) and execution.service_account not in accounts
