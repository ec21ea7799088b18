"""The hooks: each lives through the weather that was drawn for it, and answers as its callers would hear it."""

import asyncio
from random import Random
from typing import Protocol

from dexaflow.admission import Admit, Hold, Refuse, Request, admit, hold, refuse
from dexaflow.admission.ports import Answered, HookCaller
from dexaflow.base.errors import HookBroken
from simulation.checks import Checks
from simulation.drawing import HookDrawn
from simulation.record import Answer, Broken, Question, Record

__all__ = ["TIMEOUT", "Alive", "AskedHook", "SimulatedHook"]

TIMEOUT = 0.5  # the configured one: callers keep it, so their questions never take longer


class Alive:
    """What a hook needs to know of who asks."""

    number: int
    dead: bool


class AskedHook(Protocol):
    """One hook of a world: gives each control plane its own end of it."""

    def caller_of(self, plane: Alive) -> HookCaller: ...


class SimulatedHook:
    """One hook of the outside world, the same for every control plane."""

    def __init__(self, drawn: HookDrawn, chance: Random, record: Record, checks: Checks, began: float) -> None:
        self.name = drawn.name
        self.calm = False  # the night is over: it admits
        self._drawn = drawn
        self._chance = chance
        self._record = record
        self._checks = checks
        self._began = began

    def caller_of(self, plane: Alive) -> HookCaller:
        """See `AskedHook.caller_of`."""
        return _Caller(self, plane)

    async def ask(self, plane: Alive, request: Request) -> Answered:
        """Put one question for a control plane."""
        if plane.dead:
            raise asyncio.CancelledError  # what is left of its code reaches nobody any more
        drawn, chance = self._drawn, self._chance
        now = self._record.now() - self._began
        weather = next((w for w in drawn.weather if now < w.until), drawn.weather[-1])
        question = self._record.asked(plane.number, self.name, request)
        self._checks.asked(question)
        waited = 0.0
        if not self.calm and chance.random() < weather.crowded:
            waited = chance.choice([0.5, 5.0, 20.0, 65.0])  # for a connection: pacing, and no failure
            await asyncio.sleep(waited)
            question.put_at = self._record.now()
        broken = not self.calm and chance.random() < weather.broken
        took = chance.choice([0.0, 0.001, 0.01, 0.1, 0.45])
        if broken:
            how = chance.choice(weather.kinds)
            took = TIMEOUT if how == "silent" else took
            await asyncio.sleep(took)
            return self._fail(plane, question, how, took)
        answer = self._answer(request, now)
        await asyncio.sleep(took)
        self._end(plane, question, answer)
        return Answered(answer, took)

    def _answer(self, request: Request, now: float) -> Admit | Hold | Refuse:
        drawn, chance = self._drawn, self._chance
        for tenant, since, until in drawn.freezes:
            if request.tenant_id == tenant and since <= now < until:
                return hold(f"{tenant} is frozen for {until - since:.0f} s")
        if self.calm:
            return admit(labels={"calm": "yes"}) if drawn.changes else admit()
        if chance.random() < drawn.refuses:
            return refuse(f"over budget: {request.task_id}")
        if chance.random() < drawn.holds:
            return hold(chance.choice(["", "not yet", "the queue is long"]))
        if chance.random() < drawn.bad_changes:
            return chance.choice(
                [
                    admit(labels={"dexaflow.io/run": "mine"}),
                    admit(labels={"team": "-not-a-value-"}),
                    admit(service_account="cluster-admin"),
                    admit(priority_class_name="system-node-critical"),
                    admit(tolerations=[{"key": "a", "operator": "Gt", "value": "1"}]),
                ]
            )
        return chance.choice(drawn.changes) if drawn.changes else admit()

    def _fail(self, plane: Alive, question: Question, how: str, took: float) -> Answered:
        self._end(plane, question, Broken(how, ambiguous=how == "twice"))
        match how:
            case "raises":
                raise ZeroDivisionError("the hook's own fault")
            case "nonsense":
                return Answered("yes", took)  # type: ignore[arg-type]  # what a hook in process may return
            case _:
                raise HookBroken(f"{how} at https://policy.example", timed_out=how == "silent",
                                 ambiguous=how == "twice", seconds=took)  # fmt: skip

    def _end(self, plane: Alive, question: Question, answer: Answer) -> None:
        if plane.dead:
            return  # nobody hears it
        self._checks.pass_time()
        question.answer = answer
        question.answered = self._record.next()
        question.answered_at = self._record.now()
        self._record.say("  {} answers plane {}: {}", self.name, plane.number, answer)
        self._checks.answered(question)


class _Caller:
    """A control plane's end of one hook."""

    def __init__(self, hook: SimulatedHook, plane: Alive) -> None:
        self.name = hook.name
        self._hook = hook
        self._plane = plane

    async def ask(self, request: Request) -> Answered:
        """See `HookCaller.ask`."""
        return await self._hook.ask(self._plane, request)
