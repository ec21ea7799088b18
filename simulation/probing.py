"""Who is sent to find out whether a hook that failed works again."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from simulation.check import Check
from simulation.reading import Row, Seen
from simulation.record import Question, shown_try

if TYPE_CHECKING:
    from simulation.checks import Checks

__all__ = ["OneProbesInTurn"]

_AT_REST = 2.0  # seconds in which nothing has happened to whoever waits: nobody is about to ask about it
_WRITTEN = 1.0  # seconds within which a hold is written, when nothing is wrong
_SOON = 8.0  # seconds within which somebody is asked once the 30 s are over


class OneProbesInTurn(Check):
    """Of many attempts waiting when the 30 s end, exactly one is asked: the one asked longest ago, and not the same one
    twice while others wait."""

    def __init__(self, all_: "Checks") -> None:
        super().__init__(all_)
        self._joined: dict[str, tuple[str, float]] = {}  # by attempt: the hook that holds it, and since when
        self._idle: dict[str, float] = defaultdict(float)  # by hook: seconds in which somebody could have been asked

    def seen(self, before: Seen, after: Seen) -> None:
        for attempt_id, row in after.rows.items():
            if row is before.rows.get(attempt_id):
                continue
            if row.state != "held":
                self._joined.pop(attempt_id, None)
            elif self._joined.get(attempt_id, ("", 0.0))[0] != row.hook:
                self._joined[attempt_id] = row.hook, self.all.record.now()
        for attempt_id in self._joined.keys() - after.rows.keys():
            del self._joined[attempt_id]

    def asked(self, question: Question) -> None:
        every = self.all
        self._idle.pop(question.hook, None)
        if question.plane != every.leading or not every.fuses.is_open(question.plane, question.hook):
            return
        if every.troubled(question.plane):
            return  # whoever could not be written about is set aside
        probe = every.row_of(question.tried)
        its_turn = None if probe is None else self._turn(probe, question.hook, latest=False)
        for row in self._waiting(question.hook, before=every.walks[question.plane, question.tried].began - _AT_REST):
            turn = self._turn(row, question.hook, latest=True)
            if turn is not None and row.tried != question.tried and (its_turn is None or turn < its_turn):
                since = "never" if its_turn is None else f"at {its_turn - every.record.began:.3f}"
                self.fail(
                    f"{question.hook} is probed with {shown_try(question.tried)}, asked last {since}, while"
                    f" {shown_try(row.tried)} waits, asked last at {turn - every.record.began:.3f}"
                )
                return

    def passed(self, seconds: float) -> None:
        every = self.all
        plane = every.leading
        if plane is None or not every.able or every.troubled(plane):
            self._idle.clear()
            return
        for hook in {hook for hook, _ in self._joined.values()}:
            due = every.fuses.probe_due(plane, hook)
            if due is None or due > every.record.now():
                self._idle.pop(hook, None)
            elif not every.open_questions():
                self._idle[hook] += seconds
                if self._idle[hook] > _SOON:
                    self.fail(f"{hook} may be probed since {every.record.now() - due:.1f} s, and nobody is asked")
                    return

    def _waiting(self, hook: str, *, before: float) -> Iterator[Row]:
        """Give the attempts that the hook holds, and about which nothing has been done since then."""
        every = self.all
        for attempt_id, (by, _) in self._joined.items():
            row = every.now.rows[attempt_id]
            if by == hook and not every.is_asked(row.tried) and every.last_done(row) < before:
                yield row

    def _turn(self, row: Row, hook: str, *, latest: bool) -> float | None:
        """Return when a held attempt was last asked by the hook, or began to wait for it; None: it does not wait.

        As late as it may be, or as early: then an answer that may not have been kept counts for nothing.
        """
        by, joined = self._joined.get(row.attempt_id, ("", 0.0))
        if by != hook:
            return None
        every = self.all
        asked = [q for q in every.record.by_try.get(row.tried, ()) if q.hook == hook and q.answered]
        if latest:
            return max([joined, *(q.answered_at for q in asked)])
        return max([joined - _WRITTEN, *(q.put_at for q in asked if not every.unwritten(q))])
