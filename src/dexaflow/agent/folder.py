"""The files of agents: one folder, all of it named by launch id.

==========================  ==========================================================================================
``<launch_id>.json``        the state file: which process is the agent, which the user's. Made before anything else,
                            removed after everything else: a file of a launch without it is garbage
``<launch_id>.log``         the part of the log that is kept here until the end of the attempt is heard
``<launch_id>.work/``       the working directory of the user's process
``<launch_id>.<pid>.new``   a state file being written
``errors.log``              what agents and spawners say when something is wrong with themselves
==========================  ==========================================================================================
"""

import contextlib
import json
import os
import re
import shutil
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from dexaflow.base.steps import Step, reached

__all__ = ["AgentState", "AlreadyClaimed", "Folder", "is_launch_id"]

_LAUNCH_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


def is_launch_id(text: str) -> bool:
    """Whether `text` may name files and processes: letters, digits and dashes."""
    return _LAUNCH_ID.fullmatch(text) is not None


class AlreadyClaimed(Exception):  # noqa: N818 - not an error: somebody was faster
    """Another agent has this launch."""


@dataclass(frozen=True, slots=True)
class AgentState:
    """Who runs a launch. `born` is `processes.birth`; the user's process is None until it runs."""

    launch_id: str
    attempt_id: str
    pid: int
    born: str
    user_pid: int | None = None
    user_born: str | None = None

    @property
    def well_formed(self) -> bool:
        """Whether each value is of its type: read from a file, it may be anything."""
        texts = (self.attempt_id, self.born, self.user_born or "")
        numbers = (self.pid, self.user_pid or 0)
        return all(isinstance(text, str) for text in texts) and all(type(n) is int and n >= 0 for n in numbers)


class Folder:
    """Where agents keep their files. Files are 0600, folders 0700, whatever the umask (R10.4)."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    def make(self) -> None:
        """Make the folder if it is not there."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    def _name(self, launch_id: str, ending: str) -> str:
        if not is_launch_id(launch_id):
            raise ValueError(f"not a launch id: {launch_id!r}")
        return f"{self.path}/{launch_id}.{ending}"

    def log_file(self, launch_id: str) -> str:
        """Where the log of a launch is kept until it is heard."""
        return self._name(launch_id, "log")

    def work_folder(self, launch_id: str) -> str:
        """The working directory of the user's process."""
        return self._name(launch_id, "work")

    def claim(self, state: AgentState) -> None:
        """Write the state file of a launch that nobody has yet. Raises `AlreadyClaimed`.

        It appears whole or not at all, and for one agent only, also when a launch was handed to two.
        """
        draft = self._draft(state)
        try:
            reached(Step.STATE_DRAFTED)
            os.link(draft, self._name(state.launch_id, "json"))
        except FileExistsError:
            raise AlreadyClaimed(state.launch_id) from None
        finally:
            os.unlink(draft)

    def update(self, state: AgentState) -> None:
        """Write the state file anew."""
        os.rename(self._draft(state), self._name(state.launch_id, "json"))

    def _draft(self, state: AgentState) -> str:
        path = self._name(state.launch_id, f"{state.pid}.new")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(json.dumps(asdict(state)).encode())
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        return path

    def read(self, launch_id: str) -> AgentState | None:
        """Return who runs a launch, or None: it has not begun, or is over."""
        path = self._name(launch_id, "json")
        try:
            with open(path, "rb") as file:
                state = AgentState(**json.loads(file.read()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, RecursionError):
            state = None
        if state is None or state.launch_id != launch_id or not state.well_formed:
            return AgentState(launch_id, "", 0, "")  # damaged: an agent that is certainly not alive
        return state

    def remove(self, launch_id: str) -> None:
        """Remove all files of a launch that is over, its state file last."""
        _unlink(self.log_file(launch_id))
        self.remove_work(launch_id)
        reached(Step.FILES_GOING)
        _unlink(self._name(launch_id, "json"))

    def remove_drafts(self, launch_id: str) -> None:
        """Remove the state files that agents of a launch began to write and were killed in; none of them may live."""
        for name in self._names():
            if name.startswith(f"{launch_id}.") and name.endswith(".new"):
                _unlink(f"{self.path}/{name}")

    def remove_work(self, launch_id: str) -> None:
        """Remove the working directory with all that the user left in it."""
        path = self.work_folder(launch_id)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            shutil.rmtree(path, onerror=_open_up_and_retry)

    def launches(self) -> list[str]:
        """Return the launches that have a state file. What is no file, or has another name, is nobody's."""
        found = [name[: -len(".json")] for name in self._names() if name.endswith(".json")]
        return [launch_id for launch_id in found if is_launch_id(launch_id) and self._is_file(launch_id)]

    def _is_file(self, launch_id: str) -> bool:
        try:
            return stat.S_ISREG(os.lstat(self._name(launch_id, "json")).st_mode)
        except FileNotFoundError:
            return False

    def leavings(self) -> list[str]:
        """Remove state files that were never finished, and return the launches that have files but no state file."""
        before = self._names()
        owned = set(self.launches())  # read later: a file seen before has had its state file since before that
        for name in before:
            if name.endswith(".new") and not os.path.exists(f"/proc/{name.split('.')[-2]}"):
                _unlink(f"{self.path}/{name}")
        found = {name.split(".")[0] for name in before if name.endswith((".log", ".work"))} - owned - {"errors"}
        return sorted(name for name in found if is_launch_id(name))

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []


def _unlink(path: str) -> None:
    """Remove a file if it is one. Tasks can write into this folder: what they put into its place must stop nobody."""
    try:
        os.unlink(path)
    except (FileNotFoundError, IsADirectoryError):
        pass
    except PermissionError:
        if not os.path.isdir(path):  # what macOS says of a folder
            raise


def _open_up_and_retry(function: object, path: str, problem: object) -> None:
    """Users may have left folders that they themselves forbade to write in; what then still resists, stays."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, onerror=_open_up_and_retry)
        else:
            os.unlink(path)
