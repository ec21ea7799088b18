"""The hooks of one server, in the order in which they are asked: the program's own, the configured ones, the webhook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dexaflow.admission.ports import HookCaller
from dexaflow.config.schema import Config

__all__ = ["Hooks", "build_hooks"]


@dataclass(slots=True)
class Hooks:
    """Callers in order, and what they keep open."""

    callers: Sequence[HookCaller] = field(default_factory=list)

    def stale_files(self) -> Mapping[str, bool]:
        return {}

    def abandoned_calls(self) -> Mapping[str, int]:
        return {}

    async def start(self) -> None: ...

    async def aclose(self) -> None: ...


def build_hooks(config: Config, admission: Sequence[Any]) -> Hooks:
    return Hooks()
