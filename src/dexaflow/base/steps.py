"""The steps of the line by name, so that a test can have a process die, stop or be told to end at each of them.

This is the one list of them. In production `reached` does nothing: what is to happen at a step is handed to `watch`,
which nothing in this package calls, so that no variable, option or configuration key can ever switch it on. A test
does it in a program of its own that then runs the server or the spawner (`tests/system/stepping.py`).

"Not committed" is inside the transaction: a process that dies there leaves nothing of it.
"""

from collections.abc import Callable
from enum import StrEnum

__all__ = ["Step", "reached", "watch"]


class Step(StrEnum):
    """Where a process may be when it dies. Each is reached by the walk of `tests/system/test_every_step.py`."""

    # A server starts
    LOCK_TAKEN = "the data folder is locked"
    KEY_DRAFTED = "the signing key is drafted, not in place"
    FILE_DRAFTED = "a private file is drafted, not in place"
    SCHEMA_CHANGED = "the schema is migrated, not committed"
    LEAD_WRITTEN = "the lead is taken over, not committed"
    LEAD_TAKEN = "the lead is taken over, nothing is recovered"
    RECOVERY_WRITTEN = "attempts of the last term are sent back, not committed"
    RECOVERED = "attempts of the last term are sent back, agents are not looked for"
    AGENTS_FOUND = "agents of the last term are found, nothing is done about them"
    ANNOUNCED = "agents can find the server, nobody else was told"

    # A DAG is published
    VERSION_DRAFTED = "the sources of a version are drafted, not in place"
    VERSION_KEPT = "the sources of a version are in place, it is not registered"
    VERSION_WRITTEN = "a version is registered, not committed"
    VERSION_PUBLISHED = "a version is registered, the scheduler was not told"

    # A run and its tries are due
    RUN_WRITTEN = "a run is created, not committed"
    RUN_CREATED = "a run is created, the scheduler was not told"
    SCHEDULED_WRITTEN = "tries that follow are scheduled, not committed"
    QUEUED_WRITTEN = "tries have taken their slots, not committed"
    QUEUED = "tries have taken their slots, not handed to the dispatcher"
    RETRY_WRITTEN = "the next try is begun, not committed"
    RECHECK_DUE = "a held attempt is about to be asked again"

    # An attempt is asked about
    CLAIMED = "the dispatcher has an attempt, nothing is checked"
    CHECKED = "own checks have passed, no hook is asked"
    QUESTION_SENT = "a question is on its way"
    ANSWERED = "a hook has decided, nothing is done about it"
    DECIDED = "the gate has decided, nothing is written"
    HOLD_WRITTEN = "a hold is written, not committed"
    HELD = "a hold is committed, nobody was told"
    REFUSAL_WRITTEN = "a refusal is written, not committed"
    REFUSED = "a refusal is committed, nobody was told"

    # It is launched
    LAUNCH_WRITTEN = "a launch is written, not committed"
    LAUNCHED = "a launch is committed, no token is minted"
    TOKEN_MINTED = "a token is minted, nothing is started"
    SPAWNER_BEGUN = "a spawner is begun, it has no order"
    SPAWNER_ORDERED = "the spawner has its order"
    FORK_HEARD = "the server knows its agent"

    # The spawner and the agent
    ORDER_READ = "the spawner has read an order, nothing is forked"
    FORKED = "an agent is forked, the server was not told"
    AGENT_BEGUN = "an agent has begun, without a state file"
    STATE_DRAFTED = "a state file is drafted, the launch is not claimed"
    STATE_CLAIMED = "a launch is claimed by its state file, nobody was told"
    START_ACCEPTED = "an agent's start is accepted, nothing runs"
    USER_FORKED = "the user's process is forked, not executed"
    USER_BEGUN = "the user's process runs, it is in no file"
    USER_NOTED = "the user's process runs and is in the state file"
    USER_ENDED = "the user's process has ended, nobody was told"
    REPORT_READY = "the report is about to be sent"
    REPORT_HEARD = "the report was heard, the agent's files are there"
    FILES_GOING = "the agent's log is removed, its state file is not"

    # What agents say
    START_WRITTEN = "a start is accepted, not committed"
    START_COMMITTED = "a start is committed, the agent was not answered"
    HEARTBEAT_COMMITTED = "a heartbeat is committed, the agent was not answered"
    LOG_KEPT = "part of a log is in its file, not committed"
    REPORT_IN = "a report is in, nothing is written"
    REPORT_WRITTEN = "the end of a try is written, its slots with it, not committed"
    REPORT_COMMITTED = "the end of a try is committed, neither agent nor scheduler was told"
    RUN_ENDED = "the end of a run is written, not committed"

    # People, and what must die
    CANCEL_WRITTEN = "a cancel is written, not committed"
    CANCELLED = "a cancel is committed, nothing is killed"
    CLEAR_WRITTEN = "a clear is written, not committed"
    CLEARED = "a clear is committed, nothing is killed"
    KILL_SENT = "an agent was told to end"
    KILLED = "a launch is dead, its attempt's end is not written"
    REMOVAL_BEGUN = "the logs of an old run are removed, the run is not"

    # A server stops
    STOPPING = "nothing new is asked, what was asked is waited for"
    WITHDRAWN = "agents find the server no longer, the database is open"


_told: Callable[[Step], None] | None = None


def watch(told: Callable[[Step], None] | None) -> None:
    """Have `told` called with each step that this process and its forks reach; None: with none, as in production."""
    global _told
    _told = told


def reached(step: Step) -> None:
    """This process has come to a step."""
    if _told is not None:
        _told(step)
