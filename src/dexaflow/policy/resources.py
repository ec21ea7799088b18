"""The resources an attempt would get (R2.1). Pure."""

from collections.abc import Mapping
from types import MappingProxyType

from dexaflow.base.text import shown
from dexaflow.kube.quantities import Quantity
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Resources
from dexaflow.policy.checked import Rejection, Setting, Source
from dexaflow.policy.policy import Policy, Unit

__all__ = ["RESOURCE_NAMES", "Effective", "effective_resources"]

RESOURCE_NAMES = ("cpu", "memory", "ephemeral-storage")
_RULE = "resource unit"
Effective = tuple[Resources, tuple[Setting, ...]]


def effective_resources(task: TaskSpec, policy: Policy) -> Effective | Rejection:
    """Return what the task gets and who set each part, or why it may not have it.

    Nothing declared is ever rewritten. With a unit, what is left out is filled in: a missing limit is `pool_slots` x
    unit, a missing request is its limit. Without one, a task that declares none gets the platform defaults.
    """
    declared = task.resources if task.resources and (task.resources.requests or task.resources.limits) else None
    if declared is None and policy.unit is None:
        given = policy.default_resources or Resources()
        return given, _settings(given, dict.fromkeys(_keys(given), Source.DEFAULT))
    declared = declared or Resources()
    problem = _problem(declared)
    if problem is not None:
        return problem
    requests, limits = dict(declared.requests), dict(declared.limits)
    by: dict[tuple[str, str], str] = dict.fromkeys(_keys(declared), Source.AUTHOR)
    if policy.unit is not None:
        sizes = _unit_sizes(policy.unit)
        for name, size in sizes.items():
            whole = size * task.pool_slots
            for field, amounts in (("requests", requests), ("limits", limits)):
                if name in amounts and Quantity.parse(amounts[name]) > whole:
                    return _too_large(task, f"resources.{field}.{name}", amounts[name], size, name, declared, sizes)
            if name not in limits:
                limits[name] = whole.canonical
                by["limits", name] = Source.UNIT
            if name not in requests:
                requests[name] = limits[name]
                by["requests", name] = by["limits", name]
    for name, request in requests.items():
        if name in limits and Quantity.parse(request) > Quantity.parse(limits[name]):
            return Rejection(
                _RULE,
                f"resources.requests.{name}",
                f"request {shown(request)} is above its limit {shown(limits[name])}; lower one or raise the other",
            )
    effective = Resources(MappingProxyType(requests), MappingProxyType(limits))
    return effective, _settings(effective, by)


def _unit_sizes(unit: Unit) -> Mapping[str, Quantity]:
    return {"cpu": unit.cpu, "memory": unit.memory}


def _keys(resources: Resources) -> list[tuple[str, str]]:
    return [("requests", n) for n in resources.requests] + [("limits", n) for n in resources.limits]


def _settings(resources: Resources, by: Mapping[tuple[str, str], str]) -> tuple[Setting, ...]:
    return tuple(
        Setting(f"resources.{field}", name, amount, by[field, name])
        for field, amounts in (("requests", resources.requests), ("limits", resources.limits))
        for name, amount in amounts.items()
    )


def _problem(declared: Resources) -> Rejection | None:
    for field, amounts in (("requests", declared.requests), ("limits", declared.limits)):
        for name, amount in amounts.items():
            where = f"resources.{field}.{shown(name)}"
            if name not in RESOURCE_NAMES:
                return Rejection("kubernetes", where, f"unknown resource; use {', '.join(RESOURCE_NAMES)}")
            try:
                quantity = Quantity.parse(amount)
            except ValueError as error:
                return Rejection("kubernetes", where, shown(str(error)))
            if quantity.sign < 0:
                return Rejection("kubernetes", where, f"{shown(amount)} is negative; write 0 or more")
    return None


def _too_large(
    task: TaskSpec, where: str, amount: str, size: Quantity, name: str, declared: Resources,
    sizes: Mapping[str, Quantity],
) -> Rejection:  # fmt: skip
    """Name the number of slots in which everything the task declares would fit (R2.1)."""
    slots = max(
        -(-Quantity.parse(value).nanos // sizes[resource].nanos)
        for amounts in (declared.requests, declared.limits)
        for resource, value in amounts.items()
        if resource in sizes
    )
    return Rejection(
        _RULE,
        where,
        f"{shown(amount)} is more than {task.pool_slots} x {size.canonical} of {name};"
        f" it would fit with pool_slots={slots}",
    )
