"""The operator's policy, as own checks and checks of changes read it. Made from the configuration, never changed."""

from dataclasses import dataclass

from dexaflow.kube.quantities import Quantity
from dexaflow.model.execution import Resources
from dexaflow.policy.images import ImagePattern

__all__ = ["EXECUTION_FIELDS", "Policy", "Unit"]

EXECUTION_FIELDS = (  # what `execution_allowlist.fields` may name
    "node_selector",
    "tolerations",
    "labels",
    "annotations",
    "priority_class_name",
    "service_account",
)


@dataclass(frozen=True, slots=True)
class Unit:
    """The resource unit: what one pool slot stands for. Both amounts are above zero."""

    cpu: Quantity
    memory: Quantity


@dataclass(frozen=True, slots=True)
class Policy:
    """What authors may set, what hooks may set, and what a task gets that says nothing (requirements, section 2).

    For the lists None is "unset" and an empty one allows nothing.
    """

    fields: frozenset[str] | None = None  # of `execution`, for authors alone; unset allows all
    priority_classes: frozenset[str] | None = None  # for authors and hooks; unset allows all but `system-*`
    service_accounts: frozenset[str] | None = None  # for both; unset allows authors all and hooks none
    images: tuple[ImagePattern, ...] | None = None  # for authors; unset allows all
    unit: Unit | None = None
    default_resources: Resources | None = None  # of a task that declares none, while there is no unit
    default_service_account: str = "default"
    default_image: str = ""  # of a task that names none; the operator's own choice, so not held against `images`
