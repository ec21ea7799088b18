"""The hooks of one server, in order: the program's own, the configuration's, then the webhook (R8.1)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dexaflow.admission.ports import HookCaller
from dexaflow.base.errors import ConfigError, ConfigErrors
from dexaflow.config.schema import Config
from dexaflow.hooks.inprocess import InProcessCaller
from dexaflow.hooks.naming import check_names, load_hook
from dexaflow.hooks.webhook import WebhookCaller

__all__ = ["Hooks", "build_hooks"]


class Hooks:
    """The callers, in the order in which they are asked, and what they keep open."""

    def __init__(self, in_process: Sequence[InProcessCaller], webhook: WebhookCaller | None) -> None:
        self._in_process = tuple(in_process)
        self._webhook = webhook
        callers: list[HookCaller] = list(in_process)
        if webhook is not None:
            callers.append(webhook)
        self.callers = tuple(callers)

    def stale_files(self) -> Mapping[str, bool]:
        """Return which of the webhook's files could not be read again after a change (R2.3)."""
        return {} if self._webhook is None else self._webhook.stale_files()

    def abandoned_calls(self) -> Mapping[str, int]:
        """Return how many calls of each hook in process have not returned (R8.3)."""
        return {hook.name: hook.abandoned for hook in self._in_process}

    def start(self) -> None:
        """Begin to watch the webhook's files; call it on the loop that will ask."""
        if self._webhook is not None:
            self._webhook.start()

    async def aclose(self) -> None:
        """Close what is open. No call of a hook is waited for."""
        for hook in self._in_process:
            await hook.close()
        if self._webhook is not None:
            await self._webhook.close()


def build_hooks(config: Config, admission: Sequence[Any] = ()) -> Hooks:
    """Make the callers of all hooks.

    Raises:
        ConfigErrors: hooks that cannot be imported, have no name or another one's; a bad URL or file of the webhook.
    """
    settings = config.execution.admission
    problems: list[ConfigError] = []
    in_process: list[InProcessCaller] = []
    folder = Path.cwd()
    makers: list[Callable[[], Any]] = [partial(_given, hook) for hook in admission]
    makers += [partial(load_hook, path, folder) for path in settings.hooks]
    for make in makers:
        try:
            in_process.append(InProcessCaller(make(), timeout=settings.timeout))
        except ConfigError as problem:
            problems.append(problem)
    webhook = None
    if settings.webhook.url is not None:
        try:
            webhook = WebhookCaller(
                settings.webhook.url,
                timeout=settings.timeout,
                ca_file=settings.webhook.ca_file,
                token_file=settings.webhook.token_file,
            )
        except ConfigError as problem:
            problems.append(problem)
    made = Hooks(in_process, webhook)
    try:
        check_names(caller.name for caller in made.callers)
    except ConfigError as problem:
        problems.append(problem)
    if problems:
        raise ConfigErrors(problems)
    return made


def _given(hook: Any) -> Any:
    return hook
