"""One control plane's view of one database: the real verbs, clocks that tests move, answers of hooks at will."""

import itertools
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine

from dexaflow.admission.decisions import NO_CHANGES
from dexaflow.admission.gate import Gate
from dexaflow.admission.results import Admitted, Held, Outcome, Refused, Review
from dexaflow.model.attempt import Attempt
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.states import State
from dexaflow.policy.checked import Checked
from dexaflow.policy.checks import check
from dexaflow.policy.policy import Policy
from dexaflow.scheduling.loop import Pass, one_pass, planner
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.store import admitting, leading, people, registering, reporting, running
from dexaflow.store.bridge import run_alone
from dexaflow.store.engine import open_writer
from dexaflow.store.migrating import migrate
from dexaflow.store.reading import Reader
from dexaflow.store.transaction import Tx
from tests.admission.builders import Watching

T = TypeVar("T")
__all__ = ["ENGINES", "World", "a_review", "a_task"]


def _sqlite(folder: Path) -> Engine:
    return open_writer(folder / "dexaflow.db")


# Every engine that the contract suite runs on: what opens an empty database in a folder. PostgreSQL joins here.
ENGINES: dict[str, Callable[[Path], Engine]] = {"sqlite": _sqlite}


def a_task(task_id: str = "t", **options: Any) -> TaskSpec:
    """Return a bash task that defaults all but what a test is about."""
    return TaskSpec(task_id, "bash", bash_command="true", **options)


def a_review(hook: str = "webhook", outcome: Outcome = Outcome.HOLD, **fields: Any) -> Review:
    """Return one hook's part of one ask."""
    return Review(hook, outcome, "uid-1", "", NO_CHANGES, 0.25)._replace(**fields)


