"""What Prometheus sees (R9.1). Labels are hooks, outcomes and states: never a tenant, a DAG or a run.

`Metrics` is the gate's `Observer`: it counts, and writes the log line that explains. What is a state rather than an
event (breakers, holds, queues, stale files) is read when Prometheus asks, through the functions it is given; so a
breaker shows as open also when nobody asks the hook, and no gauge can be forgotten.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from dexaflow.admission.decisions import Request
from dexaflow.admission.results import Outcome
from dexaflow.model.attempt import Attempt
from dexaflow.model.states import State
from dexaflow.observe.logs import attempt_fields, get_logger

__all__ = ["CONTENT_TYPE", "HoldCount", "Metrics", "buckets_around"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_log = get_logger("dexaflow.admission")


class HoldCount(Protocol):
    """The held attempts of one hook."""

    @property
    def hook(self) -> str: ...
    @property
    def held(self) -> int: ...
    @property
    def oldest_seconds(self) -> float:
        """How long the attempt held longest has been held."""
        ...


def buckets_around(timeout: float) -> tuple[float, ...]:
    """Return histogram bounds in seconds that are dense about `timeout`, itself among them.

    An answer just in time and one just too late fall into different buckets; far below, a doubling is enough.
    """
    parts = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.5, 2.0)
    return tuple(float(f"{timeout * part:.4g}") for part in parts)


class Metrics:
    """One control plane's metrics, in a registry of their own.

    Args:
        timeout: `execution.admission.timeout`, seconds; the buckets lie around it.
        hooks: The names of the hooks that will be asked. Their series begin at 0: Prometheus sees no increase in a
            series that is born with its first event. Without hooks there is no series at all (R1.5).
    """

    def __init__(self, *, timeout: float = 0.5, hooks: Iterable[str] = ()) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._reviews = _Reviews(buckets_around(timeout))
        self.registry.register(self._reviews)
        self._attempts = Counter(
            "dexaflow_attempts",
            "Task attempts that came into a state.",
            ("state",),
            registry=self.registry,
        )
        self._attempt_children: dict[State, Counter] = {}
        self._readings = _Readings()
        self.registry.register(self._readings)
        for hook in hooks:
            self._reviews.begin(hook)

    # Observer (admission.ports)

    def reviewed(self, attempt: Attempt, hook: str, outcome: Outcome, seconds: float | None) -> None:
        """Count one hook's part of one ask (R9.1); `seconds` is None when no question was put."""
        self._reviews.count(hook, outcome, seconds)

    def hook_failed(self, request: Request, hook: str, incident: str, cause: str, *, bypassed: bool) -> None:
        """Log why a question failed, or that an attempt went past a broken hook (R7.2, R7.3)."""
        event = "hook_bypassed" if bypassed else "hook_failed"
        _log.warning(event, hook=hook, incident=incident, cause=cause, uid=request.uid, **attempt_fields(request))

    def breaker_changed(self, hook: str, *, is_open: bool) -> None:
        """Log that a breaker opened (someone should look) or closed."""
        if is_open:
            _log.error("breaker_opened", hook=hook)
        else:
            _log.info("breaker_closed", hook=hook)

    # Other events

    def attempts_moved(self, moved: Mapping[State, int]) -> None:
        """Count the attempts that one transaction brought into each state. May be called from any thread."""
        for state, count in moved.items():
            child = self._attempt_children.get(state)
            if child is None:
                child = self._attempt_children[state] = self._attempts.labels(str(state))
            child.inc(count)

    # Readings, called at every scrape; each may be given once the part it reads exists

    def read_breakers(self, read: Callable[[], Mapping[str, bool]]) -> None:
        """Take the hooks and whether each one's breaker is open from `read`."""
        self._readings.breakers = read

    def read_holds(self, read: Callable[[], Sequence[HoldCount]]) -> None:
        """Take the held attempts by hook from `read`; a hook it leaves out, but `read_breakers` has, shows 0."""
        self._readings.holds = read

    def read_stale_files(self, read: Callable[[], Mapping[str, bool]]) -> None:
        """Take from `read` which of `ca_file` and `token_file` could not be read again after a change (R2.3)."""
        self._readings.stale_files = read

    def read_abandoned_calls(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Take from `read`, by hook, the in-process calls that were given up and have not returned (R8.3)."""
        self._readings.abandoned_calls = read

    def read_attempts(self, read: Callable[[], Mapping[str, int]]) -> None:
        """Take from `read` how many attempts are in each state that has not ended."""
        self._readings.attempts = read

    def read_slots(self, read: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        """Take from `read`, by pool, the slots taken and the slots there are."""
        self._readings.slots = read

    def render(self) -> bytes:
        """Return the page for Prometheus, of `CONTENT_TYPE`."""
        return generate_latest(_WithoutBirthdays(self.registry))


class _Reviews:
    """What is counted of each hook's reviews. On the gate's path: one addition each, and families only at a scrape."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._outcomes: dict[str, dict[Outcome, int]] = {}
        self._durations: dict[str, list[int]] = {}  # how many in each bucket, the last one without bound
        self._seconds: dict[str, float] = {}  # all of them together

    def begin(self, hook: str) -> None:
        self._outcomes[hook] = dict.fromkeys(Outcome, 0)
        self._durations[hook] = [0] * (len(self._bounds) + 1)
        self._seconds[hook] = 0.0

    def count(self, hook: str, outcome: Outcome, seconds: float | None) -> None:
        if hook not in self._outcomes:
            self.begin(hook)
        self._outcomes[hook][outcome] += 1
        if seconds is not None:
            self._durations[hook][bisect_left(self._bounds, seconds)] += 1
            self._seconds[hook] += seconds

    def collect(self) -> Iterator[Metric]:
        reviews = CounterMetricFamily(
            "dexaflow_admission_reviews",
            "Asks of a hook by how they ended, exactly one each: admit; hold; refuse; change_refused (answered, but a "
            "change in it may not be made: the attempt is refused); error (asked, failed, held); breaker_open (not "
            "asked, held); fail_open (broken or not asked, admitted unchanged).",
            labels=("hook", "outcome"),
        )
        duration = HistogramMetricFamily(
            "dexaflow_admission_review_duration_seconds",
            "Seconds from a question having its connection until its answer or failure.",
            labels=("hook",),
        )
        for hook, outcomes in self._outcomes.items():
            for outcome, count in outcomes.items():
                reviews.add_metric((hook, outcome.value), count)
            total, buckets = 0, []
            for bound, count in zip((*self._bounds, inf), self._durations[hook], strict=True):
                total += count
                buckets.append(("+Inf" if bound == inf else str(bound), total))
            duration.add_metric((hook,), buckets, self._seconds[hook])
        yield reviews
        yield duration


class _WithoutBirthdays:
    """A registry without the `_created` series that the client adds to each counter: they double the page."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class _Readings:
    """Gauges that are read, not set. A reading that fails is left out and logged: the rest of the page stands."""

    def __init__(self) -> None:
        self.breakers: Callable[[], Mapping[str, bool]] | None = None
        self.holds: Callable[[], Sequence[HoldCount]] | None = None
        self.stale_files: Callable[[], Mapping[str, bool]] | None = None
        self.abandoned_calls: Callable[[], Mapping[str, int]] | None = None
        self.attempts: Callable[[], Mapping[str, int]] | None = None
        self.slots: Callable[[], Mapping[str, tuple[int, int]]] | None = None

    def collect(self) -> Iterable[Metric]:
        """Read every gauge."""
        for part in (self._admission, self._files, self._abandoned, self._states, self._pools):
            try:
                families = list(part())
            except Exception:  # noqa: BLE001 - a store that is closing must not take the page down
                _log.warning("metric_unreadable", part=part.__name__.strip("_"), exc_info=True)
                continue
            yield from families

    def _admission(self) -> Iterator[Metric]:
        breakers = self.breakers() if self.breakers else {}
        if breakers:
            yield _gauge(
                "dexaflow_admission_breaker_open",
                "1 while the hook is not asked, after 5 failures in a row; true also when nobody asks.",
                "hook",
                {hook: float(is_open) for hook, is_open in breakers.items()},
            )
        holds = {count.hook: count for count in self.holds()} if self.holds else {}
        hooks = dict.fromkeys((*breakers, *holds))  # a hook taken out of the configuration may still hold attempts
        if hooks:
            yield _gauge(
                "dexaflow_admission_held_attempts",
                "Attempts that wait because the hook said hold, or is broken.",
                "hook",
                {hook: float(holds[hook].held) if hook in holds else 0.0 for hook in hooks},
            )
            yield _gauge(
                "dexaflow_admission_oldest_hold_seconds",
                "How long the attempt held longest by the hook has been held; 0 when it holds none.",
                "hook",
                {hook: holds[hook].oldest_seconds if hook in holds else 0.0 for hook in hooks},
            )

    def _files(self) -> Iterator[Metric]:
        if self.stale_files and (files := self.stale_files()):
            yield _gauge(
                "dexaflow_admission_webhook_files_stale",
                "1 while the file changed but could not be used, so that its last good content still is.",
                "file",
                {file: float(stale) for file, stale in files.items()},
            )

    def _abandoned(self) -> Iterator[Metric]:
        if self.abandoned_calls and (calls := self.abandoned_calls()):
            yield _gauge(
                "dexaflow_admission_abandoned_calls",
                "Calls of an in-process hook that passed their deadline and have not returned; at 8 it is broken.",
                "hook",
                {hook: float(count) for hook, count in calls.items()},
            )

    def _states(self) -> Iterator[Metric]:
        if self.attempts:
            yield _gauge(
                "dexaflow_attempts_in_state",
                "Task attempts that have not ended, by state.",
                "state",
                {state: float(count) for state, count in self.attempts().items()},
            )

    def _pools(self) -> Iterator[Metric]:
        if self.slots:
            slots = self.slots()
            yield _gauge(
                "dexaflow_pool_slots_taken",
                "Slots of the pool that attempts hold.",
                "pool",
                {pool: float(taken) for pool, (taken, _) in slots.items()},
            )
            yield _gauge(
                "dexaflow_pool_slots",
                "Slots that the pool has.",
                "pool",
                {pool: float(total) for pool, (_, total) in slots.items()},
            )


def _gauge(name: str, meaning: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=(label,))
    for text, value in values.items():
        family.add_metric((text,), value)
    return family
