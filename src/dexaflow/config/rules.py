"""What each key accepts: the rules of Kubernetes, of images and of the webhook's URL, as readers of values."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from dexaflow.base.text import quoted
from dexaflow.config.values import Kind, Unfit, described, listing, text_of, unfit
from dexaflow.config.yaml_source import Node, Scalar, ScalarType, Section
from dexaflow.hooks.finding import names_a_hook
from dexaflow.hooks.url import parse_webhook_url
from dexaflow.kube.names import label_value_problem, priority_class_problem, service_account_problem
from dexaflow.kube.quantities import Quantity
from dexaflow.model.dag_rules import RESOURCE_NAMES
from dexaflow.model.execution import Resources
from dexaflow.policy.images import ImagePattern, ImageReference

__all__ = [
    "ACCOUNT_FIX",
    "IMAGE_FIX",
    "PATTERN_FIX",
    "hook_name",
    "host",
    "image",
    "image_pattern",
    "names",
    "one_of_each",
    "priority_class",
    "quantity",
    "resources",
    "service_account",
    "tenant",
    "webhook_url",
]

ACCOUNT_FIX = "write the name of a service account, such as dexaflow-task"
IMAGE_FIX = "write an image reference, such as ghcr.io/acme/etl:1.4"
PATTERN_FIX = "write a registry and path, such as ghcr.io/acme or ghcr.io/acme/etl:1.4"


_HOST_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9-]{1,63}(?<!-))*", re.IGNORECASE | re.ASCII)


def webhook_url(written: str) -> str:
    """Return the URL as written. Raises `ValueError`, which never holds any of it (R2.4)."""
    parse_webhook_url(written)
    return written


def hook_name(written: str) -> str:
    """Return a `package.module:name`."""
    if not names_a_hook(written):
        raise ValueError(f"{quoted(written)} does not name a hook")
    return written


def service_account(written: str) -> str:
    """Return the name of a service account."""
    return _checked(written, service_account_problem)


def priority_class(written: str) -> str:
    """Return the name of a priority class."""
    return _checked(written, priority_class_problem)


def tenant(written: str) -> str:
    """Return a tenant's id: it goes into labels, logs and paths, so it is a label's value, and not empty."""
    if not written:
        raise ValueError("'' is empty")
    return _checked(written, label_value_problem)


def host(written: str) -> str:
    """Return an address or a host name."""
    try:
        ipaddress.ip_address(written)
    except ValueError:
        if len(written) > 253 or not _HOST_NAME.fullmatch(written) or written.replace(".", "").isdigit():
            raise ValueError(f"{quoted(written)} is not an address") from None
    return written


def image(written: str) -> str:
    """Return an image reference as written."""
    ImageReference.parse(written)
    return written


def image_pattern(written: str) -> ImagePattern:
    """Return an entry of the image allowlist (R2.6)."""
    return ImagePattern.parse(written)


def names(name: str, what: str, check: Callable[[str], str]) -> Kind[frozenset[str]]:
    """A list of names that is looked into, not walked."""
    as_list = listing(name, what, check)
    return Kind(as_list.name, lambda node, base_dir: frozenset(as_list.read(node, base_dir)), yaml_in_env=True)


def one_of_each(name: str, words: tuple[str, ...]) -> Kind[frozenset[str]]:
    """A list of some of `words`."""

    def check(written: str) -> str:
        if written not in words:
            raise ValueError(f"{quoted(written)} is none of them")
        return written

    kind = names(name, f"write any of {', '.join(words)}", check)
    return Kind(f"{kind.name}: {', '.join(f'`{word}`' for word in words)}", kind.read, yaml_in_env=True)


def quantity(name: str, fix: str, *, above_zero: bool = False) -> Kind[Quantity]:
    """A Kubernetes quantity, which YAML may take for a number."""
    return Kind(name, lambda node, base_dir: _quantity(node, fix, above_zero=above_zero)[1])


def resources() -> Kind[Resources]:
    """Requests and limits by resource name; a request is at most its limit."""
    return Kind("mapping of `requests` and `limits` to quantities by resource name", _resources, yaml_in_env=True)


def _checked(written: str, problem_of: Callable[[str], str | None]) -> str:
    problem = problem_of(written)
    if problem:
        raise ValueError(f"{quoted(written)} {problem}")
    return written


def _quantity(node: Node, fix: str, *, above_zero: bool = False) -> tuple[str, Quantity]:
    """Return a quantity as written, and its value. `0.5` and `2` need no quotes."""
    if isinstance(node, Scalar) and node.type is ScalarType.NUMBER:
        written = node.text
    else:
        written = text_of(node, fix)
    try:
        value = Quantity.parse(written)
    except ValueError as error:
        raise unfit(error, fix) from None
    if value.sign < 0:
        raise Unfit((f"{quoted(written)} is negative", fix))
    if above_zero and value.sign == 0:
        raise Unfit((f"{quoted(written)} is zero", fix))
    return written, value


def _resources(node: Node, base_dir: Path) -> Resources:
    shape = "write {requests: {cpu: 500m}, limits: {memory: 1Gi}}"
    if not isinstance(node, Section):
        raise Unfit((described(node), shape))
    faults: list[tuple[str, str]] = []
    found: dict[str, dict[str, tuple[str, Quantity]]] = {"requests": {}, "limits": {}}
    for part, amounts in node.entries.items():
        if part not in found:
            faults.append((f"{quoted(part)} is neither requests nor limits", shape))
        elif isinstance(amounts, Section):
            for name, amount in amounts.entries.items():
                try:
                    found[part][name] = _amount(name, amount)
                except Unfit as found_fault:
                    faults += found_fault.within(f"{part}.{name if name in RESOURCE_NAMES else quoted(name)}").faults
        else:
            faults.append((f"{part}: {described(amounts)}", shape))
    for name, (written, value) in found["requests"].items():
        limit = found["limits"].get(name)
        if limit is not None and limit[1] < value:
            faults.append(
                (f"requests.{name} {written} is above limits.{name} {limit[0]}", "lower it, or raise the limit")
            )
    if faults:
        raise Unfit(*faults)
    return Resources(requests=_as_written(found["requests"]), limits=_as_written(found["limits"]))


def _amount(name: str, node: Node) -> tuple[str, Quantity]:
    if name not in RESOURCE_NAMES:
        raise Unfit(("unknown resource", f"write {', '.join(RESOURCE_NAMES)}"))
    return _quantity(node, "write a quantity, such as 500m or 1Gi")


def _as_written(amounts: Mapping[str, tuple[str, Quantity]]) -> Mapping[str, str]:
    return MappingProxyType({name: written for name, (written, _) in amounts.items()})
