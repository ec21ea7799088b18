"""The state table: what may follow what, and above all what may not."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dexaflow.model.diagram import EVENT_MEANINGS, RUN_MEANINGS, STATE_MEANINGS, states_page
from dexaflow.model.states import (
    ENDED,
    HOLDS_SLOTS,
    RUN_ENDED,
    TRANSITIONS,
    Event,
    RunState,
    State,
    next_state,
    sources,
)

S, E = State, Event
BEFORE_RUNNING = {S.NONE, S.SCHEDULED, S.QUEUED, S.HELD, S.LAUNCHING, S.UP_FOR_RETRY}

# Written from the requirements, not from the table: where each event may happen. Everything else is forbidden.
MAY_HAPPEN_IN: Mapping[Event, set[State]] = {
    E.DUE: {S.NONE},
    E.UPSTREAM_SKIPPED: {S.NONE},
    E.UPSTREAM_FAILED: {S.NONE},
    E.SLOTS_TAKEN: {S.SCHEDULED},
    E.REJECTED: {S.QUEUED, S.HELD},
    E.REFUSED: {S.QUEUED, S.HELD},
    E.HELD: {S.QUEUED, S.HELD},
    E.ADMITTED: {S.QUEUED, S.HELD},
    E.ADMITTED_POOL_FULL: {S.HELD},
    E.DISPATCH_FAILED: {S.HELD},
    E.REQUEUED: {S.QUEUED},
    E.LOST: {S.LAUNCHING},
    E.START_FAILED: {S.LAUNCHING},
    E.STARTED: {S.LAUNCHING},
    E.SUCCEEDED: {S.RUNNING},
    E.FAILED: {S.RUNNING},
    E.FAILED_RETRY: {S.HELD, S.LAUNCHING, S.RUNNING},
    E.RETRY_DUE: {S.UP_FOR_RETRY},
    E.CANCELLED: BEFORE_RUNNING | {S.RUNNING},
    E.CLEARED: set(State) - {S.NONE},
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_the_table_does_not_name_is_forbidden(state: State, event: Event) -> None:
    """Every pair is walked, the absent ones too."""
    assert (next_state(state, event) is not None) is (state in MAY_HAPPEN_IN[event])


@pytest.mark.parametrize("event", Event)
def test_sources_are_the_states_in_which_the_event_may_happen(event: Event) -> None:
    assert sources(event) == MAY_HAPPEN_IN[event]


def test_only_an_admit_leads_to_launching_and_only_a_launch_to_running() -> None:
    """There is no other way to a token, a process or a pod (R1.1, R1.3)."""
    assert {event for (_, event), target in TRANSITIONS.items() if target is S.LAUNCHING} == {E.ADMITTED}
    assert {key for key, target in TRANSITIONS.items() if target is S.RUNNING} == {(S.LAUNCHING, E.STARTED)}


@pytest.mark.parametrize("event", [E.REJECTED, E.REFUSED])
def test_rejected_and_refused_end_the_attempt_without_a_retry(event: Event) -> None:
    """R1.2, R1.4."""
    assert {next_state(state, event) for state in sources(event)} == {S.FAILED}


def test_what_ended_is_only_revived_by_a_person_clearing_it() -> None:
    """An answer or a report that comes late changes nothing (R1.7)."""
    for state in ENDED:
        assert {event for source, event in TRANSITIONS if source is state} == {E.CLEARED}
        assert next_state(state, E.CLEARED) is S.NONE


def test_a_cancelled_run_skips_what_has_not_run_and_fails_what_runs() -> None:
    """R6.3 and the design's state section."""
    assert {state: next_state(state, E.CANCELLED) for state in sources(E.CANCELLED)} == {
        **dict.fromkeys(BEFORE_RUNNING, S.SKIPPED),
        S.RUNNING: S.FAILED,
    }


def test_every_way_back_is_asked_anew() -> None:
    """A crash, an admit too old, a lost launch and a retry all begin again at `scheduled` (R1.1, R1.6, R10.3)."""
    for event in (E.REQUEUED, E.LOST, E.RETRY_DUE, E.ADMITTED_POOL_FULL, E.DUE):
        assert {next_state(state, event) for state in sources(event)} == {S.SCHEDULED}


