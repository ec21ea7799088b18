"""The end of the process, in its own time whatever hooks have left behind.

After a program's last line Python waits for every thread that is no daemon, and runs all that `atexit` was given. Both
may be a hook's, or of a library that it imported, and need not end.
"""

import os
import threading
import time
from typing import Final

import structlog

__all__ = ["EXIT_SECONDS", "leave_in_time"]

EXIT_SECONDS: Final = 5.0  # after the program's last line; for threads and exit handlers that have something to finish

_log = structlog.get_logger("dexaflow.server")


def leave_in_time(status: int, *, seconds: float = EXIT_SECONDS) -> None:
    """See to it that the process ends at most `seconds` after its last line, with `status` if it must be made to.

    Nothing happens before that: a program may go on after the server has stopped.
    """
    leaving = threading.Event()
    # The moment when Python begins to wait for threads. `atexit` comes after that, and a daemon that joins the main
    # thread hears of it after the pools of `concurrent.futures` have been waited for: no public way is early enough.
    threading._register_atexit(leaving.set)  # type: ignore[attr-defined]
    threading.Thread(target=_watch, args=(leaving, status, seconds), name="dexaflow-leaving", daemon=True).start()


def _watch(leaving: threading.Event, status: int, seconds: float) -> None:
    leaving.wait()
    time.sleep(seconds)
    main = threading.main_thread()
    left = sorted(thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main)
    said = threading.Thread(target=_say, args=(left, seconds), daemon=True)
    try:
        said.start()
        said.join(1.0)  # whoever holds the lock of standard error has no say in this either
    except RuntimeError:
        pass  # Python starts no more threads by now
    os._exit(status)


def _say(left: list[str], seconds: float) -> None:
    _log.warning("exit_held_up", threads=left, after_seconds=seconds)
