"""What people want is done: tries as the author said them, pauses, and what was told to stop."""

from typing import TYPE_CHECKING

from simulation.check import EPSILON, Check
from simulation.reading import Row, Seen
from simulation.record import shown_try

if TYPE_CHECKING:
    from simulation.checks import Checks

__all__ = ["PeopleAreHeard", "TriesAreTheAuthors"]


class TriesAreTheAuthors(Check):
    """A try that failed is followed by another as often as its author said, not before the delay they chose, and not
    otherwise."""

    def __init__(self, all_: "Checks") -> None:
        super().__init__(all_)
        self._present: dict[tuple[str, str], Row] = {}
        # The first try of those that the author's number is about: the earliest and the latest that it can be.
        self._since: dict[tuple[str, str], tuple[int, int]] = {}
        self._failed: dict[tuple[str, str], tuple[float, int]] = {}  # when; and how often anything had been cleared

    def seen(self, before: Seen, after: Seen) -> None:
        for attempt_id, row in after.rows.items():
            was = before.rows.get(attempt_id)
            if row is was:
                continue
            task = row.run_id, row.task_id
            earlier, self._present[task] = self._present.get(task), row
            if was is not None:
                if was.state != row.state:
                    self._moved(was, row)
            elif earlier is None or earlier.state != "up_for_retry":  # it is new, or somebody cleared it
                self._since[task] = row.try_number, row.try_number
            elif self._cleared > self._failed[task][1]:  # somebody may have cleared it
                self._since[task] = self._since[task][0], row.try_number
            else:
                waited = self.all.record.now() - self._failed[task][0]
                if waited < self.all.task(row.tried).retry_delay - EPSILON:
                    self.fail(f"{shown_try(row.tried)} begins {waited:.1f} s later")

    @property
    def _cleared(self) -> int:
        return self.all.record.counts.get("clear", 0)

    def _moved(self, was: Row, row: Row) -> None:
        task = row.run_id, row.task_id
        least, most = (first + self.all.task(row.tried).retries - row.try_number for first in self._since[task])
        if row.state == "up_for_retry":
            self._failed[task] = self.all.record.now(), self._cleared
            if most <= 0:
                self.fail(f"{shown_try(row.tried)} is to be tried again, and was the last")
        elif row.state == "failed" and least > 0:
            by_itself = was.state in ("launching", "running") and row.stop is None
            if by_itself or row.reason.startswith("dispatch_failed"):
                self.fail(f"{shown_try(row.tried)} failed for good, and has {least} tries left: {row.reason}")


class PeopleAreHeard(Check):
    """Of a paused DAG nothing comes to have slots that has none; what was told to stop does not succeed, and is not
    retried, whatever its agent says."""

    def seen(self, before: Seen, after: Seen) -> None:
        for attempt_id, row in after.rows.items():
            was = before.rows.get(attempt_id)
            if row is was or was is None or row.state == was.state:
                continue
            begins = (was.state, row.state) in (("scheduled", "queued"), ("held", "launching"))
            if begins and row.dag_id in before.paused:
                self.fail(f"{shown_try(row.tried)} is {row.state}, and {row.dag_id} is paused")
            if was.stop is not None and row.state in ("success", "up_for_retry"):
                self.fail(f"{shown_try(row.tried)} is {row.state}, and was told to stop: {was.stop}")
