"""Which process is which, beyond doubt: a number is recycled, a number with its time of birth is not."""

import contextlib
import ctypes
import functools
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "LAUNCH_VARIABLE",
    "Seen",
    "adopt_orphans",
    "all_processes",
    "birth",
    "children",
    "die_with_parent",
    "forbid_inspection",
    "launched_by",
    "name_process",
    "send_signal",
    "signal_name",
]

LAUNCH_VARIABLE = "DEXAFLOW_LAUNCH_ID"  # in the environment of everything that a launch runs

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 4, 15, 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl if _LINUX else None


def _control(option: int, value: int) -> bool:
    zero = ctypes.c_ulong(0)
    return _prctl is not None and _prctl(option, ctypes.c_ulong(value), zero, zero, zero) == 0


def die_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent does. False when the parent is dead already.

    To be called in the child, before `exec`, which keeps it. Elsewhere than on Linux only the check is made.
    """
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent  # it may have died before the kernel was asked


def adopt_orphans() -> bool:
    """Become the parent of descendants whose parent dies, so that none is lost sight of. False: not possible here."""
    return _control(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_inspection() -> None:
    """Keep processes of the same user from reading this one's memory and environment (the token is in there)."""
    _control(_PR_SET_DUMPABLE, 0)


def name_process(name: str) -> None:
    """Set the name that `ps` and `top` show; 15 bytes."""
    if _prctl is not None:
        _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """A process as the kernel shows it. `born` is in clock ticks since boot."""

    pid: int
    state: str  # one letter; Z and X are dead
    parent: int
    group: int
    session: int
    born: int

    @property
    def dead(self) -> bool:
        """It runs no more; at most its parent has not noticed."""
        return self.state in "ZXx"

    @property
    def birth(self) -> str:
        """As the function of this name."""
        return f"{_boot()}:{self.born}"


def _look(pid: int) -> Seen | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The name, in parentheses, may hold anything, parentheses too.
    fields = text[text.rfind(b")") + 2 :].split()
    return Seen(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


@functools.cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def birth(pid: int) -> str | None:
    """Return what tells a living process from every other that ever had its number; None: it is dead or a zombie."""
    if _LINUX:
        seen = _look(pid)
        return None if seen is None or seen.dead else seen.birth
    import subprocess  # where there is no /proc; too slow to load for everybody

    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = shown.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()


def ticks(born: str) -> int | None:
    """Return the clock ticks in what `birth` returned, if it was of this boot."""
    boot, _, number = born.rpartition(":")
    return int(number) if number.isdigit() and boot == _boot() else None


def all_processes() -> Iterator[Seen]:
    """Yield every process there is, as far as it can be seen; nothing where there is no /proc."""
    if not _LINUX:
        return
    for name in os.listdir("/proc"):
        if name.isdigit() and (seen := _look(int(name))) is not None:
            yield seen


def children(parent: int) -> list[int]:
    """Return the processes whose parent is `parent`, zombies left out."""
    return [seen.pid for seen in all_processes() if seen.parent == parent and not seen.dead]


def launched_by(launch_id: str, user_pid: int | None, user_born: str | None) -> list[Seen]:
    """Return what is alive of a launch's user processes, however they are related by now.

    That is whoever carries the launch id in its environment, and whoever is in the group or session that the user's
    process led, if those numbers cannot have been given to somebody else since.
    """
    mark = f"{LAUNCH_VARIABLE}={launch_id}".encode()
    since = ticks(user_born) if user_born is not None else None
    found: list[Seen] = []
    for seen in all_processes():
        if seen.dead or seen.pid == os.getpid():
            continue
        launch = _launch_in_environment(seen.pid)
        if launch == mark:
            found.append(seen)
        elif launch is None and since is not None and user_pid in (seen.group, seen.session) and seen.born >= since:
            leader = _look(user_pid)
            if leader is None or leader.born == since:
                found.append(seen)
    return found


def _launch_in_environment(pid: int) -> bytes | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return None
    prefix = LAUNCH_VARIABLE.encode() + b"="
    return next((entry for entry in entries if entry.startswith(prefix)), None)


def signal_name(number: int) -> str:
    """Return a signal's name, such as ``SIGKILL``; of one without a name its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def send_signal(pid: int, born: str | None, number: int) -> bool:
    """Send a signal to that very process and no other. False: it is gone."""
    if born is None:
        return False
    if not hasattr(os, "pidfd_open"):
        if birth(pid) != born:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True
    try:
        handle = os.pidfd_open(pid)  # from here on the number cannot change its meaning
    except OSError:
        return False
    try:
        if birth(pid) != born:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
