"""Tasks, attempts and policies that default all but what a test is about."""

from typing import Any

from dexaflow.kube.quantities import Quantity
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution, Resources
from dexaflow.policy.checked import Checked, Rejection, Setting
from dexaflow.policy.checks import check, check_task
from dexaflow.policy.images import ImagePattern
from dexaflow.policy.policy import Policy, Unit

__all__ = ["a_task", "a_unit", "an_attempt", "images", "passed", "rejected", "set_by"]


def a_task(
    *, resources: dict[str, dict[str, str]] | None = None, image: str = "", pool_slots: int = 1, **execution: Any
) -> TaskSpec:  # Any: the fields of `Execution`
    return TaskSpec(
        "extract",
        "python",
        pool_slots=pool_slots,
        image=image,
        resources=None if resources is None else Resources(**resources),
        execution=Execution(**execution),
    )


def an_attempt(task: TaskSpec) -> Attempt:
    return Attempt("attempt-1", "acme", "nightly_etl", "run-1", task.task_id, 1, task)


def a_unit(cpu: str = "500m", memory: str = "1Gi") -> Policy:
    return Policy(unit=Unit(Quantity.parse(cpu), Quantity.parse(memory)))


def images(*entries: str) -> Policy:
    return Policy(images=tuple(ImagePattern.parse(entry) for entry in entries))


def passed(task: TaskSpec, policy: Policy) -> Checked:
    """Return what `check` makes of a task that passes, at registration too (R2.2)."""
    checked = check(an_attempt(task), policy)
    assert isinstance(checked, Checked), checked
    assert check_task(task, policy) == ()
    return checked


def rejected(task: TaskSpec, policy: Policy) -> Rejection:
    """Return the one rejection of a task that fails, the same at registration and at dispatch (R2.2)."""
    rejection = check(an_attempt(task), policy)
    assert isinstance(rejection, Rejection)
    assert check_task(task, policy) == (rejection,)
    return rejection


def set_by(settings: tuple[Setting, ...]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the value of each field and key, and who set it."""
    found = {(s.field, s.key): (s.value, s.by) for s in settings}
    assert len(found) == len(settings), "a key is there twice"
    return found
