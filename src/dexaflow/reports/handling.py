"""What agents say, heard: each report is one guarded write that names its launch (R1.7)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from dexaflow.base.errors import StoreError
from dexaflow.base.steps import Step, reached
from dexaflow.base.text import clean_reason
from dexaflow.observe.logs import attempt_fields
from dexaflow.reports.logs import LogFiles
from dexaflow.reports.watch import Watch
from dexaflow.store import reporting
from dexaflow.store.bridge import Store
from dexaflow.store.tries import RetryRule

__all__ = ["AgentReports"]

log = structlog.get_logger()


class AgentReports:
    """Answers agents. Which attempt and launch speaks is what a verified token says."""

    def __init__(
        self,
        store: Store,
        logs: LogFiles,
        watch: Watch,
        *,
        versions: Path,
        retry: RetryRule,
        wake_scheduler: Callable[[], None],
    ) -> None:
        self._store = store
        self._logs = logs
        self._watch = watch
        self._versions = versions
        self._retry = retry
        self._wake_scheduler = wake_scheduler

    async def started(self, attempt_id: str, launch_id: str, *, pid: int, host: str) -> dict[str, Any] | None:
        """Accept a start and return the work, or None: this launch does not count; it must run nothing (R1.7)."""
        work = await self._store.do(lambda tx: reporting.started(tx, attempt_id, launch_id, host, pid))
        if work is None:
            ids = await self._store.do(lambda tx: reporting.ids_of(tx, attempt_id))
            log.info("agent_turned_away", launch_id=launch_id, **ids)
            return None
        reached(Step.START_COMMITTED)
        self._watch.heard(launch_id)
        log.info("attempt_started", launch_id=launch_id, **attempt_fields(work))
        return self._document(work)

    def _document(self, work: reporting.Work) -> dict[str, Any]:
        ids = attempt_fields(work)
        return {
            **ids,
            "operator": work.task.operator,
            "bash_command": work.task.bash_command,
            "env": dict(work.task.env),
            "env_from": dict(work.task.env_from),
            "execution_timeout": work.task.execution_timeout,
            "context": {
                **ids,
                "logical_date": work.logical_date,
                "data_interval_start": work.data_interval_start,
                "data_interval_end": work.data_interval_end,
                "conf": work.conf,
            },
            "root": str(self._versions / work.snapshot),
            "file": work.file,
            "inputs": work.results,
        }

    async def heartbeat(self, attempt_id: str, launch_id: str) -> reporting.Beat | None:
        """Note that an agent lives, and tell whether it is to stop; None: its launch does not count."""
        beat = await self._store.do(lambda tx: reporting.heartbeat(tx, attempt_id, launch_id))
        reached(Step.HEARTBEAT_COMMITTED)
        if beat is not None:
            self._watch.heard(launch_id)
        return beat

    async def append_log(self, attempt_id: str, launch_id: str, offset: int, data: bytes) -> int | None:
        """Keep a piece of the log and return how much there is; None: the launch does not count."""
        size = await self._store.do(
            lambda tx: reporting.append_log(tx, attempt_id, launch_id, lambda place: self._keep(place, offset, data))
        )
        if size is not None:
            self._watch.heard(launch_id)
        return size

    def _keep(self, place: reporting.LogPlace, offset: int, data: bytes) -> int:
        try:
            size = self._logs.append(place.run_id, place.task_id, place.try_number, offset, data)
        except OSError as error:  # the agent says it again
            raise StoreError(f"the log cannot be kept: {error.strerror}; check that the disk is not full") from error
        reached(Step.LOG_KEPT)
        return size

    async def finished(
        self,
        attempt_id: str,
        launch_id: str,
        *,
        succeeded: bool,
        exit_code: int | None,
        reason: str,
        result: bytes | None,
        log_offset: int,
        log_tail: bytes,
    ) -> bool:
        """End the attempt as its agent says; False: the launch does not count. Said again it changes nothing."""

        def keep(place: reporting.LogPlace) -> int:
            return self._keep(place, log_offset, log_tail)

        reached(Step.REPORT_IN)
        ended = await self._store.do(
            lambda tx: reporting.attempt_ended(
                tx, attempt_id, launch_id, succeeded=succeeded, reason=clean_reason(reason), exit_code=exit_code,
                result=result, retry=self._retry,
                keep_log=keep if log_tail else None,
            )
        )  # fmt: skip
        reached(Step.REPORT_COMMITTED)
        if ended is None:
            return False
        self._watch.ended(launch_id)
        self._wake_scheduler()
        log.info(
            "attempt_ended", launch_id=launch_id, state=str(ended.state), **attempt_fields(ended),
            reason=clean_reason(reason),
        )  # fmt: skip
        return True
