"""Whether the loops of this process do their work, for `/health`."""

from dexaflow.api.ports import Health
from dexaflow.base.clock import Clock
from dexaflow.loading.registry import DagFolders
from dexaflow.scheduling.loop import Scheduler

__all__ = ["READY_AFTER_SECONDS", "HealthOf"]

READY_AFTER_SECONDS = 15.0  # without a pass, which is made every 5, or a write, which is made every second


class HealthOf:
    """Reads how the scheduler, the database and the DAG folders are.

    A pass of the scheduler does not speak for the database: one in which nothing is due writes nothing.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock, folders: DagFolders) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._folders = folders
        self._written_at = clock.monotonic()  # the lead was written a moment ago

    def written(self) -> None:
        """The database has taken a write."""
        self._written_at = self._clock.monotonic()

    def read(self) -> Health:
        """Return how this process is."""
        passed, looked = self._scheduler.passed_at, self._folders.looked_at
        scheduling = passed is not None and self._lately(passed[0])
        writing = self._lately(self._written_at)
        loaded = self._folders.ready.is_set()
        why = ""
        if not writing:
            why = "the database takes no writes; the server's log says why"
        elif not scheduling:
            why = "the scheduler makes no passes; the server's log says why"
        elif not loaded:
            why = "DAG files are being loaded"
        return Health(
            live=True, ready=writing and scheduling and loaded, database=writing, scheduler=scheduling,
            scheduler_heartbeat=None if passed is None else passed[1],
            loader=loaded and looked is not None and self._lately(looked[0]),
            loader_heartbeat=None if looked is None else looked[1], why=why,
        )  # fmt: skip

    def _lately(self, moment: float) -> bool:
        return self._clock.monotonic() - moment < READY_AFTER_SECONDS
