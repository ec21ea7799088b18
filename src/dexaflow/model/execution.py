"""How and where a pod would run: the part that hooks may change, and the resources, which they may not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dexaflow.kube.tolerations import Toleration

__all__ = ["EMPTY", "Execution", "Resources"]

EMPTY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits by resource name (cpu, memory, ephemeral-storage), as written (Kubernetes quantities)."""

    requests: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    limits: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True)
class Execution:
    """Placement and identity of a pod, in Kubernetes' words. Empty string or mapping: not set.

    Used both for what an author wrote and for what the attempt would get.
    """

    service_account: str = ""
    node_selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    tolerations: tuple[Toleration, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    priority_class_name: str = ""
