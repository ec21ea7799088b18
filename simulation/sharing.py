"""How the pace of asking again is shared between tenants."""

from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING

from simulation.check import Check
from simulation.reading import Row
from simulation.record import Question, Try, shown_try

if TYPE_CHECKING:
    from simulation.checks import Checks

__all__ = ["TenantsShareThePace"]

_AT_REST = 2.0  # seconds after which what was done about an attempt is written, when nothing is wrong
_TO_START = 32.0  # seconds within which an executor has started an agent, or is not waited for


class TenantsShareThePace(Check):
    """Of the places for asking again none is there twice, one tenant has three quarters of them at most, and a free one
    goes to the tenant that has the fewest and somebody due."""

    def __init__(self, all_: "Checks") -> None:
        super().__init__(all_)
        self._outside: set[Try] = set()  # asked besides the pace: as probes
        self._plane = 0
        self._plane_since = 0.0  # its first question

    def asked(self, question: Question) -> None:
        every = self.all
        if question.plane != self._plane:
            self._plane, self._plane_since = question.plane, question.at
        row = every.row_of(question.tried)
        if row is None or row.state != "held" or question.plane != every.leading:
            self._outside.add(question.tried)
            return
        if question.hook != every.drawn.hooks[0].name:
            return
        if any(every.fuses.is_open(question.plane, hook.name) for hook in every.drawn.hooks):
            self._outside.add(question.tried)
            return
        self._outside.discard(question.tried)
        taken, places = self._taken(), every.drawn.places
        if taken.total() > places:
            self.fail(f"{taken.total()} held attempts are asked at once, and there are {places} places")
        if taken[row.tenant_id] > places * 3 // 4:
            self.fail(f"{taken[row.tenant_id]} held attempts of {row.tenant_id} are asked at once, in {places} places")
        if every.able and not every.troubled(question.plane):
            self._see_whose_turn_it_is(row, had=taken[row.tenant_id] - 1)

    def _see_whose_turn_it_is(self, row: Row, *, had: int) -> None:
        every = self.all
        long_ago = every.record.now() - every.drawn.recheck * 1.1 - _AT_REST
        if long_ago < self._plane_since:  # how much of a wait passed while nobody led, this cannot tell
            return
        busy = self._taken_at_most()
        for other in every.now.rows.values():
            waits = other.state == "held" and not every.is_asked(other.tried) and every.last_done(other) < long_ago
            if waits and other.tenant_id != row.tenant_id and busy[other.tenant_id] < had:
                self.fail(
                    f"{shown_try(row.tried)} is asked as number {had + 1} of {row.tenant_id}, while"
                    f" {shown_try(other.tried)} is due, and {other.tenant_id} has {busy[other.tenant_id]}"
                )
                return

    def _taken(self) -> Counter[str]:
        """Count the places that are taken for certain, by tenant."""
        every = self.all
        return Counter(
            row.tenant_id
            for row in every.now.rows.values()
            if row.state == "held" and row.tried not in self._outside and every.is_asked(row.tried)
        )

    def _taken_at_most(self) -> Counter[str]:
        """Count those too that may be, or were until just now.

        Whoever was cancelled meanwhile has its place until its question has ended, and whoever was admitted until it
        is started, also when it is cancelled before that.
        """
        every, now = self.all, self.all.record.now()
        tried = {q.tried: q.request.tenant_id for q in every.open_questions()}
        for row in every.now.rows.values():
            if every.last_done(row) > now - _AT_REST:
                tried[row.tried] = row.tenant_id
        forked = {process.launch_id for process in every.record.processes}
        for start in takewhile(lambda start: start.at > now - _TO_START, reversed(every.record.starts)):
            if start.plane == every.leading and start.launch_id not in forked:
                tried[start.tried] = start.tenant_id
        return Counter(tried.values())

    def may_be_full(self, tenant_id: str) -> bool:
        """Whether a tenant's share of the pace may be used up."""
        places, taken = self.all.drawn.places, self._taken_at_most()
        return taken.total() >= places or taken[tenant_id] >= places * 3 // 4
