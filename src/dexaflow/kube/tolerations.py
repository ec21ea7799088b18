"""Tolerations and Kubernetes' rules for them."""

from dataclasses import dataclass

from dexaflow.base.text import quoted
from dexaflow.kube.names import label_key_problem, label_value_problem

__all__ = ["Toleration", "toleration_problem", "toleration_text"]

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration; every field may be empty (absent)."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


def toleration_problem(toleration: Toleration) -> str | None:
    """Return what Kubernetes would say against a toleration, as half a line, or None.

    The operators ``Lt`` and ``Gt``, alpha and off by default, count as unknown (R5.2).
    """
    key, operator, value, effect = toleration.key, toleration.operator, toleration.value, toleration.effect
    problem = label_key_problem(key) if key else None
    if problem is not None:
        return f"key: {problem}"
    match operator:
        case "Exists":
            if value:
                return f"value: must be empty with the operator Exists, is {quoted(value)}"
        case "" | "Equal":
            if not key:
                return "operator: must be Exists when there is no key"
            problem = label_value_problem(value)
            if problem is not None:
                return f"value: {problem}"
        case _:
            return f"operator: must be Equal or Exists, is {quoted(operator)}"
    if effect and effect not in _EFFECTS:
        return f"effect: must be {', '.join(_EFFECTS[:-1])} or {_EFFECTS[-1]}, is {quoted(effect)}"
    return None


def toleration_text(toleration: Toleration) -> str:
    """Return a toleration as ``kubectl taint`` writes what it tolerates: ``tenant=acme:NoSchedule Equal``."""
    text = toleration.key
    if toleration.value:
        text += f"={toleration.value}"
    if toleration.effect:
        text += f":{toleration.effect}"
    return f"{text} {toleration.operator}".strip()
