"""Every key of the configuration: its type, default and meaning (requirements, section 2). There is no other list.

The tree of classes is the tree of the YAML file, attribute for key: `config.execution.admission.timeout`. The loader
walks it, the reference page is printed from it, and what is not here is an unknown key.
"""

# ruff: noqa: RUF009 - `_key` and its like are `dataclasses.field` with more to say

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dexaflow.config import rules
from dexaflow.config.values import Kind, boolean, choice, duration, folder_by_tenant, listing, number, path, text
from dexaflow.hooks.url import URL_FIX
from dexaflow.kube.quantities import Quantity
from dexaflow.model.dag_rules import EXECUTION_FIELDS
from dexaflow.model.execution import Resources
from dexaflow.policy.images import ImagePattern
from dexaflow.policy.policy import Policy, Unit

__all__ = ["Config", "Key"]


@dataclass(frozen=True, slots=True)
class Key:
    """What the reference says about a key, and how it is read."""

    kind: Kind[Any]  # Any: each key has its own type, named at its attribute
    meaning: str
    default: str  # as it stands in the reference


def _key(kind: Kind[Any], value: Any, meaning: str, *, default: str) -> Any:  # Any: as `dataclasses.field`
    return field(default=value, metadata={"key": Key(kind, meaning, default)})


def _computed(kind: Kind[Any], value: Any, meaning: str, *, default: str) -> Any:  # Any: as `dataclasses.field`
    return field(default_factory=value, metadata={"key": Key(kind, meaning, default)})


def _section(of: type[Any]) -> Any:  # Any: as `dataclasses.field`
    return field(default_factory=of, metadata={"section": of})


def _all_or_none(of: type[Any]) -> Any:  # Any: as `dataclasses.field`
    """A section whose keys are set together; None when none is."""
    return field(default=None, metadata={"section": of, "all_or_none": True})


