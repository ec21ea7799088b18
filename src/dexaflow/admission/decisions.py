"""What a hook is asked and what it may answer: the vocabulary of policy authors, in process and behind a URL."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from dexaflow.base.text import clean_reason, quoted
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import EMPTY, Execution, Resources

__all__ = [
    "MAX_ANSWER_BYTES",
    "NO_CHANGES",
    "Admit",
    "Changes",
    "Decision",
    "Hold",
    "Refuse",
    "Request",
    "admit",
    "hold",
    "not_a_decision",
    "refuse",
    "well_formed",
]

MAX_ANSWER_BYTES: Final = 65_536  # spec, "The answer": at most 64 KiB


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


NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class Admit:
    """Let it run, perhaps changed."""

    changes: Changes = NO_CHANGES


@dataclass(frozen=True, slots=True)
class Hold:
    """Not now; ask again."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Never, for this try."""

    reason: str = ""


Decision = Admit | Hold | Refuse


def _plain(value: object, what: str) -> str:
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {_kind(value)}")
    return str.__str__(value)  # a StrEnum member, say: keep the text, not the type


def _text(value: object, what: str) -> str:
    value = _plain(value, what)
    if len(value) > MAX_ANSWER_BYTES:
        raise _too_much()
    return _whole(value)


def _whole(text: str) -> str:
    """Return a text without halves of surrogate pairs: what JSON would make of them, so that UTF-8 can hold it."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _kind(value: object) -> str:
    """Return the name of the class of anything, also of a class that has its own idea of its name."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return "None" if value is None else name


def _too_much() -> ValueError:
    return ValueError(
        f"the changes alone are more than the {MAX_ANSWER_BYTES} bytes allowed for an answer; change less"
    )


_TOLERATION_FIELDS: Final = tuple(field.name for field in fields(Toleration))


class _Budget:
    """How many characters changes may still have. JSON takes at least as many bytes.

    Kept while they are copied: an iterator of the hook's own making may never end.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_ANSWER_BYTES

    def take(self, characters: int) -> None:
        self.left -= characters
        if self.left < 0:
            raise _too_much()


def _text_map(value: Mapping[str, str] | None, what: str, budget: _Budget) -> Mapping[str, str]:
    if value is None:
        return EMPTY
    if not isinstance(value, dict | MappingProxyType | Mapping):  # the usual two first: asking the protocol is slow
        raise TypeError(f"{what} must be a mapping of strings, not {_kind(value)}")
    if not value:
        return EMPTY
    each_key = f"each key of {what}"
    copied: dict[str, str] = {}
    for given, of_it in value.items():
        key = _text(given, each_key)
        if not isinstance(of_it, str):
            raise TypeError(f"{what}[{quoted(key)}] must be text, not {_kind(of_it)}")
        text = _text(of_it, what)
        budget.take(len(key) + len(text) + 6)  # four quotes, a colon and a comma
        copied[key] = text
    return MappingProxyType(copied)


def _toleration(value: Toleration | Mapping[str, str], budget: _Budget) -> Toleration:
    if isinstance(value, Toleration):
        key, operator, text, effect = value.key, value.operator, value.value, value.effect
        what = "a toleration's field"
        copied = Toleration(_text(key, what), _text(operator, what), _text(text, what), _text(effect, what))
        budget.take(len(copied.key) + len(copied.operator) + len(copied.value) + len(copied.effect) + 3)
        return copied
    if not isinstance(value, Mapping):
        raise TypeError(f"a toleration must be a Toleration or a mapping, not {_kind(value)}")
    budget.take(2)  # its braces; each field counts a comma
    given: dict[str, str] = {}
    name: Any  # a hook's mapping holds anything
    for name, of_it in value.items():
        if name not in _TOLERATION_FIELDS or name in given:  # or it goes on for ever with what it gave
            said = quoted(name) if isinstance(name, str) else f"a key of type {_kind(name)}"
            raise TypeError(f"{said} is not a field of a toleration, which has {', '.join(_TOLERATION_FIELDS)}")
        given[name] = of_it
    return Toleration(**_text_map(given, "toleration", budget))


def not_a_decision(answer: object) -> str:
    """Say what is wrong with something that a hook returned and that is no decision."""
    said = f"a hook must return admit(), hold(reason) or refuse(reason), not {_kind(answer)}"
    return said if answer is not None else f"{said}; a path through it that ends without `return` returns None"


def well_formed(answer: object) -> Decision:
    """Return what a hook in process answered as a decision that nobody else can change any more (R7.1).

    `Admit`, `Hold` and `Refuse` can be built by hand, with values of any type and mappings that the hook keeps; this
    copies and checks what `admit()`, `hold()` and `refuse()` would have. Nothing of the hook's own making stays in it,
    and a reason is cleaned and cut (R4.4): whoever calls this where the hook runs keeps the work of both there.

    Raises:
        TypeError: it is not a decision, or a value in it is not of its type.
        ValueError: its changes alone are larger than an answer may be.
    """
    if isinstance(answer, Hold):
        return Hold(clean_reason(_plain(answer.reason, "reason")))
    if isinstance(answer, Refuse):
        return Refuse(clean_reason(_plain(answer.reason, "reason")))
    if not isinstance(answer, Admit):
        raise TypeError(not_a_decision(answer))
    changes = answer.changes
    if changes is NO_CHANGES:
        return Admit()  # not `answer`: a class made from Admit may run its own code whenever it is looked at
    if not isinstance(changes, Changes):
        raise TypeError(f"changes must be Changes, not {_kind(changes)}")
    return admit(
        node_selector=changes.node_selector,
        tolerations=changes.tolerations,
        labels=changes.labels,
        annotations=changes.annotations,
        priority_class_name=changes.priority_class_name,
        service_account=changes.service_account,
    )


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

    Halves of surrogate pairs, which UTF-8 cannot hold, become U+FFFD, here and in a reason.

    Raises:
        TypeError: a value is not of its type, or a toleration has an unknown field.
        ValueError: the changes alone are larger than an answer may be.
    """
    if isinstance(tolerations, str | Mapping) or not isinstance(tolerations, Iterable):
        raise TypeError(f"tolerations must be a list of tolerations, not {_kind(tolerations)}")
    budget = _Budget()
    changes = Changes(
        node_selector=_text_map(node_selector, "node_selector", budget),
        tolerations=tuple(_toleration(t, budget) for t in tolerations),
        labels=_text_map(labels, "labels", budget),
        annotations=_text_map(annotations, "annotations", budget),
        priority_class_name=_text(priority_class_name, "priority_class_name"),
        service_account=_text(service_account, "service_account"),
    )
    return Admit(changes) if changes else Admit()


def hold(reason: str = "") -> Hold:
    """Hold the attempt; it is asked again after `execution.admission.recheck` (R6.1). Raises `TypeError`."""
    return Hold(_whole(_plain(reason, "reason")))


def refuse(reason: str = "") -> Refuse:
    """Refuse the attempt; it fails at once and is not retried (R1.4). Raises `TypeError`."""
    return Refuse(_whole(_plain(reason, "reason")))
