"""Own checks: the first gate, before any hook is asked (R1.2), and the same at registration (R2.2)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from dexaflow.kube.tolerations import toleration_text
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution, Resources
from dexaflow.policy.author_rules import author_problems, fields_set
from dexaflow.policy.checked import _SEAL, Checked, Rejection, Setting, Source
from dexaflow.policy.policy import Policy
from dexaflow.policy.resources import effective_resources

__all__ = ["OwnChecks", "check", "check_task"]

_MOST_REMEMBERED: Final = 1_024  # tasks; a few KiB each


@dataclass(frozen=True, slots=True)
class _Passed:
    """What a task that passed would run with, whatever the attempt."""

    task: TaskSpec
    policy: Policy
    image: str
    resources: Resources
    execution: Execution
    settings: tuple[Setting, ...]
    service_account_chosen: bool
    own_placement: bool


class OwnChecks:
    """`check` for many attempts: a task that passed is not judged anew while it and the policy are the same objects.

    Both are values that never change, so that the same two give the same result. For one thread.
    """

    def __init__(self) -> None:
        self._passed: dict[int, _Passed] = {}  # by the task's `id`, which is its own while the entry holds the task

    def check(self, attempt: Attempt, policy: Policy) -> Checked | Rejection:
        """See the function `check`."""
        task = attempt.task
        passed = self._passed.get(id(task))
        if passed is None or passed.task is not task or passed.policy is not policy:
            judged = _judged(task, policy)
            if isinstance(judged, Rejection):
                return judged
            if len(self._passed) >= _MOST_REMEMBERED:
                self._passed.clear()
            passed = self._passed[id(task)] = judged
        return _checked(attempt, passed)


def check(attempt: Attempt, policy: Policy) -> Checked | Rejection:
    """Return the attempt with all that it would run with, or the first rule that is against it (R1.2).

    A task sets its own placement when it sets any field of its `execution`, labels and annotations included: all of
    them are the pod's, and a warm worker's pod has none of them (R5.4).
    """
    judged = _judged(attempt.task, policy)
    return judged if isinstance(judged, Rejection) else _checked(attempt, judged)


def _checked(attempt: Attempt, passed: _Passed) -> Checked:
    return Checked(
        attempt,
        passed.image,
        passed.resources,
        passed.execution,
        passed.settings,
        service_account_chosen=passed.service_account_chosen,
        own_placement=passed.own_placement,
        seal=_SEAL,
    )


def _judged(task: TaskSpec, policy: Policy) -> _Passed | Rejection:
    for rejection in author_problems(task, policy):
        return rejection
    effective = effective_resources(task, policy)
    if isinstance(effective, tuple):
        return effective[0]
    chosen = bool(task.execution.service_account)
    execution = task.execution
    if not chosen:
        execution = replace(execution, service_account=policy.default_service_account)
    image = task.image or policy.default_image
    settings = (
        *_image_setting(image, own=bool(task.image)),
        *_execution_settings(execution, service_account_chosen=chosen),
        *effective.settings,
    )
    return _Passed(
        task,
        policy,
        image,
        effective.resources,
        execution,
        settings,
        service_account_chosen=chosen,
        own_placement=bool(fields_set(task.execution)),
    )


def check_task(task: TaskSpec, policy: Policy) -> tuple[Rejection, ...]:
    """Return everything that own checks have against a task; () when it would pass them now (R2.2)."""
    effective = effective_resources(task, policy)
    return (*author_problems(task, policy), *(effective if isinstance(effective, tuple) else ()))


def _image_setting(image: str, *, own: bool) -> Iterator[Setting]:
    if image:
        yield Setting("image", "", image, Source.AUTHOR if own else Source.DEFAULT)


def _execution_settings(execution: Execution, *, service_account_chosen: bool) -> Iterator[Setting]:
    """Yield who set each part of the pod, key by key (R9.2)."""
    if execution.service_account:
        by = Source.AUTHOR if service_account_chosen else Source.DEFAULT
        yield Setting("service_account", "", execution.service_account, by)
    if execution.priority_class_name:
        yield Setting("priority_class_name", "", execution.priority_class_name, Source.AUTHOR)
    for field, pairs in (
        ("node_selector", execution.node_selector),
        ("labels", execution.labels),
        ("annotations", execution.annotations),
    ):
        for key, value in pairs.items():
            yield Setting(field, key, value, Source.AUTHOR)
    for position, toleration in enumerate(execution.tolerations):
        yield Setting("tolerations", str(position), toleration_text(toleration), Source.AUTHOR)