def test_slots_are_taken_where_they_are_asked_for_and_nowhere_else() -> None:
    """A held attempt gives its slots back and takes them again with its launch (R6.1)."""
    assert {S.QUEUED, S.LAUNCHING, S.RUNNING} == HOLDS_SLOTS
    taking = {key for key, target in TRANSITIONS.items() if key[0] not in HOLDS_SLOTS and target in HOLDS_SLOTS}
    assert taking == {(S.SCHEDULED, E.SLOTS_TAKEN), (S.HELD, E.ADMITTED)}
    assert next_state(S.QUEUED, E.HELD) not in HOLDS_SLOTS
    assert not ENDED & HOLDS_SLOTS


def _reached_from(start: State, without: frozenset[Event] = frozenset()) -> set[State]:
    reached, edge = {start}, [start]
    while edge:
        here = edge.pop()
        for (source, event), target in TRANSITIONS.items():
            if source is here and event not in without and target not in reached:
                reached.add(target)
                edge.append(target)
    return reached


def test_every_state_is_reached_from_the_first() -> None:
    assert _reached_from(S.NONE) == set(State)


@pytest.mark.parametrize("state", State)
def test_every_state_comes_to_an_end_without_a_person(state: State) -> None:
    by_people = frozenset({E.CANCELLED, E.CLEARED})
    assert _reached_from(state, by_people) & ENDED
    assert state in ENDED or {target for (source, _), target in TRANSITIONS.items() if source is state} - {state}


def test_the_ended_run_states_are_success_and_failed() -> None:
    assert {RunState.SUCCESS, RunState.FAILED} == RUN_ENDED


def test_the_words_are_airflows_besides_held_and_launching() -> None:
    """Issue, "The DAG author": names are Airflow's, states too."""
    airflow = {"none", "scheduled", "queued", "running", "success", "failed", "up_for_retry", "upstream_failed"}
    assert {str(state) for state in State} == airflow | {"skipped", "held", "launching"}


class OneTaskInstance(RuleBasedStateMachine):
    """Everything that can happen to one task instance, in any order; a ledger of slots and admits beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.state = S.NONE
        self.slots = 0
        self.admitted = False  # by every hook, for the launch that is under way
        self.said_no = False  # rejected or refused, in this try
        self.tries = 1

    @rule(event=st.sampled_from(Event))
    def happens(self, event: Event) -> None:
        target = next_state(self.state, event)
        if target is None:
            return  # forbidden: a guarded write finds no row
        if event is E.SLOTS_TAKEN or (event is E.ADMITTED and self.state is S.HELD):
            assert self.slots == 0
            self.slots = 1
        elif target not in HOLDS_SLOTS:
            self.slots = 0
        if event is E.ADMITTED:
            self.admitted = True
        elif target not in (S.LAUNCHING, S.RUNNING):
            self.admitted = False
        if event in (E.REJECTED, E.REFUSED):
            self.said_no = True
        if event in (E.RETRY_DUE, E.CLEARED):
            assert event is E.CLEARED or not self.said_no
            self.tries += 1
            self.said_no = False
        self.state = target

    @invariant()
    def slots_are_held_exactly_where_the_table_says(self) -> None:
        assert (self.slots == 1) is (self.state in HOLDS_SLOTS)

    @invariant()
    def nothing_is_launched_or_runs_unadmitted(self) -> None:
        assert self.admitted is (self.state in (S.LAUNCHING, S.RUNNING))

    @invariant()
    def a_no_is_final_for_its_try(self) -> None:
        assert not self.said_no or self.state is S.FAILED


TestOneTaskInstance = OneTaskInstance.TestCase


def test_the_page_of_the_documentation_is_drawn_from_the_table() -> None:
    """Design, "State": docs draw their diagram from the table."""
    page = Path(__file__).parents[2] / "docs" / "states.md"
    assert page.read_text("utf-8") == states_page(), (
        "docs/states.md is out of date; its first lines say how to write it"
    )


def test_the_page_explains_every_word_and_shows_every_move() -> None:
    assert (set(STATE_MEANINGS), set(EVENT_MEANINGS), set(RUN_MEANINGS)) == (set(State), set(Event), set(RunState))
    page = states_page()
    for (source, event), target in TRANSITIONS.items():
        assert f"| `{source}` | `{event}` | `{target}` |" in page
