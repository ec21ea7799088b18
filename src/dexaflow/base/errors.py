"""The errors of Dexaflow, by what the catcher can do.

::

    DexaflowError
    ├── ConfigError          one problem of the configuration: key, problem, fix
    ├── ConfigErrors         all of them at once; the server does not start
    ├── UsageError           a person asked for something that cannot be; one line says what to do
    │   ├── NotFound         there is no such DAG, run, task, pool, hook
    │   └── Conflict         it exists, but its state does not allow this
    ├── DagError             a DAG file or DAG cannot be registered; says file, line and cause
    ├── HookBroken           a hook did not give a decision (R7.1)
    ├── StoreError           the database cannot be used
    │   └── TermLost         another control plane has taken over; stop
    ├── ExecutorError        an attempt could not be started
    └── ServerFailed         the server could not start, or go on; uncaught it ends the program in a line for each cause
"""

from collections.abc import Sequence
from typing import Literal

from dexaflow.base.text import shown

__all__ = [
    "ConfigError",
    "ConfigErrors",
    "Conflict",
    "DagError",
    "DexaflowError",
    "ExecutorError",
    "HookBroken",
    "NotFound",
    "ServerFailed",
    "StoreError",
    "TermLost",
    "UsageError",
    "not_found",
]


class DexaflowError(Exception):
    """Base of all errors that Dexaflow raises on purpose. ``str()`` is fit for a person, one line, no secrets."""


class ConfigError(DexaflowError):
    """The configuration cannot be used. Raised at boot only, one for each problem found."""

    def __init__(self, key: str, problem: str, fix: str) -> None:
        super().__init__(f"{key}: {problem}; {fix}")
        self.key = key
        self.problem = problem
        self.fix = fix


class ConfigErrors(DexaflowError):  # noqa: N818 - several
    """Every problem of one configuration; ``str()`` lists them, a line each."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        super().__init__("\n".join(str(p) for p in problems))
        self.problems = tuple(problems)


class UsageError(DexaflowError):
    """A person asked for something that cannot be done; the message says what to do instead."""


class NotFound(UsageError):  # noqa: N818 - HTTP's word
    """There is no such thing."""


def not_found(kind: Literal["DAG", "hook", "pool", "run"], name: str) -> NotFound:
    """Return the error for a name that nothing of that kind has."""
    return NotFound(f"there is no {kind} '{name}'; `dexaflow {kind.lower()}s list` shows them")


class Conflict(UsageError):  # noqa: N818 - HTTP's word
    """The thing exists, but its present state does not allow this."""


class DagError(DexaflowError):
    """A DAG cannot be registered. ``file`` is relative to the DAG folder; ``line`` is 0 when unknown."""

    def __init__(self, file: str, line: int, cause: str) -> None:
        super().__init__(f"{file}:{line}: {cause}" if line else f"{file}: {cause}")
        self.file = file
        self.line = line
        self.cause = cause


class HookBroken(DexaflowError):  # noqa: N818 - the spec's word
    """A hook gave no decision (R7.1).

    ``str()`` is what the task's author may see (R7.2): the request failed or timed out, nothing else.
    ``cause`` (address, status, exception) is for the server log alone. ``ambiguous`` marks an answer that
    names a field twice: it may be a refusal, so it is held even with ``fail_open`` (R4.2). ``seconds`` is how long
    the question took, without waiting for a connection (R7.1); None where the caller could not tell. ``sent`` tells
    whether anything of the question may have reached an endpoint; False in process.
    """

    def __init__(
        self,
        cause: str,
        *,
        timed_out: bool = False,
        ambiguous: bool = False,
        seconds: float | None = None,
        sent: bool = False,
    ) -> None:
        super().__init__("the request timed out" if timed_out else "the request failed")
        self.cause = cause
        self.timed_out = timed_out
        self.ambiguous = ambiguous
        self.seconds = seconds
        self.sent = sent


class StoreError(DexaflowError):
    """The database cannot be used."""


class TermLost(StoreError):  # noqa: N818 - what happened
    """Another control plane has taken over this database; this one must stop dispatching."""


class ExecutorError(DexaflowError):
    """An attempt could not be started. ``str()`` is fit for the task's author."""


class ServerFailed(DexaflowError, SystemExit):  # noqa: N818 - what happened
    """A server could not start, or could not go on; ``str()`` has a line for each cause, ``causes`` the errors.

    It is a `SystemExit` too. Nobody who runs a server from a program of their own needs to see where in ours it was
    raised: left uncaught, it prints its lines on standard error and ends the program with status 1, as
    ``dexaflow lite`` would.
    """

    def __init__(self, error: DexaflowError) -> None:
        self.causes: tuple[DexaflowError, ...] = error.problems if isinstance(error, ConfigErrors) else (error,)
        lines = [str(cause) for cause in self.causes]
        super().__init__("\n".join(lines))
        self.code = "\n".join(f"dexaflow: {shown(line)}" for line in lines)
