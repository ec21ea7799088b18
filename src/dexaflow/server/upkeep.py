"""What a server does beside the line: takes up what an earlier one left, counts its time, removes what is old."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import structlog

from dexaflow.base.clock import Clock
from dexaflow.base.errors import DexaflowError, TermLost
from dexaflow.base.steps import Step, reached
from dexaflow.executors.ports import Executor
from dexaflow.loading.versions import remove_unused
from dexaflow.observe.troubles import Troubles
from dexaflow.reports.logs import LogFiles
from dexaflow.reports.watch import Watch
from dexaflow.store import leading, retention
from dexaflow.store.bridge import Store
from dexaflow.store.transaction import Tx, iso

__all__ = ["keep_time", "remove_what_is_old", "take_up"]

log = structlog.get_logger()
TICK_SECONDS = 1.0
RETENTION_SECONDS = 600.0  # between two looks for what is old
_PAUSE_SECONDS = 0.05  # between two parts of it: others write too


async def take_up(executor: Executor, watch: Watch, found: leading.Found) -> None:
    """Adopt what an earlier server launched: what lives goes on, what is gone is ended or asked anew (R10.3).

    Ending takes its time, and nobody waits for it here: the watch does it once it runs.
    """
    alive = set(await executor.recover())
    reached(Step.AGENTS_FOUND)
    lost = [launch_id for _, launch_id in found.launching if launch_id not in alive]
    for launch_id in lost:
        watch.never_started(launch_id)
    for _, launch_id in found.running:
        if launch_id not in alive:
            watch.gone(launch_id)
    current = {launch_id for _, launch_id in (*found.launching, *found.running)}
    for launch_id in alive - current:
        watch.kill_launch(launch_id)  # nobody's any more: its attempt went on without it
    log.info("server_recovered", requeued=found.requeued, lost=len(lost), adopted=len(alive & current))


async def keep_time(store: Store, kept: Callable[[], None]) -> None:
    """Keep how long control planes have been up, and notice at the latest by then that another one leads.

    `kept` is called after each write: this control plane still leads, and its database takes writes.
    """
    troubles = Troubles(__name__)
    while True:
        await asyncio.sleep(TICK_SECONDS)
        try:
            await store.do(leading.tick)
            kept()
        except TermLost:
            raise
        except DexaflowError as error:
            troubles.error("tick_failed", cause=str(error))


async def remove_what_is_old(
    store: Store, logs: LogFiles, versions: Path, retention_seconds: float, clock: Clock
) -> None:
    """Remove finished runs with all that belongs to them once they are older than `history.retention`."""
    troubles = Troubles(__name__)
    while True:
        try:
            await _remove_runs(store, logs, _before(clock.now(), retention_seconds))
            await store.do(retention.remove_unused_versions)
            in_use = await store.do(retention.snapshots_in_use)
            await asyncio.to_thread(partial(remove_unused, versions, in_use, now=clock.now().timestamp()))
        except TermLost:
            raise
        except (DexaflowError, OSError) as error:
            troubles.error("retention_failed", cause=str(error))
        await asyncio.sleep(RETENTION_SECONDS)


async def _remove_runs(store: Store, logs: LogFiles, before: str) -> None:
    def old(tx: Tx) -> list[str]:
        return retention.old_runs(tx, before)

    while runs := await store.do(old):
        for run_id in runs:  # first, so that a crash in between leaves no logs that nobody knows of
            await asyncio.to_thread(logs.remove_run, run_id)
            reached(Step.REMOVAL_BEGUN)
        left = True
        while left:
            left = await store.do(partial(_remove, runs, before))
            await asyncio.sleep(_PAUSE_SECONDS)


def _remove(run_ids: list[str], before: str, tx: Tx) -> bool:
    return retention.remove_runs(tx, run_ids, before)


def _before(now: datetime, retention_seconds: float) -> str:
    try:
        return iso(now - timedelta(seconds=retention_seconds))
    except OverflowError:  # longer than the calendar: everything is kept
        return iso(datetime.min.replace(tzinfo=UTC))
