"""The rules of admission, and the gate that no attempt gets past unasked.

A task attempt that has passed the control plane's own checks is put before the hooks, one after the other. Each is
asked one `Request` and answers with one decision:

- `admit()`: let it run; it may ask for changes to where and as whom the pod runs (`Changes`), and to nothing else;
- `hold(reason)`: not now; it is asked again later, for as long as the hook says so;
- `refuse(reason)`: not at all; this try fails at once.

A hook is a function from `Request` to a decision, in process or behind a URL. In process::

    from dexaflow.admission import Decision, Request, admit, refuse

    def freeze(request: Request) -> Decision:
        if request.tenant_id == "acme":
            return refuse("acme is frozen until 06:00 UTC")
        return admit(labels={"cost-center": "4711"})

`Gate.review()` asks, and returns `Admitted`, `Held` or `Refused`. `Admitted` is made nowhere else, so what demands
one (the minting of a token, the start of a process) cannot be reached around the gate.

What the package holds true: a hook that gives no decision is broken, never a silent yes; what it may change is
judged by Kubernetes' rules and the operator's lists before it touches anything; one that keeps failing is not asked
for a while (`breaker`). What it trusts: that its caller returns in time, and the `Checked` it is given. What it leaves
to others: sockets, threads, timeouts, the store, and when to ask again.

It is a library of its own. A program that starts work for tenants can use the gate without the control plane: it
brings its hooks as `HookCaller`, something that watches as `Observer`, and a clock.
"""

from dexaflow.admission.breaker import BreakerState
from dexaflow.admission.changes import AllowLists
from dexaflow.admission.decisions import Admit, Changes, Decision, Hold, Refuse, Request, admit, hold, refuse
from dexaflow.admission.envelope import (
    AnswerError,
    QuestionError,
    answer,
    question,
    read_answer,
    read_question,
)
from dexaflow.admission.gate import Gate, HookStatus
from dexaflow.admission.ports import Answered, HookCaller, Observer
from dexaflow.admission.results import Admitted, Held, Outcome, Refused, Review, Verdict
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution, Resources

__all__ = [
    "Admit",
    "Admitted",
    "AllowLists",
    "AnswerError",
    "Answered",
    "BreakerState",
    "Changes",
    "Decision",
    "Execution",
    "Gate",
    "Held",
    "Hold",
    "HookCaller",
    "HookStatus",
    "Observer",
    "Outcome",
    "QuestionError",
    "Refuse",
    "Refused",
    "Request",
    "Resources",
    "Review",
    "Toleration",
    "Verdict",
    "admit",
    "answer",
    "hold",
    "question",
    "read_answer",
    "read_question",
    "refuse",
]
