"""Tolerations and Kubernetes' rules for them."""

from dataclasses import dataclass

__all__ = ["Toleration"]


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration; every field may be empty (absent)."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
