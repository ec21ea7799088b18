"""What own checks hand to the gate: an attempt that passed, with everything it would run with and who set it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, final

from dexaflow.model.attempt import Attempt
from dexaflow.model.execution import Execution, Resources

__all__ = ["Checked", "Rejection", "Setting", "Source"]

_SEAL = object()  # used by policy/checks.py alone


class Source(StrEnum):
    """Who set a part of the pod (R9.2). A hook's settings say `hook:<name>` instead."""

    AUTHOR = "author"
    DEFAULT = "platform default"
    UNIT = "unit"


class Setting(NamedTuple):
    """One key of what an attempt runs with, and who set it.

    `field` is `image`, `service_account`, `priority_class_name`, `node_selector`, `labels`, `annotations`,
    `tolerations`, `resources.requests` or `resources.limits`; `key` is "" where the field is a single value, the
    position from 0 for a toleration. `by` is a `Source` or `hook:<name>`.
    """

    field: str
    key: str
    value: str
    by: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """An own check said no (R1.2): which rule, on which field, why and what to do; one line for the author."""

    rule: str  # "placement allowlist", "image allowlist", "resource unit", "kubernetes", "reserved prefix"
    field: str
    message: str


@final
class Checked:
    """An attempt that passed own checks; issued by `policy.checks.check` alone (R1.2).

    `resources` are the effective ones (R2.1); `execution` is what it would get, platform defaults filled in.
    """

    __slots__ = ("attempt", "execution", "image", "own_placement", "resources", "service_account_chosen", "settings")

    def __init__(
        self,
        attempt: Attempt,
        image: str,
        resources: Resources,
        execution: Execution,
        settings: tuple[Setting, ...],
        *,
        service_account_chosen: bool,
        own_placement: bool,
        seal: object,
    ) -> None:
        if seal is not _SEAL:
            raise TypeError("a Checked is issued by policy.checks.check(), never built")
        self.attempt = attempt
        self.image = image
        self.resources = resources
        self.execution = execution
        self.settings = settings
        self.service_account_chosen = service_account_chosen
        self.own_placement = own_placement  # the task sets its own placement (R5.4)
