"""One attempt from its token to its last report: what a forked agent does."""

import base64
import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dexaflow.agent.folder import AgentState, AlreadyClaimed, Folder
from dexaflow.agent.link import Link, NotAcceptable, TurnedAway, address_in_file
from dexaflow.agent.order import Order
from dexaflow.agent.outcome import Outcome, not_started, outcome_of
from dexaflow.agent.processes import adopt_orphans, birth, forbid_inspection, name_process
from dexaflow.agent.reporter import LOOK_SECONDS, Reporter, ship
from dexaflow.agent.spool import Spool
from dexaflow.agent.user_process import Ended, Stop, UserProcess, start
from dexaflow.agent.work import Work, command
from dexaflow.base.errors import DexaflowError
from dexaflow.base.steps import Step, reached

__all__ = ["HEARD", "NO_FILES", "TURNED_AWAY", "run"]

HEARD = 0
TURNED_AWAY = 3
NO_FILES = 4
_MAX_TOKEN_BYTES = 8192
_MAX_TAIL_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class _Started:
    """What the server answered to `started`; `work` is not understood yet."""

    work: Mapping[str, Any]
    heartbeat_seconds: float

    @classmethod
    def from_json(cls, said: Any) -> "_Started":
        seconds, work = float(said["heartbeat_seconds"]), said["work"]
        if not isinstance(work, dict) or not math.isfinite(seconds) or seconds <= 0:
            raise ValueError("not an answer to started")
        return cls(work, min(max(seconds, 0.05), 3600.0))


def run(order: Order, token_fd: int) -> int:
    """Run one launch in this process, which is its own session's leader and has one thread. Returns the exit status.

    It comes back when the attempt's end was heard (`HEARD`), when the launch turned out not to count
    (`TURNED_AWAY`), or when it could not be claimed (`NO_FILES`); in all cases nothing of it is left behind.
    """
    name_process("dexaflow-agent")
    forbid_inspection()
    adopts = adopt_orphans()
    token = _read_all(token_fd)
    reached(Step.AGENT_BEGUN)
    folder = Folder(order.folder)
    pid = os.getpid()
    state = AgentState(order.launch_id, order.attempt_id, pid, birth(pid) or "")
    try:
        folder.claim(state)
    except AlreadyClaimed:
        return TURNED_AWAY
    except OSError as problem:
        print(f"dexaflow-agent: {order.folder}: {problem.strerror}", file=sys.stderr)
        return NO_FILES
    reached(Step.STATE_CLAIMED)
    link = Link(address_in_file(order.server_file) if order.server_file else lambda: order.url, token)
    try:
        status = _attempt(order, folder, state, link, adopts=adopts)
    except TurnedAway:
        status = TURNED_AWAY
    link.close()
    reached(Step.REPORT_HEARD)
    folder.remove(order.launch_id)  # not when something of ours failed: what is left then says so
    return status


def _read_all(token_fd: int) -> str:
    with open(token_fd, "rb") as pipe:
        return pipe.read(_MAX_TOKEN_BYTES).decode("ascii")


def _attempt(order: Order, folder: Folder, state: AgentState, link: Link, *, adopts: bool) -> int:
    me = {"launch_id": order.launch_id, "pid": state.pid, "host": os.uname().nodename}
    try:
        started = link.call("/agent/v1/started", json.dumps(me).encode(), _Started.from_json)
    except NotAcceptable as problem:
        raise TurnedAway(str(problem)) from None
    reached(Step.START_ACCEPTED)
    spool = Spool(folder.log_file(order.launch_id), order.max_log_bytes)
    try:
        work = Work.from_json(started.work)
        place = folder.work_folder(order.launch_id)
        os.makedirs(place, 0o700, exist_ok=True)
        signals = _Signals()  # from here on a request to end is one to end the user's process in order
        user = start(command(work, order.launch_id), place, spool, adopts=adopts)
    except (OSError, ValueError, KeyError, TypeError, DexaflowError) as problem:
        outcome, heard = not_started(problem), 0
    else:
        reached(Step.USER_BEGUN)
        with contextlib.suppress(OSError):  # a full disk: its processes can still be found by their environment
            folder.update(replace(state, user_pid=user.pid, user_born=user.born))
        reached(Step.USER_NOTED)
        ended, heard = _watch(user, work.execution_timeout, signals, link, spool, started.heartbeat_seconds)
        reached(Step.USER_ENDED)
        if ended.stop is not None and ended.stop.silent:
            raise TurnedAway(ended.stop.reason)
        outcome = outcome_of(ended, work)
    folder.remove_work(order.launch_id)
    _finish(link, spool, order.launch_id, outcome, heard)
    spool.close()
    return HEARD


class _Signals:
    """What wakes the agent's main thread: a child's death, a request to end, a nudge from the reporter."""

    def __init__(self) -> None:
        self.stop: Stop | None = None
        self.readable, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._on_terminate)

    def _on_terminate(self, number: int, frame: object) -> None:
        self.stop = Stop("stopped: its agent was told to end")

    def nudge(self) -> None:
        """Wake the main thread, from another one."""
        with contextlib.suppress(BlockingIOError):  # full: it will wake up anyway
            os.write(self._wake, b"!")


def _watch(
    user: UserProcess, timeout: float | None, signals: _Signals, link: Link, spool: Spool, heartbeat_seconds: float
) -> tuple[Ended, int]:
    """See the user's process to its end; returns how it ended, and how much of its log is heard.

    The thread that reports meanwhile is started late: a tiny attempt has none.
    """
    began = time.monotonic()
    reporter: Reporter | None = None

    def asked_to_stop() -> Stop | None:
        return (reporter.stop if reporter is not None else None) or signals.stop

    def first_pause() -> None:
        nonlocal reporter
        reporter = Reporter(link, spool, heartbeat_seconds, signals.nudge, began)
        reporter.start()

    ended = user.watch(signals.readable, timeout, asked_to_stop, first_pause, min(LOOK_SECONDS, heartbeat_seconds))
    if reporter is None:
        return ended, 0
    reporter.finish()
    return ended, reporter.heard


def _finish(link: Link, spool: Spool, launch_id: str, outcome: Outcome, heard: int) -> None:
    """Report the end, the rest of the log with it, until it is heard."""

    def understand(said: Any) -> None:
        if said["finished"] != launch_id:
            raise ValueError("not an answer to finished")

    heard = ship(link, spool, heard, _MAX_TAIL_BYTES, None)
    tail = spool.read(heard, _MAX_TAIL_BYTES)
    tail += spool.read(heard + len(tail), _MAX_TAIL_BYTES - len(tail))
    said = {
        "state": "success" if outcome.succeeded else "failed",
        "exit_code": outcome.exit_code,
        "reason": outcome.reason,
        "timed_out": outcome.timed_out,
        "result": outcome.result,
        "log_offset": heard,
        "log_tail": base64.b64encode(tail).decode(),
    }
    reached(Step.REPORT_READY)
    try:
        link.call("/agent/v1/finished", json.dumps(said).encode(), understand)
    except NotAcceptable as problem:
        bare = {
            **said,
            "state": "failed",
            "reason": f"the server did not take the agent's report ({problem})",
            "result": None,
            "log_tail": "",
        }
        with contextlib.suppress(NotAcceptable):
            link.call("/agent/v1/finished", json.dumps(bare).encode(), understand)
