"""What a hook may change, and what the pod is after it (R5)."""

from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from dexaflow.admission.decisions import Changes
from dexaflow.base.in_steps import Steps
from dexaflow.base.text import quoted
from dexaflow.kube.annotations import annotations_size_problem
from dexaflow.kube.names import (
    annotation_key_problem,
    is_plain,
    is_reserved,
    label_key_problem,
    label_value_problem,
    priority_class_problem,
    service_account_problem,
)
from dexaflow.kube.tolerations import toleration_problem, toleration_text
from dexaflow.model.execution import Execution
from dexaflow.policy.checked import Setting

__all__ = ["AllowLists", "Applied", "Merges", "NotAllowed", "apply_changes", "applying_changes", "are_many"]

# The longest key that Kubernetes takes, prefix, slash and name: a key is named whole, for its end tells it apart.
_MAX_KEY_CHARACTERS = 253 + 1 + 63

_A_STEP: Final = 256  # keys or tolerations: well below a millisecond


class AllowLists(Protocol):
    """The part of the policy that binds hooks; `policy.policy.Policy` has it."""

    @property
    def priority_classes(self) -> frozenset[str] | None:
        """Classes a hook may set; None allows all but `system-*`, an empty set none."""
        ...

    @property
    def service_accounts(self) -> frozenset[str] | None:
        """Accounts a hook may set; None and an empty set allow none."""
        ...


class Applied(NamedTuple):
    """What the pod is with the changes made, who set each part of it, and whether they made a difference."""

    execution: Execution
    settings: tuple[Setting, ...]
    changed: bool


class NotAllowed(NamedTuple):
    """A change that may not be made: on which field, and why; the problem names the key and is one line."""

    field: str
    problem: str


def apply_changes(
    changes: Changes, execution: Execution, settings: tuple[Setting, ...], *, by: str, allowed: AllowLists
) -> Applied | NotAllowed:
    """Return the pod with all of `changes` made, or the first of them that may not be.

    Maps merge and the hook's keys win, tolerations are appended, each once, names replace (R5.1). All changes are
    judged, also those that would leave the pod as it is; only what makes a difference gets a new setting (R5.4, R9.2).

    Args:
        settings: Who set each part of `execution`.
        by: Who asks, as a setting says it: `hook:<name>`.
    """
    refused = _not_allowed(changes, allowed)
    return refused or _fitting(_made(changes, execution, settings, by), execution)


def are_many(changes: Changes) -> bool:
    """Whether there are so many changes that making them takes more than one step."""
    return (
        len(changes.labels) + len(changes.annotations) + len(changes.node_selector) + len(changes.tolerations) > _A_STEP
    )


def applying_changes(
    changes: Changes, execution: Execution, settings: tuple[Setting, ...], *, by: str, allowed: AllowLists
) -> Steps[Applied | NotAllowed]:
    """`apply_changes` in steps of a few milliseconds: an answer has room for thousands of changes."""
    for piece in _pieces(changes):
        refused = _not_allowed(piece, allowed)
        if refused is not None:
            return refused
        yield
    result = Applied(execution, settings, changed=False)
    for piece in _pieces(changes):
        made = _made(piece, result.execution, result.settings, by)
        result = Applied(made.execution, made.settings, changed=result.changed or made.changed)
        yield
    return _fitting(result, execution)


def _pieces(changes: Changes) -> Iterator[Changes]:
    """Return the same changes as several, each of which takes a step."""
    yield from (Changes(node_selector=some) for some in _some_of(changes.node_selector))
    for start in range(0, len(changes.tolerations), _A_STEP):
        yield Changes(tolerations=changes.tolerations[start : start + _A_STEP])
    yield from (Changes(labels=some) for some in _some_of(changes.labels))
    yield from (Changes(annotations=some) for some in _some_of(changes.annotations))
    yield Changes(priority_class_name=changes.priority_class_name, service_account=changes.service_account)


