"""What a task's pod requests and may use (R2.1): declared, filled in from the unit, or the platform's default."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dexaflow.base.text import quoted
from dexaflow.kube.quantities import Quantity
from dexaflow.model.dag_rules import RESOURCE_NAMES
from dexaflow.model.dags import TaskSpec
from dexaflow.model.execution import Resources
from dexaflow.policy.checked import Rejection, Setting, Source
from dexaflow.policy.policy import Policy, Unit

__all__ = ["EffectiveResources", "effective_resources"]

RULE_UNIT = "resource unit"
RULE_KUBERNETES = "kubernetes"

_ZERO = Quantity.parse("0")
_MOST_SLOTS = 1_000_000  # a size beyond it is no advice

Amounts = dict[str, Quantity]


@dataclass(frozen=True, slots=True)
class EffectiveResources:
    """What the pod gets, and who set each amount."""

    resources: Resources
    settings: tuple[Setting, ...]


def effective_resources(task: TaskSpec, policy: Policy) -> EffectiveResources | tuple[Rejection, ...]:
    """Return what a task gets, or everything that is wrong with what it declares (R2.1).

    Nothing declared is ever rewritten; no side with an amount in it at all counts as declaring none. With a unit,
    a missing limit of cpu or memory is ``pool_slots`` times the unit, and a missing request is its limit, that of
    ephemeral storage too (of which the unit says nothing else). Without one, what is declared stays as it is.
    """
    declared = task.resources
    if declared is None or not (declared.requests or declared.limits):
        if policy.unit is not None:
            whole = _written(_ceiling(task, policy.unit))
            return _effective(whole, whole, {}, {}, Source.UNIT)
        default = policy.default_resources or Resources()
        return _effective(default.requests, default.limits, {}, {}, Source.DEFAULT)
    requests, limits = dict[str, Quantity](), dict[str, Quantity]()
    problems = [
        *_read("requests", declared.requests, requests),
        *_read("limits", declared.limits, limits),
    ]
    if policy.unit is not None:
        problems += _that_do_not_fit(task, policy.unit, declared, requests, limits)
    for name, request in requests.items():
        if name in limits and request > limits[name]:
            what = _amount("request", name, declared.requests[name])
            fault = f"{what} is above its limit {quoted(declared.limits[name])}; lower it, or raise the limit"
            problems.append(Rejection(RULE_KUBERNETES, "resources.requests", fault))
    if problems:
        return tuple(problems)
    if policy.unit is None:
        return _effective(declared.requests, declared.limits, declared.requests, declared.limits, Source.AUTHOR)
    all_limits = {**_written(_ceiling(task, policy.unit)), **declared.limits}
    all_requests = {**all_limits, **declared.requests}
    return _effective(all_requests, all_limits, declared.requests, declared.limits, Source.UNIT)


def _read(side: str, declared: Mapping[str, str], into: Amounts) -> Iterator[Rejection]:
    """Put one side's amounts into `into`; yield what is wrong with the others."""
    for name, text in declared.items():
        if name not in RESOURCE_NAMES:
            what = f"{side} has the unknown field {quoted(name)}; known are {', '.join(RESOURCE_NAMES)}"
            yield Rejection(RULE_KUBERNETES, f"resources.{side}", what)
            continue
        try:
            amount = Quantity.parse(text)
        except ValueError as error:
            yield Rejection(RULE_KUBERNETES, f"resources.{side}", f"{side[:-1]} of {name}: {error}")
            continue
        if amount < _ZERO:
            what = f"{_amount(side[:-1], name, text)} is negative; write an amount from 0"
            yield Rejection(RULE_KUBERNETES, f"resources.{side}", what)
            continue
        into[name] = amount


def _that_do_not_fit(
    task: TaskSpec, unit: Unit, declared: Resources, requests: Amounts, limits: Amounts
) -> Iterator[Rejection]:
    """Yield what is above ``pool_slots`` times the unit, each naming the size that would fit all of it."""
    ceiling = _ceiling(task, unit)
    units = {"cpu": unit.cpu, "memory": unit.memory}
    sides = (("limits", declared.limits, limits), ("requests", declared.requests, requests))
    needed = max(
        (amounts[name].units(units[name]) for _, _, amounts in sides for name in units if name in amounts),
        default=0,
    )
    for side, as_declared, amounts in sides:
        for name, most in ceiling.items():
            if name in amounts and amounts[name] > most:
                what = _amount(side[:-1], name, as_declared[name])
                unit_text = f"pool_slots {task.pool_slots} x unit {units[name].exact_text} = {most.exact_text}"
                fix = f"write at most {most.exact_text}"
                fix += f", or set pool_slots={needed}" if needed <= _MOST_SLOTS else "; no pool_slots would fit it"
                yield Rejection(RULE_UNIT, f"resources.{side}", f"{what} is more than {unit_text}; {fix}")


def _ceiling(task: TaskSpec, unit: Unit) -> Amounts:
    return {"cpu": unit.cpu.mul(task.pool_slots), "memory": unit.memory.mul(task.pool_slots)}


def _written(amounts: Amounts) -> dict[str, str]:
    return {name: amount.exact_text for name, amount in amounts.items()}


def _amount(side: str, name: str, text: str) -> str:
    return f"{side} of {name} {quoted(text)}"


def _effective(
    requests: Mapping[str, str],
    limits: Mapping[str, str],
    own_requests: Mapping[str, str],
    own_limits: Mapping[str, str],
    others_by: Source,
) -> EffectiveResources:
    settings = tuple(
        Setting(f"resources.{side}", name, text, Source.AUTHOR if name in own else others_by)
        for side, amounts, own in (("requests", requests, own_requests), ("limits", limits, own_limits))
        for name, text in amounts.items()
    )
    frozen = Resources(requests=MappingProxyType(dict(requests)), limits=MappingProxyType(dict(limits)))
    return EffectiveResources(frozen, settings)
