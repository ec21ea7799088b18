"""One call of a hook in process, what is run for it in its thread, and the way back."""

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

from dexaflow.admission.decisions import Admit, Decision, Hold, Refuse, Request
from dexaflow.admission.envelope import decision_of
from dexaflow.admission.hook_errors import described
from dexaflow.admission.hook_shape import HookFunction
from dexaflow.admission.ports import Answered, NotPut
from dexaflow.base.errors import HookBroken
from dexaflow.hooks.hook_loop import HookLoop
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution, Resources

__all__ = ["Call", "Failure", "Outcome", "Returns", "ToAwait", "let_go", "run_async", "run_plain", "sealed"]


class Failure:
    """How a call ended without a decision; `cause` is for the server log."""

    __slots__ = ("cause",)

    def __init__(self, cause: str) -> None:
        self.cause = cause


class ToAwait:
    """What a plain function returned that is async after all; `awaitable` is looked at in the hook's threads alone."""

    __slots__ = ("awaitable",)

    def __init__(self, awaitable: Awaitable[object]) -> None:
        self.awaitable = awaitable


Outcome = Decision | Failure | ToAwait


class Call:
    """One call of the hook.

    `ended`: nobody waits for it any more. `returned`: the hook is out of it. `abandoned`: it is counted among those
    that passed their deadline and have not returned. `complained`: a line has been logged about that.
    """

    __slots__ = (
        "abandoned",
        "answer",
        "complained",
        "ended",
        "handed_in",
        "request",
        "returned",
        "started",
        "timer",
        "where",
    )

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        # Carries a failure as a value: an exception in a future that nobody awaits any more would be logged.
        self.answer: asyncio.Future[Answered | HookBroken | NotPut] = loop.create_future()
        self.started = 0.0  # monotonic seconds; 0 while it waits its turn
        self.handed_in = 0.0  # to the event loop `where`
        self.timer: asyncio.TimerHandle | None = None
        self.where: HookLoop | None = None
        self.ended = False
        self.abandoned = False
        self.complained = False
        self.returned = False


class Returns:
    """Brings the ends of calls from their threads to the control plane's event loop; many of them with one wake-up."""

    __slots__ = ("_box", "_take_one", "_woken", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, take_one: Callable[[Call, Outcome], None]) -> None:
        self.loop = loop
        self._take_one = take_one
        self._box: deque[tuple[Call, Outcome]] = deque()
        self._woken = False

    def put(self, call: Call, outcome: Outcome) -> None:
        """Tell of one end; from any thread."""
        self._box.append((call, outcome))
        if not self._woken:  # put into the box first: whoever clears the flag looks into it afterwards
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self.take)
            except RuntimeError:
                pass  # the loop is closed: nobody waits

    def take(self) -> None:
        """Hear of all ends so far; on the event loop.

        Not of those that come meanwhile: askers hear of these first, so that the breaker counts their failures before
        more calls are begun in their place.
        """
        self._woken = False
        for _ in range(len(self._box)):
            call, outcome = self._box.popleft()
            self._take_one(call, outcome)


def run_plain(name: str, function: HookFunction, call: Call, returns: Returns) -> None:
    """Call a plain hook, in this thread. Whatever it does, its end is told.

    What it returns is looked at here too: its mappings may be of the hook's own making, and run its code.
    """
    outcome: Outcome
    uid = call.request.uid
    try:
        if call.ended:
            outcome = Failure("cancelled before it was called")
        else:
            answer: object = function(call.request)
            if not isinstance(answer, Admit | Hold | Refuse) and inspect.isawaitable(answer):
                outcome = ToAwait(answer)
            else:
                outcome = _decision(name, uid, answer)
            del answer  # what it keeps alive goes here, and not on the control plane's event loop
    except BaseException as error:  # noqa: BLE001 - foreign code: SystemExit and KeyboardInterrupt are its failures
        outcome = Failure(described(error))
    returns.put(call, outcome)


async def run_async(name: str, function: HookFunction, call: Call, given: ToAwait | None, returns: Returns) -> None:
    """Call an async hook, or await what a plain one returned, on this thread's event loop. Never raises."""
    outcome: Outcome
    uid = call.request.uid
    try:
        awaitable = function(call.request) if given is None else given.awaitable
        outcome = _decision(name, uid, await awaitable)  # type: ignore[misc]  # what an async hook gives
        del awaitable
    except BaseException as error:  # noqa: BLE001 - foreign code, and our own cancelling at the deadline
        outcome = Failure(described(error))
    returns.put(call, outcome)


def let_go(given: ToAwait) -> None:
    """Close what nobody will await; in a thread of the hook's, since that may run its code."""
    with contextlib.suppress(BaseException):
        if inspect.iscoroutine(given.awaitable):
            given.awaitable.close()


def _decision(name: str, uid: str, answer: object) -> Decision | Failure:
    try:
        return decision_of(uid, answer)
    except BaseException as error:  # noqa: BLE001 - foreign code: its mappings, its classes
        return Failure(f"what {name} returned cannot be used: {described(error)}")


def sealed(request: Request, deadline: float) -> Request:
    """Return a copy that shares nothing with the gate's: no hook can change what is asked next, or sent (R8.1)."""
    resources, execution = request.resources, request.execution
    return Request(
        uid=request.uid,
        tenant_id=request.tenant_id,
        dag_id=request.dag_id,
        run_id=request.run_id,
        task_id=request.task_id,
        try_number=request.try_number,
        operator=request.operator,
        image=request.image,
        source_mode=request.source_mode,
        resources=Resources(requests=_sealed_map(resources.requests), limits=_sealed_map(resources.limits)),
        execution=Execution(
            service_account=execution.service_account,
            node_selector=_sealed_map(execution.node_selector),
            tolerations=tuple(Toleration(t.key, t.operator, t.value, t.effect) for t in execution.tolerations),
            labels=_sealed_map(execution.labels),
            annotations=_sealed_map(execution.annotations),
            priority_class_name=execution.priority_class_name,
        ),
        service_account_chosen=request.service_account_chosen,
        deadline=deadline,
    )


def _sealed_map(value: Mapping[str, str]) -> Mapping[str, str]:
    # The empty one too is its own: comparing a proxy hands the dict within it to whatever it is compared with.
    return MappingProxyType(dict(value))
