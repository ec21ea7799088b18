"""Own checks: the same rules when a DAG is registered and when an attempt is dispatched (R1.2, R2.2). Pure."""

from collections.abc import Iterator
from types import MappingProxyType

from dexaflow.base.text import shown
from dexaflow.kube.annotations import MAX_ANNOTATIONS_BYTES, annotations_problem
from dexaflow.kube.names import (
    annotation_key_problem,
    is_reserved,
    label_key_problem,
    label_value_problem,
    priority_class_problem,
    service_account_problem,
)
from dexaflow.kube.tolerations import toleration_problem, toleration_text
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution
from dexaflow.policy.checked import _SEAL, Checked, Rejection, Setting, Source
from dexaflow.policy.images import ImageReference
from dexaflow.policy.policy import EXECUTION_FIELDS, Policy
from dexaflow.policy.resources import effective_resources

__all__ = ["check", "check_task"]

_PLACEMENT = "placement allowlist"
_KUBERNETES = "kubernetes"


def check(attempt: Attempt, policy: Policy) -> Checked | Rejection:
    """Check one attempt, just before hooks are asked; the first rule that it breaks rejects it (R1.2)."""
    task = attempt.task
    for rejection in _rejections(task, policy):
        return rejection
    resources = effective_resources(task, policy)
    assert not isinstance(resources, Rejection)  # it is the last of the rules above
    execution, settings = _effective_execution(task, policy)
    image = task.image or policy.default_image
    if image:
        settings = (Setting("image", "", image, Source.AUTHOR if task.image else Source.DEFAULT), *settings)
    return Checked(
        attempt,
        image,
        resources[0],
        execution,
        settings + resources[1],
        service_account_chosen=bool(task.execution.service_account),
        own_placement=_sets_placement(task.execution),
        seal=_SEAL,
    )


def check_task(task: TaskSpec, policy: Policy) -> tuple[Rejection, ...]:
    """Return everything that own checks say against a task, for its registration (R2.2)."""
    return tuple(_rejections(task, policy))


def _sets_placement(execution: Execution) -> bool:
    """Whether a task decides where or as what its pod runs (R5.4); labels and annotations do neither.

    What a warm worker cannot be given after its start is any of these fields, so all of them count.
    """
    return execution != Execution()


def _rejections(task: TaskSpec, policy: Policy) -> Iterator[Rejection]:
    execution = task.execution
    yield from _placement(execution, policy)
    yield from _kubernetes(execution)
    if task.image:
        yield from _image(task.image, policy)
    resources = effective_resources(task, policy)
    if isinstance(resources, Rejection):
        yield resources


def _placement(execution: Execution, policy: Policy) -> Iterator[Rejection]:
    if policy.fields is not None:
        for field in EXECUTION_FIELDS:
            if getattr(execution, field) and field not in policy.fields:
                allowed = ", ".join(sorted(policy.fields)) or "none"
                yield Rejection(
                    _PLACEMENT, f"execution.{field}", f"the operator does not let tasks set it (allowed: {allowed})"
                )
    name = execution.priority_class_name
    if name and policy.priority_classes is None and name.startswith("system-"):
        yield Rejection(
            _PLACEMENT,
            "execution.priority_class_name",
            f"'{shown(name)}' is a class of the cluster itself; choose another",
        )
    if name and policy.priority_classes is not None and name not in policy.priority_classes:
        yield _not_listed("priority_class_name", name, policy.priority_classes)
    account = execution.service_account
    if account and policy.service_accounts is not None and account not in policy.service_accounts:
        yield _not_listed("service_account", account, policy.service_accounts)


def _not_listed(field: str, value: str, allowed: frozenset[str]) -> Rejection:
    names = ", ".join(sorted(allowed)) or "none"
    return Rejection(
        _PLACEMENT, f"execution.{field}", f"'{shown(value)}' is not on the operator's list (allowed: {names})"
    )


