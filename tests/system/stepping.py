"""A real server, with its spawner and agents, in which a signal falls at a step of the line (`dexaflow.base.steps`).

``python -m tests.system.stepping FOLDER lite ...`` is `dexaflow lite ...`. Whoever comes to the step that FOLDER/plan
names sends itself the signal named there, once: ``NAME SIGNAL NTH``. Its wall clock is off by the seconds in
FOLDER/clock.
"""

import os
import signal
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path

from dexaflow.base import steps
from dexaflow.base.clock import SystemClock
from dexaflow.base.steps import Step

__all__ = ["Plan", "run_agents"]

ROOT = Path(__file__).parents[2]


class Plan:
    """What is to happen next, and whether it has; files, since several processes look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plan, self._count, self._hit = folder / "plan", folder / "count", folder / "hit"

    def arm(self, step: Step, number: signal.Signals, nth: int = 1) -> None:
        """Have the process that comes to `step` as the `nth` send itself a signal."""
        self.disarm()
        draft = self.folder / "plan.draft"
        draft.write_text(f"{step.name} {int(number)} {nth}")
        draft.rename(self._plan)

    def disarm(self) -> None:
        """Nothing happens any more."""
        for path in (self._plan, self._count, self._hit):
            path.unlink(missing_ok=True)

    def hit(self) -> int | None:
        """Return the process that it happened to, or None: not yet."""
        try:
            return int(self._hit.read_text())
        except FileNotFoundError:
            return None

    def reached(self, step: Step) -> None:
        """Called by the product at each step."""
        try:
            name, number, nth = self._plan.read_text().split()
        except (FileNotFoundError, ValueError):
            return
        if name != step.name:
            return
        count = os.open(self._count, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(count, b".")
            if os.lseek(count, 0, os.SEEK_CUR) != int(nth):
                return
        finally:
            os.close(count)
        self._plan.unlink(missing_ok=True)
        draft = self.folder / "hit.draft"
        draft.write_text(str(os.getpid()))
        draft.rename(self._hit)
        # To this very thread: the signal takes effect here, and not a few steps further on.
        signal.pthread_kill(threading.get_ident(), int(number))


def run_agents(folder: str, entry: str) -> None:
    """Be the program that is `entry`, watched."""
    import runpy

    steps.watch(Plan(Path(folder)).reached)
    sys.argv[0] = entry
    runpy.run_path(entry, run_name="__main__")


def _program(folder: Path, entry: str) -> str:
    """Write the program that the server runs in place of its spawner's; the spawner's environment says nothing."""
    program = folder / "watched_agents.py"
    program.write_text(
        f"import sys\nsys.path[:0] = {[str(ROOT / 'src'), str(ROOT)]!r}\n"
        f"from tests.system.stepping import run_agents\nrun_agents({str(folder)!r}, {entry!r})\n"
    )
    return str(program)


class _SteppedClock(SystemClock):
    folder = Path()

    def now(self) -> datetime:
        try:
            return super().now() + timedelta(seconds=float((self.folder / "clock").read_text()))
        except FileNotFoundError:
            return super().now()


def _main() -> None:
    from dexaflow.cli.main import main
    from dexaflow.executors import spawning
    from dexaflow.server import lite

    folder = _SteppedClock.folder = Path(sys.argv.pop(1))
    steps.watch(Plan(folder).reached)
    setattr(lite, "SystemClock", _SteppedClock)  # noqa: B010 - where the clock is passed in; else mypy must be told
    spawning._ENTRY = _program(folder, spawning._ENTRY)
    main()


if __name__ == "__main__":
    _main()
