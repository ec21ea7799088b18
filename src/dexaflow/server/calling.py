"""Whether `server.run` was called as it can be: where, and with what. All that is wrong is told at once."""

import asyncio
import os
import threading
from collections.abc import Sequence
from typing import Any, Final

from dexaflow.base.errors import ConfigError, ConfigErrors, UsageError
from dexaflow.base.text import shown, without_user_info
from dexaflow.config.schema import Config

__all__ = ["check_arguments", "check_place"]

MAX_PORT: Final = 65_535


def check_place() -> None:
    """Raises `UsageError` unless a server can be run from here."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            "server.run() was called in a thread, where no signal can stop it; call it in the main thread, and do the "
            "rest of the program in threads"
        )
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(
        "server.run() was called within a running event loop, and has one of its own; call it outside of any "
        "(not from `async def`), or in a process of its own"
    )


def check_arguments(*, config: Any, admission: Any, dags: Any, data: Any, host: Any, port: Any, on_ready: Any) -> None:
    """Raises `ConfigErrors`, one for each argument that is not of its type. Any: whatever somebody gave."""
    problems: list[ConfigError] = []

    def wrong(name: str, value: object, wanted: str, fix: str) -> None:
        found = "None" if value is None else f"a value of type {type(value).__name__}"
        if isinstance(value, str):
            found = f"'{shown(without_user_info(value)[:200])}'"
        problems.append(ConfigError(f"server.run({name}=...)", f"{found} is not {wanted}", fix))

    if config is not None and not isinstance(config, Config) and not _is_path(config):
        wrong("config", config, "a configuration", "give the path of its YAML file")
    if not isinstance(admission, Sequence) or isinstance(admission, str | bytes | bytearray):
        fix = "write admission=[freeze]" if callable(admission) else "give the functions themselves in a list"
        wrong("admission", admission, "a list of hooks", fix)
    for name, folder in (("dags", dags), ("data", data)):
        if not _is_path(folder):
            wrong(name, folder, "the path of a folder", "give one folder, as text or a Path")
    if host is not None and (not isinstance(host, str) or "\0" in host):
        wrong("host", host, "an address", "give it as text, such as '127.0.0.1'")
    if port is not None and (not isinstance(port, int) or isinstance(port, bool)):
        wrong("port", port, "a port", f"give a whole number from 0 to {MAX_PORT}")
    elif port is not None and not 0 <= port <= MAX_PORT:
        problems.append(
            ConfigError("server.run(port=...)", f"there is no port {port}", f"give one from 0 to {MAX_PORT}")
        )
    if on_ready is not None and not callable(on_ready):
        wrong("on_ready", on_ready, "a function", "give one that takes URL and token")
    if problems:
        raise ConfigErrors(problems)


def _is_path(value: object) -> bool:
    """Tell whether `pathlib.Path` takes it, and the system then takes that."""
    if not isinstance(value, str | os.PathLike):
        return False
    path = os.fspath(value)
    return isinstance(path, str) and "\0" not in path