def _some_of(entries: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    left = iter(entries.items())
    while some := dict(islice(left, _A_STEP)):
        yield some


_MOST_REMEMBERED: Final = 128


class _Merge(NamedTuple):
    """What went into a merge, kept so that nothing else can have its `id`, and what came of it."""

    changes: Changes
    execution: Execution
    settings: tuple[Setting, ...]
    allowed: AllowLists
    result: Applied | NotAllowed


class Merges:
    """`apply_changes` for one hook: what the very same values gave before is not worked out anew.

    All of them are values that never change. Equal ones come as the same object where an answer or a task is one that
    was met before (`envelope.Answers`, `policy.checks.OwnChecks`).
    """

    def __init__(self, by: str) -> None:
        self._by = by
        self._known: dict[tuple[int, int, int], _Merge] = {}

    def apply(
        self, changes: Changes, execution: Execution, settings: tuple[Setting, ...], allowed: AllowLists
    ) -> Applied | NotAllowed:
        """See `apply_changes`; `changes` are of an answer that comes again and again."""
        key = (id(changes), id(execution), id(settings))
        known = self._known.get(key)
        if known is not None and known.allowed is allowed:
            return known.result
        result = self.apply_once(changes, execution, settings, allowed)
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[key] = _Merge(changes, execution, settings, allowed, result)
        return result

    def apply_once(
        self, changes: Changes, execution: Execution, settings: tuple[Setting, ...], allowed: AllowLists
    ) -> Applied | NotAllowed:
        """See `apply_changes`; of these changes nothing is kept."""
        return apply_changes(changes, execution, settings, by=self._by, allowed=allowed)

    def applying(
        self, changes: Changes, execution: Execution, settings: tuple[Setting, ...], allowed: AllowLists
    ) -> Steps[Applied | NotAllowed]:
        """See `applying_changes`; of these changes nothing is kept."""
        return applying_changes(changes, execution, settings, by=self._by, allowed=allowed)


def _made(changes: Changes, execution: Execution, settings: tuple[Setting, ...], by: str) -> Applied:
    """Make changes that are allowed."""
    made = _Made(by)
    tolerations = execution.tolerations
    node_selector, labels, annotations = execution.node_selector, execution.labels, execution.annotations
    if changes.node_selector:
        node_selector = made.merged("node_selector", node_selector, changes.node_selector)
    if changes.tolerations:
        known = frozenset(tolerations)
        new = [t for t in dict.fromkeys(changes.tolerations) if t not in known]
        for position, toleration in enumerate(new, start=len(tolerations)):
            made.note("tolerations", str(position), toleration_text(toleration))
        tolerations = (*tolerations, *new)
    if changes.labels:
        labels = made.merged("labels", labels, changes.labels)
    if changes.annotations:
        annotations = made.merged("annotations", annotations, changes.annotations)
    result = Execution(
        made.replaced("service_account", execution.service_account, changes.service_account),
        node_selector,
        tolerations,
        labels,
        annotations,
        made.replaced("priority_class_name", execution.priority_class_name, changes.priority_class_name),
    )
    fresh = made.fresh
    if not fresh:
        return Applied(execution, settings, changed=False)
    kept = settings
    if made.over_earlier:
        anew = {setting[:2] for setting in fresh}
        kept = tuple(setting for setting in settings if setting[:2] not in anew)
    return Applied(result, (*kept, *fresh), changed=True)


def _fitting(result: Applied, before: Execution) -> Applied | NotAllowed:
    """Judge what cannot be told of one change alone: the size of all annotations together."""
    if result.execution.annotations is not before.annotations:
        problem = annotations_size_problem(result.execution.annotations)
        if problem is not None:
            return NotAllowed("annotations", f"annotations, merged with the task's own: {problem}")
    return result


class _Made:
    """What of the changes makes a difference: a setting for each."""

    __slots__ = ("_by", "fresh", "over_earlier")

    def __init__(self, by: str) -> None:
        self._by = by
        self.fresh: list[Setting] = []
        self.over_earlier = False  # something that was set before is set anew

    def note(self, field: str, key: str, value: str) -> None:
        self.fresh.append(Setting(field, key, value, self._by))

    def merged(self, field: str, own: Mapping[str, str], asked: Mapping[str, str]) -> Mapping[str, str]:
        result: dict[str, str] | None = None
        for key, value in asked.items():
            before = own.get(key)
            if before == value:
                continue
            if result is None:
                result = dict(own)
            result[key] = value
            self.fresh.append(Setting(field, key, value, self._by))
            if before is not None:
                self.over_earlier = True
        return own if result is None else MappingProxyType(result)

    def replaced(self, field: str, own: str, asked: str) -> str:
        if not asked or asked == own:
            return own
        self.note(field, "", asked)
        self.over_earlier |= bool(own)
        return asked


def _not_allowed(changes: Changes, allowed: AllowLists) -> NotAllowed | None:
    """Return the first change that may not be made, whatever the task has (R5.2)."""
    for key, value in changes.node_selector.items():
        if is_plain(key, value):
            continue
        problem = label_key_problem(key) or _value_problem(value)
        if problem is not None:
            return NotAllowed("node_selector", f"node_selector {_named(key)}: {problem}")
    for toleration in changes.tolerations:
        problem = toleration_problem(toleration)
        if problem is not None:
            return NotAllowed("tolerations", f"toleration {_named(toleration.key)}: {problem}")
    for key, value in changes.labels.items():
        if is_plain(key, value):  # without a prefix, so not of ours
            continue
        problem = _reserved(key) or label_key_problem(key) or _value_problem(value)
        if problem is not None:
            return NotAllowed("labels", f"label {_named(key)}: {problem}")
    for key in changes.annotations:
        problem = _reserved(key) or annotation_key_problem(key)
        if problem is not None:
            return NotAllowed("annotations", f"annotation {_named(key)}: {problem}")
    if changes.priority_class_name:
        problem = _priority_class_not_allowed(changes.priority_class_name, allowed.priority_classes)
        if problem is not None:
            return NotAllowed("priority_class_name", problem)
    if changes.service_account:
        problem = _service_account_not_allowed(changes.service_account, allowed.service_accounts)
        if problem is not None:
            return NotAllowed("service_account", problem)
    return None


def _named(key: str) -> str:
    return quoted(key, _MAX_KEY_CHARACTERS)


def _reserved(key: str) -> str | None:
    return "keys under this prefix are the control plane's own" if is_reserved(key) else None


def _value_problem(value: str) -> str | None:
    problem = label_value_problem(value)
    return None if problem is None else f"the value {quoted(value)} {problem}"


def _priority_class_not_allowed(name: str, listed: frozenset[str] | None) -> str | None:
    what = f"priority_class_name {quoted(name)}"
    problem = priority_class_problem(name)
    if problem is not None:
        return f"{what}: {problem}"
    if listed is None:
        if name.startswith("system-"):  # Kubernetes' own; a list may still name one
            return f"{what}: while execution_allowlist.priority_classes is unset, no system-* class may be set"
        return None
    return None if name in listed else f"{what} is not in execution_allowlist.priority_classes"


def _service_account_not_allowed(name: str, listed: frozenset[str] | None) -> str | None:
    what = f"service_account {quoted(name)}"
    problem = service_account_problem(name)
    if problem is not None:
        return f"{what}: {problem}"
    if listed is None:
        return f"{what}: while execution_allowlist.service_accounts is unset, no hook may set one"
    return None if name in listed else f"{what} is not in execution_allowlist.service_accounts"
