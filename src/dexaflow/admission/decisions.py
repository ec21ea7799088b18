"""What a hook is asked and what it may answer: the vocabulary of policy authors, in process and behind a URL."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import EMPTY, Execution, Resources

__all__ = ["Admit", "Changes", "Decision", "Hold", "Refuse", "Request", "admit", "hold", "refuse"]


@dataclass(frozen=True, slots=True)
class Request:
    """One question about one attempt (R3.1), immutable.

    `deadline` is on `time.monotonic()`'s clock: return by then, or the hook counts as broken (R8.1). It is not part
    of the document that goes over the wire; there it is 0.
    """

    uid: str
    tenant_id: str
    dag_id: str
    run_id: str
    task_id: str
    try_number: int
    operator: str
    image: str
    source_mode: bool
    resources: Resources
    execution: Execution
    service_account_chosen: bool
    deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Changes:
    """What an admit asks to change (R5.1). Empty string, mapping or tuple: leaves it alone. False when all empty."""

    node_selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    tolerations: tuple[Toleration, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    priority_class_name: str = ""
    service_account: str = ""

    def __bool__(self) -> bool:
        return bool(
            self.node_selector
            or self.tolerations
            or self.labels
            or self.annotations
            or self.priority_class_name
            or self.service_account
        )


@dataclass(frozen=True, slots=True)
class Admit:
    """Let it run, perhaps changed."""

    changes: Changes = field(default_factory=Changes)


@dataclass(frozen=True, slots=True)
class Hold:
    """Not now; ask again."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Never, for this try."""

    reason: str = ""


Decision = Admit | Hold | Refuse


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {type(value).__name__}")
    return value


def _text_map(value: Mapping[str, str] | None, what: str) -> Mapping[str, str]:
    if value is None:
        return EMPTY
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a mapping of strings, not {type(value).__name__}")
    return MappingProxyType({_text(k, f"a key of {what}"): _text(v, f"{what}[{k!r}]") for k, v in value.items()})


def _toleration(value: Toleration | Mapping[str, str]) -> Toleration:
    if isinstance(value, Toleration):
        value = {"key": value.key, "operator": value.operator, "value": value.value, "effect": value.effect}
    if not isinstance(value, Mapping):
        raise TypeError(f"a toleration must be a Toleration or a mapping, not {type(value).__name__}")
    return Toleration(**{k: _text(v, f"toleration {k}") for k, v in value.items()})


def admit(
    *,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Iterable[Toleration | Mapping[str, str]] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority_class_name: str = "",
    service_account: str = "",
) -> Admit:
    """Admit the attempt, with changes if any are given (R5.1). What is given is copied.

    Raises:
        TypeError: a value is not of its type, or a toleration has an unknown field.
    """
    return Admit(
        Changes(
            node_selector=_text_map(node_selector, "node_selector"),
            tolerations=tuple(_toleration(t) for t in tolerations),
            labels=_text_map(labels, "labels"),
            annotations=_text_map(annotations, "annotations"),
            priority_class_name=_text(priority_class_name, "priority_class_name"),
            service_account=_text(service_account, "service_account"),
        )
    )


def hold(reason: str = "") -> Hold:
    """Hold the attempt; it is asked again after `execution.admission.recheck` (R6.1). Raises `TypeError`."""
    return Hold(_text(reason, "reason"))


def refuse(reason: str = "") -> Refuse:
    """Refuse the attempt; it fails at once and is not retried (R1.4). Raises `TypeError`."""
    return Refuse(_text(reason, "reason"))