def ended_now(step: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for something")


class World:
    """Clocks stand still until moved. `term` is that of the control plane that speaks."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.wall = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
        self.seconds = 1000.0
        self.ids = itertools.count(1)
        self.term: int | None = None
        self.gate = Gate(
            [], policy=Policy(), fail_open=False, clock=self, new_uid=str, new_incident=str, observer=Watching()
        )

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    def do(self, verb: Callable[[Tx], T]) -> T:
        return run_alone(
            self.engine,
            verb,
            clock=self,
            up=lambda: self.seconds,
            new_id=lambda: f"id-{next(self.ids)}",
            term=self.term,
        )

    def lead(self) -> "World":
        self.term = self.do(leading.take_lead)
        self.do(people.ensure_default_pool)
        return self

    # Runs

    def register(
        self, *tasks: TaskSpec, dag_id: str = "d", tenant_id: str = "acme", file: str = "", **dag: Any
    ) -> tuple[str, ...]:
        """Register a file with one DAG; return what is wrong with it."""
        spec = DagSpec(dag_id, tasks, **dag)
        loaded = registering.DagFile(tenant_id, file or f"{dag_id}.py", "snapshot", (spec,))
        errors, _ = self.do(lambda tx: registering.register_file(tx, loaded, (), planner(tx)))
        return tuple(e.cause for e in errors)

    def trigger(self, run_id: str = "r", dag_id: str = "d", conf: dict[str, Any] | None = None) -> str:
        new = running.NewRun(run_id, "manual", None, None, None, conf or {}, "test")
        self.do(lambda tx: running.create_run(tx, dag_id, new))
        return run_id

    def schedule(self, parallelism: int = 16) -> Pass:
        return self.do(lambda tx: one_pass(tx, parallelism))

    def queued(self, *tasks: TaskSpec, **dag: Any) -> Attempt:
        """Return the first attempt of a new DAG's run, queued."""
        assert self.register(*(tasks or (a_task(),)), **dag) == ()
        self.trigger()
        return self.schedule().queued[0]

    def settle(self) -> list[Attempt]:
        """Make passes until nothing more follows; return all that they queued."""
        queued: list[Attempt] = []
        while True:
            done = self.schedule()
            queued += done.queued
            if not done.more:
                return queued

    # The line

    def checked(self, attempt: Attempt) -> Checked:
        checked = check(attempt, Policy())
        assert isinstance(checked, Checked)
        return checked

    def admitted(self, attempt: Attempt) -> Admitted:
        verdict = ended_now(self.gate.review(self.checked(attempt)))
        assert isinstance(verdict, Admitted)
        return verdict

    def launch(self, attempt: Attempt, launch_id: str = "launch-1", parallelism: int = 16) -> Any:
        admitted = self.admitted(attempt)
        return self.do(
            lambda tx: admitting.launch(tx, admitted, launch_id=launch_id, placement="{}", parallelism=parallelism)
        )

    def hold(
        self,
        attempt: Attempt,
        hook: str = "webhook",
        reason: str = "frozen",
        *,
        broken: bool = False,
        asked: bool = True,
        wait: float = 15.0,
        turn: int = 1,
        reviews: Sequence[Review] = (),
    ) -> bool:
        held = Held(attempt, hook, reason, tuple(reviews), broken=broken, asked=asked)
        return self.do(
            lambda tx: admitting.hold(
                tx, held, next_ask_due=tx.up + wait, turn=turn, placement="{}", first_turn=not asked
            )
        )

    def refuse(self, attempt: Attempt, hook: str = "webhook", reason: str = "no") -> bool:
        refused = Refused(attempt, hook, reason, (a_review(hook, Outcome.REFUSE, reason=reason),))
        return self.do(lambda tx: admitting.refuse(tx, refused, "{}"))

    def started(self, attempt: Attempt, launch_id: str = "launch-1", pid: int = 7, host: str = "here") -> Any:
        return self.do(lambda tx: reporting.started(tx, attempt.id, launch_id, host, pid))

    def ended(
        self, attempt: Attempt, launch_id: str = "launch-1", *, succeeded: bool = True, result: bytes | None = None
    ) -> State | None:
        ended = self.do(
            lambda tx: reporting.attempt_ended(
                tx, attempt.id, launch_id, succeeded=succeeded, reason="" if succeeded else "exit status 1",
                exit_code=0 if succeeded else 1, result=result, retry=seconds_to_retry,
            )
        )  # fmt: skip
        return None if ended is None else ended.state

    def running(self, *tasks: TaskSpec, **dag: Any) -> Attempt:
        """Return an attempt that runs under launch id `launch-1`."""
        attempt = self.queued(*tasks, **dag)
        assert self.launch(attempt).launch_id == "launch-1"
        assert self.started(attempt) is not None
        return attempt

    # What there is

    def state(self, task_id: str = "t", run_id: str = "r") -> State:
        return State(self.row(task_id, run_id).state)

    def row(self, task_id: str = "t", run_id: str = "r") -> Any:
        row = self.do(
            lambda tx: tx.one("SELECT * FROM task_instances WHERE run_id = :r AND task_id = :t", r=run_id, t=task_id)
        )
        assert row is not None
        return row

    def shown(self, task_id: str = "t", run_id: str = "r", parallelism: int | None = None) -> str:
        """Return why the task is where it is, as people are told."""
        return Reader(self.engine, parallelism=parallelism).attempt(run_id, task_id).reason

    def run_row(self, run_id: str = "r") -> Any:
        row = self.do(lambda tx: tx.one("SELECT * FROM runs WHERE run_id = :r", r=run_id))
        assert row is not None
        return row

    def run_state(self, run_id: str = "r") -> str:
        return str(self.run_row(run_id).state)

    def rows(self, sql: str, **values: Any) -> list[Any]:
        return self.do(lambda tx: tx.all(sql, **values))

    def clear(self, *task_ids: str, run_id: str = "r", downstream: bool = False, only_failed: bool = False) -> Any:
        return self.do(
            lambda tx: people.clear_tasks(
                tx, run_id, task_ids or None, downstream=downstream, only_failed=only_failed
            )
        )  # fmt: skip

    def cancel(self, run_id: str = "r", why: str = "cancelled by alice") -> people.ToKill:
        return self.do(lambda tx: people.cancel_run(tx, run_id, why))


def opened(name: str, folder: Path) -> Engine:
    """Open an empty database of one engine, brought up by the real migrations."""
    engine = ENGINES[name](folder)
    migrate(engine)
    return engine
