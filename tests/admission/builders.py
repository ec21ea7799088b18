"""Small stand-ins for what the gate is handed, and builders that default all but what a test is about."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from dexaflow.admission.decisions import Decision, Request, well_formed
from dexaflow.admission.gate import Gate
from dexaflow.admission.ports import Answered, HookCaller
from dexaflow.admission.results import Outcome
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution, Resources
from dexaflow.policy import checked as policy_checked
from dexaflow.policy.checked import Checked, Setting
from dexaflow.policy.policy import Policy

UID = "6f1c2a8e-0d4b-4f5e-9a3c-2b7d8e1f0a42"
PLAIN = Execution(service_account="default")


@dataclass
class StandingClock:
    """A clock that moves when a test says so."""

    seconds: float = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@dataclass
class Watching:
    """An observer that remembers."""

    reviewed_as: list[tuple[str, Outcome, float | None]] = field(default_factory=list)
    failures: list[tuple[str, str, str, bool]] = field(default_factory=list)
    breakers: list[tuple[str, bool]] = field(default_factory=list)

    def reviewed(self, attempt: Attempt, hook: str, outcome: Outcome, seconds: float | None) -> None:
        self.reviewed_as.append((hook, outcome, seconds))

    def hook_failed(self, request: Request, hook: str, incident: str, cause: str, *, bypassed: bool) -> None:
        self.failures.append((hook, incident, cause, bypassed))

    def breaker_changed(self, hook: str, *, is_open: bool) -> None:
        self.breakers.append((hook, is_open))

    def outcomes(self) -> list[Outcome]:
        return [outcome for _, outcome, _ in self.reviewed_as]


Answer = object | BaseException | Callable[[Request], Awaitable[Decision]]


class Scripted:
    """A hook that gives the answers it was told, in order, the last one for ever; it keeps every question."""

    def __init__(self, *answers: Answer, name: str = "webhook", seconds: float = 0.25) -> None:
        self.name = name
        self.answers = list(answers)
        self.seconds = seconds
        self.asked: list[Request] = []

    async def ask(self, request: Request) -> Answered:
        self.asked.append(request)
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        if callable(answer):
            answer = await answer(request)
        return Answered(well_formed(answer), self.seconds)  # as every caller of a hook in process does


class Pausing:
    """An answer that waits until a test lets it go."""

    def __init__(self, decision: Decision | BaseException) -> None:
        self.decision = decision
        self.reached = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self, request: Request) -> Decision:
        self.reached.set()
        await self.release.wait()
        if isinstance(self.decision, BaseException):
            raise self.decision
        return self.decision


def an_attempt(task: TaskSpec | None = None, tenant_id: str = "acme") -> Attempt:
    return Attempt("a1", tenant_id, "nightly_etl", "0193f2c4", "extract", 1, task or TaskSpec("extract", "python"))


def checked(
    execution: Execution = PLAIN,
    *,
    settings: tuple[Setting, ...] = (),
    own_placement: bool = False,
    service_account_chosen: bool = False,
    task: TaskSpec | None = None,
    tenant_id: str = "acme",
) -> Checked:
    """What own checks would hand to the gate; the one place outside of them that holds their seal."""
    return Checked(
        an_attempt(task, tenant_id),
        "ghcr.io/acme/etl@sha256:00",
        Resources(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "1Gi"}),
        execution,
        settings,
        service_account_chosen=service_account_chosen,
        own_placement=own_placement,
        seal=policy_checked._SEAL,
    )


@dataclass
class World:
    """A gate and all that it was handed."""

    gate: Gate
    clock: StandingClock
    watching: Watching


def a_gate(*hooks: HookCaller, policy: Policy | None = None, fail_open: bool = False) -> World:
    clock, watching = StandingClock(), Watching()
    uids, incidents = itertools.count(1), itertools.count(1)
    gate = Gate(
        hooks,
        policy=policy or Policy(),
        fail_open=fail_open,
        clock=clock,
        new_uid=lambda: f"uid-{next(uids)}",
        new_incident=lambda: f"incident-{next(incidents)}",
        observer=watching,
    )
    return World(gate, clock, watching)


def a_request(**fields: object) -> Request:
    """The request of the spec's example, but for what is given."""
    values: dict[str, object] = {
        "uid": UID,
        "tenant_id": "acme",
        "dag_id": "nightly_etl",
        "run_id": "0193f2c4-...",
        "task_id": "extract",
        "try_number": 1,
        "operator": "python",
        "image": "ghcr.io/acme/etl@sha256:...",
        "source_mode": False,
        "resources": Resources(requests={"cpu": "500m", "memory": "1Gi"}, limits={"memory": "1Gi"}),
        "execution": Execution(service_account="dexaflow-task", node_selector={"zone": "a"}, labels={"team": "data"}),
        "service_account_chosen": False,
    } | fields
    return Request(**values)  # type: ignore[arg-type]  # each test gives fields of their types
