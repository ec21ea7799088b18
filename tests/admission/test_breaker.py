"""R7.4: the breaker, as a value."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dexaflow.admission.breaker import (
    FAILURES_TO_OPEN,
    OPEN_SECONDS,
    PROBE_LOST_SECONDS,
    Breaker,
    BreakerState,
    End,
    Ticket,
    breaker_state,
    is_open,
    probe_due,
    retry_at,
    settle,
    take_ticket,
)


def ask(breaker: Breaker, end: End, now: float = 0.0) -> Breaker:
    breaker, ticket = take_ticket(breaker, now)
    assert ticket is not None
    return settle(breaker, ticket, end, now)


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES_TO_OPEN):
        breaker = ask(breaker, End.FAILED, now)
    return breaker


def test_the_numbers_are_the_specs() -> None:
    """After 5 failures in a row nothing is asked for 30 s."""
    assert (FAILURES_TO_OPEN, OPEN_SECONDS) == (5, 30.0)


def test_four_failures_leave_it_closed_and_the_fifth_opens_it() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker = ask(breaker, End.FAILED)
    assert not is_open(breaker)
    assert is_open(ask(breaker, End.FAILED))


def test_a_success_starts_the_count_anew() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker = ask(breaker, End.FAILED)
    breaker = ask(breaker, End.ANSWERED)
    for _ in range(4):
        breaker = ask(breaker, End.FAILED)
    assert not is_open(breaker)


def test_a_cancelled_question_is_neither_success_nor_failure() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker = ask(breaker, End.FAILED)
    assert ask(breaker, End.CANCELLED) == breaker


def test_while_open_nobody_asks() -> None:
    assert take_ticket(opened(), 29.999) == (opened(), None)


def test_after_30_s_one_may_ask_and_no_second() -> None:
    breaker, probe = take_ticket(opened(), 30.0)
    assert probe is not None
    assert probe.probe
    assert take_ticket(breaker, 31.0)[1] is None


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = ask(opened(), End.ANSWERED, 30.0)
    assert (is_open(breaker), breaker.failures) == (False, 0)


def test_a_probe_that_fails_opens_it_for_another_30_s() -> None:
    breaker = ask(opened(), End.FAILED, 31.0)
    assert is_open(breaker)
    assert retry_at(breaker) == 61.0
    assert breaker.failures == 6


def test_a_probe_that_is_cancelled_frees_its_place_at_once() -> None:
    breaker = ask(opened(), End.CANCELLED, 30.0)
    assert is_open(breaker)
    assert probe_due(breaker, 30.0)


def test_a_probe_that_is_lost_frees_its_place_and_says_nothing_later() -> None:
    breaker, lost = take_ticket(opened(), 30.0)
    assert lost is not None
    assert not probe_due(breaker, 30.0 + PROBE_LOST_SECONDS - 0.001)
    breaker, second = take_ticket(breaker, 30.0 + PROBE_LOST_SECONDS)
    assert second is not None
    for end in End:
        assert settle(breaker, lost, end, 121.0) == breaker
    assert not is_open(settle(breaker, second, End.ANSWERED, 121.0))


@pytest.mark.parametrize("end", list(End))
def test_an_answer_to_a_question_put_before_it_opened_changes_nothing(end: End) -> None:
    breaker, late = take_ticket(Breaker(), 0.0)
    assert late is not None
    for _ in range(FAILURES_TO_OPEN):
        breaker = ask(breaker, End.FAILED, 1.0)
    assert settle(breaker, late, end, 20.0) == breaker
    breaker, probe = take_ticket(breaker, 31.0)
    assert probe is not None
    assert settle(breaker, late, end, 32.0) == breaker
    closed = settle(breaker, probe, End.ANSWERED, 33.0)
    assert settle(closed, late, end, 34.0) == closed


def test_a_probe_settled_twice_says_nothing_the_second_time() -> None:
    breaker, probe = take_ticket(opened(), 30.0)
    assert probe is not None
    closed = settle(breaker, probe, End.ANSWERED, 31.0)

    assert settle(closed, probe, End.FAILED, 32.0) == closed


def test_its_state_is_told_in_the_fields_words() -> None:
    breaker = opened()
    assert breaker_state(Breaker(), 0.0) is BreakerState.CLOSED
    assert breaker_state(breaker, 29.0) is BreakerState.OPEN
    assert breaker_state(breaker, 30.0) is BreakerState.HALF_OPEN
    assert breaker_state(take_ticket(breaker, 30.0)[0], 31.0) is BreakerState.HALF_OPEN
    assert retry_at(Breaker()) is None


class Asking(RuleBasedStateMachine):
    """Many askers at once, time passing, questions ending in any order, and a plain account of what must hold."""

    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now = 0.0
        self.failed_in_a_row = 0
        self.opened_at: float | None = None
        self.openings = 0
        self.probe: tuple[Ticket, float] | None = None  # the one whose answer counts

    @rule(seconds=st.sampled_from([0.0, 0.5, 10.0, 29.999, 30.0, 45.0, 90.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(target=tickets)
    def ask(self) -> tuple[Ticket, int] | None:
        self.breaker, ticket = take_ticket(self.breaker, self.now)
        if self.opened_at is None:
            assert ticket is not None
            assert not ticket.probe
        else:
            out = self.probe is not None and self.now < self.probe[1] + PROBE_LOST_SECONDS
            due = self.now >= self.opened_at + OPEN_SECONDS and not out
            assert (ticket is not None) == due
            if ticket is not None:
                assert ticket.probe
                self.probe = (ticket, self.now)
        return None if ticket is None else (ticket, self.openings)

    @rule(taken=consumes(tickets), end=st.sampled_from(list(End)))
    def question_ends(self, taken: tuple[Ticket, int] | None, end: End) -> None:
        if taken is None:
            return
        ticket, openings = taken
        before = self.breaker
        self.breaker = settle(before, ticket, end, self.now)
        is_probe = self.probe is not None and self.probe[0] == ticket
        stale = (ticket.probe and not is_probe) or (not ticket.probe and openings != self.openings)
        if stale:
            assert self.breaker == before
            return
        if is_probe:
            self.probe = None
        if end is End.ANSWERED:
            self.failed_in_a_row, self.opened_at = 0, None
        elif end is End.FAILED:
            self.failed_in_a_row += 1
            if is_probe or self.failed_in_a_row >= FAILURES_TO_OPEN:
                self.opened_at = self.now
                self.openings += 1

    @invariant()
    def it_agrees_with_the_account(self) -> None:
        assert is_open(self.breaker) == (self.opened_at is not None)
        assert self.breaker.failures == self.failed_in_a_row

    @invariant()
    def it_is_never_open_for_good(self) -> None:
        due = retry_at(self.breaker)
        assert (due is None) == (self.opened_at is None)
        if due is not None:
            assert due <= self.now + max(OPEN_SECONDS, PROBE_LOST_SECONDS)
            assert take_ticket(self.breaker, due)[1] is not None


TestAsking = Asking.TestCase
