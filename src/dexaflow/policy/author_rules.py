"""The rules for what a DAG author sets, besides resources: the list that registration and dispatch share (R2.2)."""

from collections.abc import Callable, Iterable, Iterator

from dexaflow.base.text import quoted
from dexaflow.kube.annotations import annotations_size_problem
from dexaflow.kube.names import (
    annotation_key_problem,
    is_reserved,
    label_key_problem,
    label_value_problem,
    priority_class_problem,
    service_account_problem,
)
from dexaflow.kube.tolerations import toleration_problem
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Execution
from dexaflow.policy.checked import Rejection
from dexaflow.policy.images import ImageReference
from dexaflow.policy.policy import EXECUTION_FIELDS, Policy

__all__ = ["author_problems", "fields_set"]

PLACEMENT = "placement allowlist"
IMAGE = "image allowlist"
KUBERNETES = "kubernetes"
PREFIX = "reserved prefix"

_KEY_FIX = "write a key such as team or example.com/team"
_MANY = 5  # names listed in a message


def fields_set(execution: Execution) -> tuple[str, ...]:
    """Return the names of the fields that an author set; empty ones are not set."""
    return tuple(name for name in EXECUTION_FIELDS if getattr(execution, name))


def author_problems(task: TaskSpec, policy: Policy) -> Iterator[Rejection]:
    """Yield everything that own checks have against a task but for its resources, in the order of R1.2.

    A field that may not be set at all is not looked into any further.
    """
    allowed = []
    for name in fields_set(task.execution):
        if policy.fields is None or name in policy.fields:
            allowed.append(name)
        else:
            fix = "remove it, or ask the operator to add it to execution_allowlist.fields"
            yield Rejection(PLACEMENT, f"execution.{name}", f"{name} may not be set by a DAG author; {fix}")
    for name in allowed:
        yield from _RULES[name](task.execution, policy)
    yield from _image(task, policy)


def _node_selector(execution: Execution, policy: Policy) -> Iterator[Rejection]:
    yield from _pairs("node_selector", "node_selector", execution.node_selector.items())


def _labels(execution: Execution, policy: Policy) -> Iterator[Rejection]:
    yield from _reserved("labels", "label", execution.labels)
    yield from _pairs("labels", "label", execution.labels.items())


def _annotations(execution: Execution, policy: Policy) -> Iterator[Rejection]:
    yield from _reserved("annotations", "annotation", execution.annotations)
    for key, value in execution.annotations.items():
        problem = annotation_key_problem(key)
        if problem is not None:
            yield Rejection(KUBERNETES, "execution.annotations", f"annotation {quoted(key)}: {problem}; {_KEY_FIX}")
        elif not _is_unicode(value):
            what = f"annotation {quoted(key)}: the value holds half of a surrogate pair, which is no text"
            yield Rejection(KUBERNETES, "execution.annotations", f"{what}; remove it")
    problem = annotations_size_problem(execution.annotations)
    if problem is not None:
        yield Rejection(KUBERNETES, "execution.annotations", f"annotations: {problem}; shorten or drop some")


def _tolerations(execution: Execution, policy: Policy) -> Iterator[Rejection]:
    for position, toleration in enumerate(execution.tolerations):
        problem = toleration_problem(toleration)
        if problem is not None:
            what = f"tolerations[{position}], with key {quoted(toleration.key)}: {problem}"
            yield Rejection(KUBERNETES, "execution.tolerations", f"{what}; write it as Kubernetes takes it")


def _priority_class(execution: Execution, policy: Policy) -> Iterator[Rejection]:
    name, field = execution.priority_class_name, "priority_class_name"
    what = f"{field} {quoted(name)}"
    problem = priority_class_problem(name)
    if problem is not None:
        yield Rejection(KUBERNETES, f"execution.{field}", f"{what}: {problem}; write the name of a PriorityClass")
    elif policy.priority_classes is not None:
        if name not in policy.priority_classes:
            listed = "execution_allowlist.priority_classes"
            yield Rejection(
                PLACEMENT, f"execution.{field}", f"{what} is not in {listed}; {_use_one_of(policy.priority_classes)}"
            )
    elif name.startswith("system-"):  # the cluster's own; a list may still name one
        reason = "no system-* class may be set while execution_allowlist.priority_classes is unset"
        yield Rejection(PLACEMENT, f"execution.{field}", f"{what}: {reason}; use another class")


def _service_account(execution: Execution, policy: Policy) -> Iterator[Rejection]:
    name, field = execution.service_account, "service_account"
    what = f"{field} {quoted(name)}"
    problem = service_account_problem(name)
    if problem is not None:
        yield Rejection(KUBERNETES, f"execution.{field}", f"{what}: {problem}; write the name of a ServiceAccount")
    elif policy.service_accounts is not None and name not in policy.service_accounts:
        listed = "execution_allowlist.service_accounts"
        yield Rejection(
            PLACEMENT, f"execution.{field}", f"{what} is not in {listed}; {_use_one_of(policy.service_accounts)}"
        )


_RULES: dict[str, Callable[[Execution, Policy], Iterator[Rejection]]] = {
    "node_selector": _node_selector,
    "tolerations": _tolerations,
    "labels": _labels,
    "annotations": _annotations,
    "priority_class_name": _priority_class,
    "service_account": _service_account,
}


def _image(task: TaskSpec, policy: Policy) -> Iterator[Rejection]:
    """The image of the task or its DAG. The platform's default was chosen by the operator: it is not an author's."""
    if not task.image:
        return
    try:
        image = ImageReference.parse(task.image)
    except ValueError as error:  # nothing could ever pull it, list or no list
        rule = KUBERNETES if policy.images is None else IMAGE
        yield Rejection(rule, "image", f"image {error}; write one such as ghcr.io/acme/etl:1.4")
        return
    if policy.images is None or any(entry.allows(image) for entry in policy.images):
        return
    what = f"image {quoted(task.image)}"
    if str(image) != task.image:
        what += f", which is {quoted(str(image), 160)},"
    yield Rejection(IMAGE, "image", f"{what} is not in image_allowlist; {_use_one_of(map(str, policy.images))}")


def _pairs(field: str, what: str, pairs: Iterable[tuple[str, str]]) -> Iterator[Rejection]:
    for key, value in pairs:
        problem = label_key_problem(key)
        if problem is not None:
            yield Rejection(KUBERNETES, f"execution.{field}", f"{what} {quoted(key)}: {problem}; {_KEY_FIX}")
        problem = label_value_problem(value)
        if problem is not None:
            fix = "write a shorter or simpler one"
            yield Rejection(
                KUBERNETES, f"execution.{field}", f"{what} {quoted(key)}: the value {quoted(value)} {problem}; {fix}"
            )


def _reserved(field: str, what: str, keys: Iterable[str]) -> Iterator[Rejection]:
    for key in keys:
        if is_reserved(key):
            reason = f"keys under {key.partition('/')[0]}/ are the control plane's own"
            yield Rejection(PREFIX, f"execution.{field}", f"{what} {quoted(key)}: {reason}; use a prefix of yours")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _use_one_of(names: Iterable[str]) -> str:
    listed = sorted(names)
    if not listed:
        return "it allows none; remove it, or ask the operator"
    more = f" or {len(listed) - _MANY} more" if len(listed) > _MANY else ""
    return f"use {', '.join(quoted(name) for name in listed[:_MANY])}{more}, or ask the operator"
