"""The hooks of one server, in order: the program's own, the configuration's, then the webhook (R8.1)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dexaflow.admission.ports import HookCaller
from dexaflow.base.errors import ConfigError, ConfigErrors
from dexaflow.config.schema import Config
from dexaflow.hooks.finding import load_hooks
from dexaflow.hooks.inprocess import InProcessCaller
from dexaflow.hooks.webhook import WEBHOOK_NAME, WebhookCaller

__all__ = ["Hooks", "build_hooks", "hook_problems"]


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


def hook_problems(targets: Sequence[str], has_webhook: bool, given: Sequence[Any] = ()) -> tuple[ConfigError, ...]:
    """Return what is wrong with hooks in process: they are imported, as the boot does.

    Args:
        targets: Those that the configuration names, as `package.module:name`.
        has_webhook: Whether one is asked beside them: no hook may have its name.
        given: Those of the program itself.
    """
    try:
        load_hooks(targets, Path.cwd(), given=given, names=(WEBHOOK_NAME,) if has_webhook else ())
    except ConfigErrors as errors:
        return errors.problems
    return ()


def build_hooks(config: Config, admission: Sequence[Any] = ()) -> Hooks:
    """Make the callers of all hooks.

    Raises:
        ConfigErrors: hooks that cannot be imported, have no name or another one's; a bad URL or file of the webhook.
    """
    settings = config.execution.admission
    problems: list[ConfigError] = []
    in_process: list[InProcessCaller] = []
    others = () if settings.webhook.url is None else (WEBHOOK_NAME,)
    try:
        for hook in load_hooks(settings.hooks, Path.cwd(), given=admission, names=others):
            in_process.append(InProcessCaller(hook, timeout=settings.timeout))
    except ConfigErrors as found:
        problems += found.problems
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
    if problems:
        raise ConfigErrors(problems)
    return Hooks(in_process, webhook)
