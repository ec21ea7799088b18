"""Ending what an agent that died has left behind: its user's processes first, then its files."""

import signal
import threading

from dexaflow.agent.folder import Folder
from dexaflow.agent.processes import launched_by, send_signal

__all__ = ["clear_away"]

_LONGEST_PAUSE_SECONDS = 0.2


def clear_away(folder: Folder, launch_id: str, given_up: threading.Event) -> bool:
    """Kill what is alive of a launch whose agent is dead, and remove its files. Blocks until it is dead: True.

    It knows its processes by the launch id in their environment, and by the group and session that the agent wrote
    down. A number that was given to another process since is left alone. When it is given up before all is dead,
    False, the files stay, for the next control plane to find.
    """
    state = folder.read(launch_id)
    user_pid, user_born = (None, None) if state is None else (state.user_pid, state.user_born)
    pause = 0.002
    quiet = 0
    # Looked at until nothing is left, and once more: what is dying may have forked a moment ago, and what is just
    # executing a program has no environment to be seen.
    while quiet < 2:
        alive = launched_by(launch_id, user_pid, user_born)
        for seen in alive:
            send_signal(seen.pid, seen.birth, signal.SIGKILL)
        quiet = 0 if alive else quiet + 1
        if quiet < 2 and given_up.wait(pause):
            return False
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS) if alive else pause
    folder.remove_drafts(launch_id)
    folder.remove(launch_id)
    return True
