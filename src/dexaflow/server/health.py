"""Whether the loops of this process do their work, for `/health`."""

from dexaflow.api.ports import Health
from dexaflow.base.clock import Clock
from dexaflow.loading.registry import DagFolders
from dexaflow.scheduling.loop import Scheduler

__all__ = ["READY_AFTER_SECONDS", "HealthOf"]

READY_AFTER_SECONDS = 15.0  # a scheduler that has not made a pass for so long is not ready; it makes one every 5


class HealthOf:
    """Reads how the scheduler and the DAG folders are; a pass is a write, so it speaks for the database too."""

    def __init__(self, scheduler: Scheduler, clock: Clock, folders: DagFolders) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._folders = folders

    def read(self) -> Health:
        """Return how this process is."""
        passed = self._scheduler.passed_at
        scheduling = passed is not None and self._clock.monotonic() - passed[0] < READY_AFTER_SECONDS
        loaded = self._folders.ready.is_set()
        why = ""
        if not scheduling:
            why = "the scheduler makes no passes; the server's log says why"
        elif not loaded:
            why = "DAG files are being loaded"
        return Health(
            live=True, ready=scheduling and loaded, database=scheduling, scheduler=scheduling,
            scheduler_heartbeat=None if passed is None else passed[1], loader=loaded, why=why,
        )  # fmt: skip
