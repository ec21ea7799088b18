"""Making a `Config` of a file and the environment, or a list of everything that is wrong with them."""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from dexaflow.base.errors import ConfigError, ConfigErrors
from dexaflow.base.nearness import nearest
from dexaflow.base.text import shown
from dexaflow.config.checks import WEBHOOK, check_together
from dexaflow.config.environment import read_environment
from dexaflow.config.schema import Config, Key
from dexaflow.config.values import Unfit
from dexaflow.config.yaml_source import (
    MAX_BYTES,
    Listing,
    Node,
    Scalar,
    ScalarType,
    Section,
    quotable_key,
    quotable_node,
    read_yaml,
)
from dexaflow.hooks.finding import names_a_hook

__all__ = ["CheckHooks", "all_keys", "load_config"]

# (what hooks in process are named as `package.module:name`, whether a webhook is set) -> what is wrong with them
CheckHooks = Callable[[Sequence[str], bool], Iterable[ConfigError]]


def load_config(
    path: Path | None, environ: Mapping[str, str], *, base_dir: Path, check_hooks: CheckHooks | None = None
) -> Config:
    """Return the configuration of `path` and `environ`; the environment wins.

    Args:
        path: The YAML file; None for a configuration from the environment and defaults alone.
        environ: The environment variables; those that do not begin with `DEXAFLOW_` are ignored.
        base_dir: Where relative paths in the configuration start.
        check_hooks: Called when something else is wrong, so that all that is wrong is said at once: whoever uses the
            hooks of a configuration that is right finds out by loading them.

    Raises:
        ConfigErrors: every problem found: unknown keys and variables, wrong types, values out of range, keys given
            twice, YAML that does not parse, files that cannot be used. Nothing secret is quoted.
    """
    keys = dict(all_keys(Config))
    sections = frozenset(_sections(Config))
    problems: list[ConfigError] = []
    given: dict[str, tuple[Node, str]] = {}
    readable = True
    if path is not None:
        root, file_problems = _read_file(path)
        problems += file_problems
        readable = root is not None
        if root is not None:
            _flatten(root, "", keys, sections, given, problems)
    from_environment, environment_problems = read_environment(environ, keys, sections)
    problems += environment_problems
    given |= {key: (value.node, value.variable) for key, value in from_environment.items()}

    values: dict[str, Any] = {}  # Any: each key has its own type
    broken: set[str] = set()
    for key, (node, variable) in given.items():
        try:
            value = _value(keys[key], node, base_dir)
        except Unfit as unfit:
            source = f" (from {variable})" if variable else ""
            faults = _without_secrets(unfit, keys[key], node, base_dir).faults
            problems += [ConfigError(key, f"{problem}{source}", fix) for problem, fix in faults]
            broken.add(key)
        else:
            if value is not None:
                values[key] = value
    if readable:
        problems += check_together(values, frozenset(broken))
    if problems and check_hooks is not None:
        problems += check_hooks(_well_named(given.get("execution.admission.hooks")), f"{WEBHOOK}.url" in given)
    if problems:
        raise ConfigErrors([_without_user_info(problem) for problem in problems])
    config = _build(Config, "", values)
    assert isinstance(config, Config)
    return config


def _well_named(given: tuple[Node, str] | None) -> tuple[str, ...]:
    """Return the entries of the list of hooks that name one, whatever is wrong with the others."""
    items = given[0].items if given is not None and isinstance(given[0], Listing) else ()
    texts = [item.text for item in items if isinstance(item, Scalar) and item.type is ScalarType.TEXT]
    return tuple(dict.fromkeys(text for text in texts if names_a_hook(text)))


def _without_secrets(unfit: Unfit, key: Key, node: Node, base_dir: Path) -> Unfit:
    """Return `unfit` as it is said of `node` without the secrets of the URLs in it.

    Messages quote a value whole, in part, and cut off: what is to be kept out of them must not be in it (R2.4).
    """
    quotable = quotable_node(node)
    if quotable is node:
        return unfit
    try:
        _value(key, quotable, base_dir)
    except Unfit as of_the_rest:
        return of_the_rest
    return Unfit(("it holds user info, or the query of a URL", "take that out"))


# From a URL's slashes to the `@` that ends its user info, or to where quoting has cut it off.
_USER_INFO = re.compile(r"(?<=:)(/+).*(?:@|\.\.\.)", re.DOTALL)


def _without_user_info(problem: ConfigError) -> ConfigError:
    """Return `problem` with the user info of a URL left out, wherever a message quotes what is no value of a key.

    That is the file's own name, or what the module of a hook raised (R2.4).
    """
    key, what = (_USER_INFO.sub(r"\1...@", text) for text in (problem.key, problem.problem))
    return ConfigError(key, what, problem.fix)


