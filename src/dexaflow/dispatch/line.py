"""The line: own checks, admission, token, executor. Read this file first.

Each step takes what only the step before can make: `check` makes `Checked`, the gate makes `Admitted`, a launch that
is written makes `Launched`, both together mint a token, and all three make the `Launch` that an executor starts. There
is no other way to a token or a process (R1.1, R1.3).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from dexaflow.admission.gate import Gate
from dexaflow.admission.results import Admitted, Held, Refused
from dexaflow.base.clock import Clock
from dexaflow.base.errors import ExecutorError
from dexaflow.base.steps import Step, reached
from dexaflow.executors.ports import Executor, Launch
from dexaflow.model.attempt import Attempt
from dexaflow.policy.checked import Checked, Rejection
from dexaflow.policy.checks import OwnChecks
from dexaflow.policy.policy import Policy
from dexaflow.store.admitting import Launching, launch, placement_document, record, refuse, reject
from dexaflow.store.bridge import Store
from dexaflow.store.reporting import start_failed
from dexaflow.store.transaction import Tx
from dexaflow.store.tries import RetryRule
from dexaflow.tokens.launch import Launched
from dexaflow.tokens.mint import Minter

__all__ = ["Ended", "Line", "Moved", "Started", "TooOld", "Waits", "Walked"]

START_SECONDS = 30.0  # for an executor to start an agent; less than what the watch waits for the agent to be heard


@dataclass(frozen=True, slots=True)
class Ended:
    """It went no further: it was rejected, refused or could not be started, or its pool had filled up meanwhile."""

    why: str


@dataclass(frozen=True, slots=True)
class Started:
    """It is launched."""

    launch_id: str


@dataclass(frozen=True, slots=True)
class Waits:
    """A hook holds it, or is broken; the dispatcher writes the hold."""

    held: Held
    placement: str


@dataclass(frozen=True, slots=True)
class TooOld:
    """Its admit was not used within a minute (R1.6): to be asked anew."""


@dataclass(frozen=True, slots=True)
class Moved:
    """It was cancelled, cleared or taken over while it was asked: nothing of this walk counts."""


Walked = Ended | Started | Waits | TooOld | Moved


class Line:
    """What the walk needs, wired once."""

    def __init__(
        self,
        *,
        policy: Callable[[], Policy],
        gate: Gate,
        minter: Minter,
        executor: Executor,
        store: Store,
        clock: Clock,
        new_id: Callable[[], str],
        parallelism: int,
        term: int,
        retry: RetryRule,
    ) -> None:
        self._policy = policy
        self._own_checks = OwnChecks()
        self._gate = gate
        self._minter = minter
        self._executor = executor
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._parallelism = parallelism
        self._retry = retry
        self._term = term

    async def walk(self, attempt: Attempt, *, may_probe: Callable[[str], bool]) -> Walked:
        """Walk one attempt as far as it goes. What fails on the way is written; a hold is handed back."""
        reached(Step.CLAIMED)
        checked = self._own_checks.check(attempt, self._policy())
        if isinstance(checked, Rejection):
            rejection = checked
            await self._store.do(lambda tx: reject(tx, attempt, rejection))
            return Ended("rejected")
        reached(Step.CHECKED)
        verdict = await self._gate.review(checked, may_probe=may_probe)
        reached(Step.DECIDED)
        match verdict:
            case Admitted():
                return await self._launch(verdict)
            case Held():
                return Waits(verdict, self._placement(checked, verdict))
            case Refused():
                placement = self._placement(checked, verdict)
                moved = await self._store.do(lambda tx: refuse(tx, verdict, placement))
                reached(Step.REFUSED)
                return Ended("refused") if moved else Moved()
            case _:
                assert_never(verdict)

    async def _launch(self, admitted: Admitted) -> Walked:
        launch_id = self._new_id()
        checked = admitted.checked
        placement = placement_document(
            checked.image, checked.resources, admitted.execution, admitted.settings, dedicated=admitted.dedicated
        )

        def write(tx: Tx) -> Launching | TooOld | None:
            if not admitted.good_at(self._clock.monotonic()):  # asked here, so that no queue before the write counts
                record(tx, admitted.attempt, admitted.reviews)  # every ask is kept (R9.2), also one in vain
                return TooOld()
            return launch(tx, admitted, launch_id=launch_id, placement=placement, parallelism=self._parallelism)

        written = await self._store.do(write)
        if isinstance(written, TooOld):
            return written
        if written is None:
            return Moved()
        if written.launch_id is None:
            return Ended("pool full")
        reached(Step.LAUNCHED)
        launched = Launched.written(admitted, launch_id, self._term)
        token = self._minter.mint(admitted, launched)
        reached(Step.TOKEN_MINTED)
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._executor.start(Launch(admitted, token, launched))
        except TimeoutError:  # it may start yet; if not, the watch gives this launch up, and it is asked anew
            return Started(launch_id)
        except ExecutorError as error:
            reason = f"could not be started: {error}"
            attempt_id = admitted.attempt.id
            await self._store.do(lambda tx: start_failed(tx, attempt_id, launch_id, reason, self._retry))
            return Ended("start failed")
        return Started(launch_id)

    @staticmethod
    def _placement(checked: Checked, verdict: Held | Refused) -> str:
        execution = verdict.execution or checked.execution
        return placement_document(
            checked.image, checked.resources, execution, verdict.settings or checked.settings,
            dedicated=checked.own_placement or execution != checked.execution,
        )  # fmt: skip