def default_parallelism() -> int:
    """Return the cap on tasks at once that suits this machine: 4 for each core, at least 8."""
    return max(8, 4 * (os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """The endpoint that is asked."""

    url: str | None = _key(
        text("`https` URL", URL_FIX, rules.webhook_url, secret=True),
        None,
        "Endpoint to ask about every task attempt. `https`, or `http` when the host is loopback; no user info, no "
        "fragment. Without it no webhook is asked.",
        default="none: off",
    )
    ca_file: Path | None = _key(
        path("a PEM file", secret=True),
        None,
        "PEM bundle that signs the endpoint's certificate, used instead of the system's. Read again when it changes.",
        default="the system's trust",
    )
    token_file: Path | None = _key(
        path("a file with the token", secret=True),
        None,
        "File with the bearer token for the endpoint; one trailing line end is dropped. Read again when it changes.",
        default="none",
    )


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    """How hooks are asked."""

    webhook: WebhookConfig = _section(WebhookConfig)
    timeout: float = _key(
        duration("10ms", "30s"),
        0.5,
        "For one hook to answer, connecting included.",
        default="`500ms`",
    )
    fail_open: bool = _key(
        boolean(),
        False,
        "Admit attempts unchanged while a hook is broken, instead of holding them. A hold or refuse still applies.",
        default="`false`",
    )
    hooks: tuple[str, ...] = _key(
        listing("`package.module:name`", "write package.module:name", rules.hook_name),
        (),
        "In-process hooks, asked in this order and before the webhook.",
        default="none",
    )
    recheck: float = _key(
        duration("1s", "1h"),
        15.0,
        "How long a held attempt waits before it is asked again, plus up to 10 % of jitter.",
        default="`15s`",
    )


@dataclass(frozen=True, slots=True)
class UnitConfig:
    """The resource unit; both or neither."""

    cpu: Quantity = _key(
        rules.quantity("a CPU quantity above 0", "write cores or millicores, such as 500m or 2", above_zero=True),
        None,
        "CPU of one pool slot. A task that declares no resources gets requests = limits = `pool_slots` x unit; one "
        "that declares its own must fit in that. Set together with `execution.unit.memory`.",
        default="unset",
    )
    memory: Quantity = _key(
        rules.quantity("a memory quantity above 0", "write bytes with a suffix, such as 512Mi or 2Gi", above_zero=True),
        None,
        "Memory of one pool slot. Set together with `execution.unit.cpu`.",
        default="unset",
    )


@dataclass(frozen=True, slots=True)
class DefaultsConfig:
    """What a task gets that says nothing itself."""

    resources: Resources | None = _key(
        rules.resources(),
        None,
        "Requests and limits of a task that declares none, when there is no resource unit: "
        "`{requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 1Gi}}`.",
        default="none",
    )
    service_account: str = _key(
        text("service account name", rules.ACCOUNT_FIX, rules.service_account),
        "default",
        "Service account of a task that names none.",
        default="`default`",
    )
    image: str = _key(
        text("image reference", rules.IMAGE_FIX, rules.image),
        "",
        "Image of a task that names none, nor its DAG.",
        default="none",
    )


@dataclass(frozen=True, slots=True)
class ExecutionConfig:
    """What happens to an attempt before it runs, and what it runs with."""

    admission: AdmissionConfig = _section(AdmissionConfig)
    unit: UnitConfig | None = _all_or_none(UnitConfig)
    defaults: DefaultsConfig = _section(DefaultsConfig)


@dataclass(frozen=True, slots=True)
class AllowlistConfig:
    """What DAG authors, and hooks, may set. None: unset; an empty one allows none."""

    fields: frozenset[str] | None = _key(
        rules.one_of_each("execution fields", EXECUTION_FIELDS),
        None,
        "Execution fields that a DAG author may set. Changes by hooks are not checked against it. Unset allows all, "
        "`[]` allows none.",
        default="unset",
    )
    priority_classes: frozenset[str] | None = _key(
        rules.names("priority class names", "write the name of a PriorityClass", rules.priority_class),
        None,
        "Priority classes that an author or a hook may set. Unset allows all but `system-*`, `[]` allows none.",
        default="unset",
    )
    service_accounts: frozenset[str] | None = _key(
        rules.names("service account names", rules.ACCOUNT_FIX, rules.service_account),
        None,
        "Service accounts that an author or a hook may set. Unset allows authors all and hooks none; `[]` allows none.",
        default="unset",
    )


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """How much of the past is kept."""

    retention: float = _key(
        duration("1h", "3650d"),
        30 * 86_400.0,
        "How long finished runs, their reviews and logs are kept.",
        default="`30d`",
    )


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where the HTTP API listens."""

    host: str = _key(
        text("address or host name", "write an address, such as 127.0.0.1 or 0.0.0.0", rules.host),
        "127.0.0.1",
        "Address to listen on. Beyond loopback, whoever has a token reaches the API over plain HTTP: put a TLS proxy "
        "in front. `--host` wins.",
        default="`127.0.0.1`",
    )
    port: int = _key(
        number(0, 65535), 8080, "Port to listen on; 0 takes any free one. `--port` wins.", default="`8080`"
    )


@dataclass(frozen=True, slots=True)
class LoggingConfig:
    """The server's own log, on standard error."""

    format: str = _key(
        choice("auto", "json", "console"),
        "auto",
        "JSON objects, one a line, or lines for people. `auto` is `console` on a terminal, else `json`.",
        default="`auto`",
    )
    level: str = _key(
        choice("debug", "info", "warning", "error"),
        "info",
        "The least urgent lines that are written.",
        default="`info`",
    )


@dataclass(frozen=True, slots=True)
class LoadingConfig:
    """DAG files."""

    timeout: float = _key(
        duration("1s", "10m"),
        30.0,
        "For one DAG file to load; a file that takes longer is an import error.",
        default="`30s`",
    )


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The agents that run beside the tasks."""

    heartbeat: float = _key(
        duration("100ms", "1m"),
        5.0,
        "How often an agent says that its task still runs; its token is renewed with it.",
        default="`5s`",
    )
    silence: float = _key(
        duration("1s", "1h"),
        30.0,
        "How long an agent may be silent before the server looks whether its process is gone; at least two heartbeats.",
        default="`30s`",
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The server's configuration, complete and valid; made by `load_config`. Durations are seconds."""

    execution: ExecutionConfig = _section(ExecutionConfig)
    execution_allowlist: AllowlistConfig = _section(AllowlistConfig)
    image_allowlist: tuple[ImagePattern, ...] | None = _key(
        listing("image patterns", rules.PATTERN_FIX, rules.image_pattern),
        None,
        "Images that an author may name: a registry (its port is part of it) and whole path parts, optionally with a "
        "tag or digest. `ghcr.io/acme` allows `ghcr.io/acme/etl:1` and not `ghcr.io/acmeco/etl`. Unset allows all, "
        "`[]` allows none.",
        default="unset",
    )
    tenants: Mapping[str, Path] = _computed(
        folder_by_tenant(rules.tenant),
        lambda: MappingProxyType({}),
        "Which DAG folder belongs to which tenant: `{acme: dags/acme, globex: dags/globex}`. A DAG file never says "
        "its own. Relative folders start at the configuration file's.",
        default="one folder, tenant `default`",
    )
    parallelism: int = _computed(
        number(1, 10_000),
        default_parallelism,
        "How many tasks run at once on this machine (Lite).",
        default="4 for each core, at least 8",
    )
    history: HistoryConfig = _section(HistoryConfig)
    server: ServerConfig = _section(ServerConfig)
    logging: LoggingConfig = _section(LoggingConfig)
    loading: LoadingConfig = _section(LoadingConfig)
    agent: AgentConfig = _section(AgentConfig)

    def tenant_folders(self, dags: Path) -> Mapping[str, Path]:
        """Return the DAG folder of each tenant; `dags` belongs to tenant `default` when none are configured."""
        return self.tenants or {"default": dags}

    def policy(self) -> Policy:
        """Return what own checks and checks of changes go by."""
        unit = self.execution.unit
        return Policy(
            fields=self.execution_allowlist.fields,
            priority_classes=self.execution_allowlist.priority_classes,
            service_accounts=self.execution_allowlist.service_accounts,
            images=self.image_allowlist,
            unit=Unit(cpu=unit.cpu, memory=unit.memory) if unit else None,
            default_resources=self.execution.defaults.resources,
            default_service_account=self.execution.defaults.service_account,
            default_image=self.execution.defaults.image,
        )
