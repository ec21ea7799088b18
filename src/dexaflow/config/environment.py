"""Configuration from environment variables: `DEXAFLOW_EXECUTION__ADMISSION__TIMEOUT` is `execution.admission.timeout`.

`DEXAFLOW_URL` and `DEXAFLOW_TOKEN` are the command line's, and other names without `__` may belong to anybody
(Kubernetes sets some for a Service called dexaflow): they are left alone unless they are a key's name nearly spelt.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dexaflow.base.errors import ConfigError
from dexaflow.base.nearness import nearest
from dexaflow.config.schema import Key
from dexaflow.config.yaml_source import Node, Scalar, ScalarType, read_yaml, scalar

__all__ = ["PREFIX", "FromEnvironment", "read_environment", "variable"]

PREFIX = "DEXAFLOW_"
NOT_OURS = frozenset({"DEXAFLOW_URL", "DEXAFLOW_TOKEN"})
_NO_NAME = re.compile("[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """A key's value as an environment variable gives it."""

    node: Node
    variable: str


def variable(key: str) -> str:
    """Return the environment variable of `key`."""
    return PREFIX + key.upper().replace(".", "__")


def read_environment(
    environ: Mapping[str, str], keys: Mapping[str, Key], sections: frozenset[str]
) -> tuple[dict[str, FromEnvironment], list[ConfigError]]:
    """Return the values by key, and what is wrong with the variables themselves."""
    by_variable = {variable(key): key for key in keys}
    section_by_variable = {variable(section): section for section in sections}
    found: dict[str, FromEnvironment] = {}
    problems: list[ConfigError] = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in NOT_OURS:
            continue
        key = by_variable.get(name)
        if key is not None:
            node, faults = _node(environ[name], keys[key], name)
            for fault in faults:
                place = "" if fault.key == name else f"{fault.key}: "
                problems.append(ConfigError(key, f"{place}{fault.problem} (from {name})", fault.fix))
            if node is not None:
                found[key] = FromEnvironment(node, name)
        elif name in section_by_variable:
            first = next(key for key in sorted(keys) if key.startswith(section_by_variable[name] + "."))
            problems.append(
                ConfigError(name, "names a section, not a key", f"set its keys one by one, such as {variable(first)}")
            )
        else:
            problems += _stranger(name, by_variable)
    return found, problems


def _node(text: str, key: Key, name: str) -> tuple[Node | None, list[ConfigError]]:
    if text == "":
        return Scalar("", ScalarType.BLANK), []
    if text in ("null", "~"):
        return Scalar(text, ScalarType.NULL), []
    if key.kind.yaml_in_env:
        node, problems = read_yaml(text, name)
        if node is None and not problems:
            node = Scalar("", ScalarType.BLANK)  # only blanks or a comment
        return node, problems
    return (scalar(text) if key.kind.typed else Scalar(text, ScalarType.TEXT)), []


def _stranger(name: str, known: Mapping[str, str]) -> list[ConfigError]:
    """Return the problem with a variable that is no key's, unless it is nobody's business."""
    named = _NO_NAME.split(name, maxsplit=1)[0]
    if named != name:  # `NAME: value` has its value in the name, up to the first "=": it may be a secret
        fix = "write NAME=value, the name in letters, digits and _"
        return [ConfigError(f"{named}...", "is no name of a variable", fix)] if "__" in name or named in known else []
    for prefix in (f"{key_variable}__" for key_variable in known):
        if name.startswith(prefix):
            whole = prefix.removesuffix("__")
            return [ConfigError(name, "names a part of a value", f"set {whole} to all of it, as YAML or JSON")]
    if "__" in name:
        near = _nearest(name, known)
    elif name.endswith("_PORT"):
        near = []  # Kubernetes' own, for a Service called dexaflow-server
    else:
        # One underscore for two, or a mistyped key of the first level.
        near = [whole for whole in known if whole.replace("__", "_") == name]
        near += _nearest(name, [whole for whole in known if "__" not in whole])
    if "__" not in name and not near:
        return []
    fix = f"did you mean {near[0]}?" if near else "unset it; `dexaflow config reference` lists the variables"
    return [ConfigError(name, "is no key of the configuration", fix)]


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the variable that was meant, if each of its words is close, or its beginning was left out."""
    words = name.removeprefix(PREFIX).upper().split("__")
    for whole in known:
        theirs = whole.removeprefix(PREFIX).split("__")
        missing = len(theirs) > len(words) > 1 and theirs[-len(words) :] == words
        alike = len(theirs) == len(words) and all(nearest(w, [t]) for w, t in zip(words, theirs, strict=True))
        if missing or alike:
            return [whole]
    return []
