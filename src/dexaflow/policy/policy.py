"""What the operator allows, parsed once; own checks and checks of changes go by it."""

from dataclasses import dataclass

from dexaflow.kube.quantities import Quantity
from dexaflow.model.execution import Resources
from dexaflow.policy.images import ImagePattern

__all__ = ["EXECUTION_FIELDS", "Policy", "Unit"]

EXECUTION_FIELDS = (
    "node_selector", "tolerations", "labels", "annotations", "priority_class_name", "service_account",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """The resources of one pool slot; both above zero."""

    cpu: Quantity
    memory: Quantity


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's rules. None: the list is not set, which is not the same as empty."""

    fields: frozenset[str] | None = None  # execution fields an author may set; None: all
    priority_classes: frozenset[str] | None = None  # None: all but `system-*`
    service_accounts: frozenset[str] | None = None  # None: authors all, hooks none
    images: tuple[ImagePattern, ...] | None = None  # None: all
    unit: Unit | None = None
    default_resources: Resources | None = None
    default_service_account: str = "default"
    default_image: str = ""
