"""What tokens open, and for how long."""

from typing import TYPE_CHECKING

from simulation.check import Check
from simulation.reading import Seen
from simulation.record import Spoken, shown_try

if TYPE_CHECKING:
    from simulation.checks import Checks

__all__ = ["TokensOpenTheirOwnDoor"]

LIFETIME = 600.0
_LAG = 70.0  # of what was counted as up, a control plane that dies may not have kept: longer than any stall


class TokensOpenTheirOwnDoor(Check):
    """A token opens the door of its own attempt and launch, for the ten minutes after it was given out in which a
    control plane was up, and for no longer than its launch counts."""

    def __init__(self, all_: "Checks") -> None:
        super().__init__(all_)
        self._said: set[tuple[str, str]] = (
            set()
        )  # what, and of which launch: what agents have said with their own tokens

    def spoke(self, spoken: Spoken) -> None:
        if spoken.status is None or spoken.status == 503:
            return  # nobody was there, or it could not be kept
        every, issued = self.all, spoken.issued
        every.record.count(f"doors: {spoken.status}")
        what = f"a token at `{spoken.door}` of {spoken.launch_id[-6:]} got {spoken.status}"
        if issued is None:
            if spoken.status != 401:
                self.fail(f"{what}, and nobody had given it out")
            return
        age = every.up_seconds - issued.up_at
        if spoken.status == 401:
            if age <= LIFETIME - 1.0:
                self.fail(f"{what} when it was {age:.1f} s old")
            return
        if age >= LIFETIME + 1.0 + _LAG * (every.planes - issued.planes):
            self.fail(f"{what} when it was {age:.1f} s old")
        if spoken.launch_id != issued.launch_id:
            if spoken.status != 403:
                self.fail(f"{what}, and was given out for {issued.launch_id[-6:]}")
        elif spoken.status == 200 and not spoken.counted:
            if spoken.door != "finished" or not every.was_last(issued.launch_id):  # said again it changes nothing
                self.fail(f"{what}, and that launch did not count")
        elif spoken.status != 200 and spoken.always and not self._too_early(spoken):
            self.fail(f"{what}, and that launch counted all the while")

    def _too_early(self, spoken: Spoken) -> bool:
        """Only one that has started is heard at the other doors."""
        return spoken.door != "started" and ("started", spoken.launch_id) not in self._said

    def says(self, what: str, launch_id: str) -> None:
        """An agent begins to say something of its own: `started`, or that it ended in `success`."""
        self._said.add((what, launch_id))

    def seen(self, before: Seen, after: Seen) -> None:
        for attempt_id, row in after.rows.items():
            was = before.rows.get(attempt_id)
            if row is was or row.launch_id is None or (was is not None and was.state == row.state):
                continue
            door = {"running": "started", "success": "success"}.get(row.state)
            if door is not None and (door, row.launch_id) not in self._said:
                self.fail(f"{shown_try(row.tried)} is {row.state}, and its own agent has not said so")