def all_keys(of: type[Any], prefix: str = "") -> Iterator[tuple[str, Key]]:  # Any: a class of the schema
    """Yield every key below `of`, in the order of the schema, with what is said about it."""
    for field in fields(of):
        if "section" in field.metadata:
            yield from all_keys(field.metadata["section"], f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field.metadata["key"]


def _sections(of: type[Any], prefix: str = "") -> Iterator[str]:
    for field in fields(of):
        if "section" in field.metadata:
            yield f"{prefix}{field.name}"
            yield from _sections(field.metadata["section"], f"{prefix}{field.name}.")


def _read_file(path: Path) -> tuple[Section | None, list[ConfigError]]:
    """Return the file's mapping, None when nothing can be said about its keys."""
    origin = shown(str(path))
    try:
        content = _content(path)
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        return None, [ConfigError(origin, f"cannot be read: {reason}", "name a YAML file")]
    if len(content) > MAX_BYTES:
        return None, [ConfigError(origin, f"has more than {MAX_BYTES} bytes", "name a configuration file")]
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return None, [ConfigError(origin, f"is not UTF-8: byte {error.start}", "save it as UTF-8")]
    root, problems = read_yaml(text, origin)
    if root is None:
        return (None if problems else Section({})), problems
    if not isinstance(root, Section):
        return None, [*problems, ConfigError(origin, "is not a mapping of keys", "write `key: value` lines")]
    return root, problems


def _content(path: Path) -> bytes:
    # Opened without waiting, so that a named pipe is an error and not a start that never ends.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a file")
        return file.read(MAX_BYTES + 1)


def _flatten(
    section: Section,
    prefix: str,
    keys: Mapping[str, Key],
    sections: frozenset[str],
    given: dict[str, tuple[Node, str]],
    problems: list[ConfigError],
) -> None:
    """Put what the file sets into `given`, by key."""
    for name, node in section.entries.items():
        key = f"{prefix}{name}"
        # A dot is never in a name of ours, and `a.b:` beside `a: {b: }` would be one key given twice.
        if "." in name.partition(":")[0]:
            fix = f"write it as {_nested(key)}" if key in keys or key in sections else "write one name a level"
            problems.append(ConfigError(quotable_key(key), "unknown key", fix))
        elif key in keys:
            given[key] = node, ""
        elif key not in sections:
            problems.append(ConfigError(quotable_key(key), "unknown key", _nearest(key, prefix, keys, sections)))
        elif isinstance(node, Section):
            _flatten(node, f"{key}.", keys, sections, given, problems)
        elif not (isinstance(node, Scalar) and node.type is ScalarType.NULL):
            fix = f"write its keys below it: {', '.join(sorted(_children(f'{key}.', keys, sections)))}"
            if isinstance(node, Scalar) and node.type is ScalarType.BLANK:
                # As with a key: whoever commented out the lines below may not know that no webhook is asked now.
                problems.append(
                    ConfigError(key, "there is nothing below it", f"{fix}; or leave it out (null says the same)")
                )
            else:
                problems.append(ConfigError(key, "is a section, not a value", fix))


def _nearest(key: str, prefix: str, keys: Mapping[str, Key], sections: frozenset[str]) -> str:
    """Return what to do about an unknown key: the key that was meant, if one is near."""
    if key == f"{prefix}<<":
        return "merge keys are not read, write the keys out"
    here = _children(prefix, keys, sections)
    name, colon, _ = key.removeprefix(prefix).partition(":")
    if colon and name in here:
        return f"write a space after `{name}:`"
    near = nearest(name, sorted(here))
    if near:
        return f"did you mean {prefix}{near}?"
    # Right name, wrong place: `admission` at the top, `execution.webhook`.
    everything = [*keys, *sorted(sections)]
    elsewhere = [other for other in everything if other == name or other.endswith(f".{name}")]
    if elsewhere:
        return f"did you mean {elsewhere[0]}?"
    return f"take it out; here belong {', '.join(sorted(here))}"


def _nested(key: str) -> str:
    first, _, rest = key.partition(".")
    return f"{{{first}: {_nested(rest) if rest else '...'}}}"


def _children(prefix: str, keys: Mapping[str, Key], sections: frozenset[str]) -> set[str]:
    return {key.removeprefix(prefix).partition(".")[0] for key in (*keys, *sections) if key.startswith(prefix)}


def _value(key: Key, node: Node, base_dir: Path) -> Any:  # Any: the key's own type; None for null
    if isinstance(node, Scalar):
        if node.type is ScalarType.NULL:
            return None
        if node.type is ScalarType.BLANK:
            # Never taken for "unset": what was to stand here may be a whole allowlist, or the endpoint.
            raise Unfit(("it has no value", "write one, or leave the key out (null says the same)"))
    return key.kind.read(node, base_dir)


def _build(of: type[Any], prefix: str, values: Mapping[str, Any]) -> Any:  # Any: an instance of `of`
    """Return an `of` with the values below `prefix`; what is not given has its default."""
    arguments: dict[str, Any] = {}
    for field in fields(of):
        key = f"{prefix}{field.name}"
        if "section" in field.metadata:
            if field.metadata.get("all_or_none") and not any(given.startswith(f"{key}.") for given in values):
                continue
            arguments[field.name] = _build(field.metadata["section"], f"{key}.", values)
        elif key in values:
            arguments[field.name] = values[key]
    return of(**arguments)
