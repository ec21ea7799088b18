"""What the server gave to do, understood once, and what is run to do it."""

import json
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dexaflow.agent.processes import LAUNCH_VARIABLE
from dexaflow.authoring.running import bash_environment

__all__ = ["Command", "Work", "command"]

_BASH = shutil.which("bash") or "/bin/bash"  # found once, by the PATH of the agent: the author's env may set another
_ENTRY = str(Path(__file__).with_name("__main__.py"))


@dataclass(frozen=True, slots=True)
class Work:
    """One try of one task, as the answer to `started` has it (see the package's docstring)."""

    operator: str
    bash_command: str
    env: Mapping[str, str]
    env_from: Mapping[str, str]
    execution_timeout: float | None  # seconds
    context: Mapping[str, Any]
    dag_id: str
    task_id: str
    root: str
    file: str
    inputs: Mapping[str, Any]

    @classmethod
    def from_json(cls, said: Any) -> "Work":
        """Return the work. Raises `ValueError`, `KeyError` or `TypeError` for what is not as agreed."""
        timeout = said["execution_timeout"]
        work = cls(
            operator=said["operator"],
            bash_command=said.get("bash_command") or "",
            env=said.get("env") or {},
            env_from=said.get("env_from") or {},
            execution_timeout=None if timeout is None else float(timeout),
            context=said["context"],
            dag_id=said["dag_id"],
            task_id=said["task_id"],
            root=said.get("root") or "",
            file=said.get("file") or "",
            inputs=said.get("inputs") or {},
        )
        if work.operator not in ("bash", "python"):
            raise ValueError(f"this agent knows no operator {work.operator!r}")
        if work.execution_timeout is not None and not (
            math.isfinite(work.execution_timeout) and work.execution_timeout > 0
        ):
            raise ValueError(f"execution_timeout {timeout!r} is not a number of seconds above 0")
        texts = (work.bash_command, work.dag_id, work.task_id, work.root, work.file, *work.env, *work.env.values())
        if not all(isinstance(text, str) for text in texts) or not isinstance(work.context, dict):
            raise TypeError("the work is not as agreed")
        return work


@dataclass(frozen=True, slots=True)
class Command:
    """What to execute. `job_fd` and `result_fd` are what of ours the process may keep; -1: nothing."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    job_fd: int = -1
    result_fd: int = -1
    result_from: int = -1  # our end of `result_fd`


def command(work: Work, launch_id: str) -> Command:
    """Return what to execute for `work`, in an environment made for it: ours is the base, made by the executor.

    The environment holds the author's variables and the context (``DEXAFLOW_DAG_ID`` and so on, the folder of the
    DAG's sources as ``DEXAFLOW_DAG_FOLDER``), which wins: whoever ends this launch finds its processes by it.

    Raises:
        DexaflowError: the environment cannot be made of what the upstream tasks returned.
    """
    env = {**os.environ, **bash_environment(work.env, work.env_from, work.inputs, work.context)}
    if work.root:
        env["DEXAFLOW_DAG_FOLDER"] = work.root
    env[LAUNCH_VARIABLE] = launch_id
    if work.operator == "bash":
        return Command((_BASH, "-c", work.bash_command), env)
    job_fd = _file_with(
        json.dumps(
            {
                "file": work.file,
                "root": work.root,
                "dag_id": work.dag_id,
                "task_id": work.task_id,
                "inputs": work.inputs,
                "context": work.context,
            }
        ).encode()
    )
    result_from, result_fd = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    arguments = (sys.executable, "-I", "-X", "utf8", _ENTRY, "runner", str(job_fd), str(result_fd))
    return Command(arguments, env, job_fd, result_fd, result_from)


def _file_with(data: bytes) -> int:
    """Return a descriptor of a nameless file that holds `data`, at its beginning."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("dexaflow-job")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