def _kubernetes(execution: Execution) -> Iterator[Rejection]:
    """What an author sets obeys Kubernetes' rules and the reserved prefixes too (R2.5)."""
    for field, pairs in (("node_selector", execution.node_selector), ("labels", execution.labels)):
        for key, value in pairs.items():
            if field == "labels" and is_reserved(key):
                yield _reserved(field, key)
            if problem := label_key_problem(key):
                yield Rejection(_KUBERNETES, f"execution.{field}", f"key '{shown(key)}' {problem}")
            if problem := label_value_problem(value):
                yield Rejection(_KUBERNETES, f"execution.{field}.{shown(key)}", f"value '{shown(value)}' {problem}")
    for key in execution.annotations:
        if is_reserved(key):
            yield _reserved("annotations", key)
        if problem := annotation_key_problem(key):
            yield Rejection(_KUBERNETES, "execution.annotations", f"key '{shown(key)}' {problem}")
    if _too_many(execution):
        yield Rejection(
            _KUBERNETES,
            "execution.annotations",
            f"keys and values have more than {MAX_ANNOTATIONS_BYTES} bytes together; shorten them",
        )
    for number, toleration in enumerate(execution.tolerations):
        if problem := toleration_problem(toleration):
            yield Rejection(_KUBERNETES, f"execution.tolerations[{number}]", shown(problem))
    if execution.priority_class_name and (problem := priority_class_problem(execution.priority_class_name)):
        yield Rejection(
            _KUBERNETES, "execution.priority_class_name", f"'{shown(execution.priority_class_name)}' {problem}"
        )
    if execution.service_account and (problem := service_account_problem(execution.service_account)):
        yield Rejection(_KUBERNETES, "execution.service_account", f"'{shown(execution.service_account)}' {problem}")


def _too_many(execution: Execution) -> bool:
    keys_fine = not any(annotation_key_problem(key) for key in execution.annotations)
    return keys_fine and annotations_problem(execution.annotations) is not None


def _reserved(field: str, key: str) -> Rejection:
    return Rejection(
        "reserved prefix", f"execution.{field}", f"key '{shown(key)}' is the control plane's own; choose another prefix"
    )


def _image(image: str, policy: Policy) -> Iterator[Rejection]:
    """The author's image must be on the list; the platform's default image is the operator's own word."""
    try:
        reference = ImageReference.parse(image)
    except ValueError as error:
        yield Rejection("image allowlist", "image", shown(str(error)))
        return
    if policy.images is not None and not any(pattern.allows(reference) for pattern in policy.images):
        allowed = ", ".join(pattern.text for pattern in policy.images) or "none"
        yield Rejection(
            "image allowlist", "image", f"'{shown(image)}' is not on the operator's list (allowed: {shown(allowed)})"
        )


def _effective_execution(task: TaskSpec, policy: Policy) -> tuple[Execution, tuple[Setting, ...]]:
    """Return what the attempt would get before any hook, and who set each part of it."""
    own = task.execution
    execution = Execution(
        service_account=own.service_account or policy.default_service_account,
        node_selector=MappingProxyType(dict(own.node_selector)),
        tolerations=own.tolerations,
        labels=MappingProxyType(dict(own.labels)),
        annotations=MappingProxyType(dict(own.annotations)),
        priority_class_name=own.priority_class_name,
    )
    settings = [
        Setting(
            "service_account", "", execution.service_account, Source.AUTHOR if own.service_account else Source.DEFAULT
        )
    ]
    if own.priority_class_name:
        settings.append(Setting("priority_class_name", "", own.priority_class_name, Source.AUTHOR))
    for field in ("node_selector", "labels", "annotations"):
        settings += [Setting(field, key, value, Source.AUTHOR) for key, value in getattr(own, field).items()]
    for number, t in enumerate(own.tolerations):
        settings.append(Setting("tolerations", str(number), toleration_text(t), Source.AUTHOR))
    return execution, tuple(settings)
