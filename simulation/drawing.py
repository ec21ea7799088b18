"""One seed, one world: who there is, what they run, how the hooks behave, and what befalls the control plane."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from dexaflow.admission import Admit, admit
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.dag_rules import TriggerRule
from dexaflow.model.dags import DagSpec, TaskSpec
from dexaflow.model.execution import Execution, Resources
from dexaflow.policy.policy import Policy

__all__ = ["MANY_PLACES", "Drawn", "Event", "HookDrawn", "Weather", "draw"]

HOW_BROKEN = ("refused connection", "status 503", "silent", "malformed", "raises", "nonsense", "twice")
MANY_PLACES = 64  # for asking again at once, as in production: more than there are attempts in a night
RULES = tuple(sorted(TriggerRule))


@dataclass(frozen=True, slots=True)
class Weather:
    """How a hook is for a while; shares are of its questions."""

    until: float  # seconds from the beginning
    broken: float
    kinds: tuple[str, ...]  # in which ways it is broken
    crowded: float  # wait for a connection first


@dataclass(frozen=True, slots=True)
class HookDrawn:
    """One hook."""

    name: str
    weather: tuple[Weather, ...]
    freezes: tuple[tuple[str, float, float], ...]  # tenant, from, until
    holds: float  # shares of what it answers
    refuses: float
    bad_changes: float
    changes: tuple[Admit, ...]  # what it admits with; (): unchanged


@dataclass(frozen=True, slots=True)
class Event:
    """Something that befalls the control plane, or that a person asks of it."""

    at: float
    what: str
    number: float  # its own piece of chance, in [0, 1)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Drawn:
    """A whole world."""

    seed: int
    tenants: tuple[str, ...]
    dags: tuple[tuple[str, DagSpec], ...]  # with their tenants
    pools: Mapping[str, int]
    parallelism: int
    recheck: float
    places: int  # held attempts asked at once
    fail_open: bool
    policy: Policy
    hooks: tuple[HookDrawn, ...]
    events: tuple[Event, ...]
    busy: float  # seconds before all becomes calm
    unlucky_starts: float  # share of launches that start late, badly or never
    unlucky_tasks: float  # share of tasks that fail or die
    slow_store: float
    sleepers: float  # share of tasks that take many minutes, or whose agents stand still for as long


def draw(seed: int) -> Drawn:
    """Return the world of a seed."""
    chance = Random(f"world {seed}")
    long = chance.random() < 0.03  # long enough for the 15 minutes of broken waiting
    tenants = ("acme", "globex", "initech")[: chance.choice([1, 2, 2, 3])]
    pools = {"default_pool": chance.choice([1, 2, 4, 16]), "small": chance.choice([1, 1, 2, 3])}
    busy = chance.uniform(950.0, 1250.0) if long else chance.choice([10.0, 20.0, 40.0, 80.0])
    dags = tuple(
        (tenant, _dag(chance, f"{tenant}_{number}"))
        for tenant in tenants
        for number in range(1 if long else chance.choice([1, 1, 2]))
    )
    recheck = chance.choice([30.0, 120.0, 1000.0]) if long else chance.choice([1.0, 5.0, 15.0, 15.0, 60.0])
    crowd = not long and chance.random() < 0.15  # of one tenant, and few places to ask in again
    if crowd:
        tenants = ("acme", "globex", "initech")[: chance.choice([2, 3])]
        dags = (*((tenant, _dag(chance, f"{tenant}_0")) for tenant in tenants), ("acme", _crowd(chance)))
        recheck = chance.choice([1.0, 5.0])
    accounts = chance.choice([None, frozenset({"default", "etl"})])
    hooks = tuple(
        _hook(chance, number, tenants, busy, long=long) for number in range(chance.choice([0, 1, 1, 1, 2, 3]))
    )
    if crowd:
        hooks = tuple(_crowded(chance, hook, busy) for hook in hooks)
    return Drawn(
        seed=seed,
        tenants=tenants,
        dags=dags,
        pools=pools,
        parallelism=chance.choice([1, 2, 3, 16]),
        recheck=recheck,
        places=chance.choice([3, 4, 6]) if crowd else MANY_PLACES,
        fail_open=chance.random() < 0.3,
        policy=Policy(
            service_accounts=accounts,
            fields=chance.choice([None, None, frozenset({"labels", "node_selector"})]),
            default_resources=chance.choice([None, Resources({"cpu": "100m"}, {"memory": "1Gi"})]),
            default_service_account=chance.choice(["default", "etl"]),
            default_image=chance.choice(["", "ghcr.io/acme/base:1"]),
        ),
        hooks=hooks,
        events=_events(chance, busy, long=long),
        busy=busy,
        unlucky_starts=chance.choice([0.0, 0.05, 0.3]),
        unlucky_tasks=chance.choice([0.0, 0.1, 0.4]),
        slow_store=chance.choice([0.0, 0.002, 0.002, 0.02, 0.2]),
        sleepers=0.2 if long else 0.0,
    )


def _dag(chance: Random, dag_id: str) -> DagSpec:
    tasks: list[TaskSpec] = []
    for number in range(chance.choice([1, 2, 3, 4])):
        above = tuple(t.task_id for t in tasks if chance.random() < 0.4)
        slots = chance.choice([1, 1, 1, 2])
        tasks.append(
            TaskSpec(
                f"t{number}",
                "bash",
                bash_command="true",
                upstream=above,
                trigger_rule=chance.choice(RULES) if above and chance.random() < 0.4 else "all_success",
                retries=chance.choice([0, 0, 1, 2]),
                retry_delay=chance.choice([0.0, 1.0, 10.0]),
                execution_timeout=chance.choice([None, None, 3.0]),
                pool=chance.choice(["default_pool", "default_pool", "small"]),
                pool_slots=slots,
                resources=chance.choice([None, None, Resources({"cpu": "250m"}, {})]),
                execution=_execution(chance),
            )
        )
    schedule = chance.choice([None, None, "* * * * *"])
    return DagSpec(
        dag_id,
        tuple(tasks),
        schedule=schedule,
        catchup=False,
        max_active_runs=chance.choice([1, 2, 16]),
        dagrun_timeout=chance.choice([None, None, None, 20.0, 60.0]),
    )


def _crowd(chance: Random) -> DagSpec:
    """Return a DAG of many tasks that wait for nothing but a hook."""
    tasks = tuple(TaskSpec(f"c{number}", "bash", bash_command="true") for number in range(chance.choice([8, 14])))
    return DagSpec("acme_crowd", tasks, catchup=False, max_active_runs=2)


def _crowded(chance: Random, hook: HookDrawn, busy: float) -> HookDrawn:
    """Return the hook as it holds nearly everything, and has many wait for a connection."""
    weather = Weather(busy, chance.choice([0.0, 0.0, 0.1]), ("status 503",), chance.choice([0.02, 0.2]))
    return replace(hook, weather=(weather,), holds=chance.choice([0.8, 0.95]), refuses=0.0)


def _execution(chance: Random) -> Execution:
    if chance.random() < 0.5:
        return Execution()
    return Execution(
        service_account=chance.choice(["", "", "etl", "default", "root"]),
        node_selector=chance.choice([{}, {"zone": "a"}]),
        labels=chance.choice([{}, {"team": "data"}, {"team": "data", "cost-center": "1"}]),
        annotations=chance.choice([{}, {"note": "by hand"}]),
        tolerations=chance.choice([(), (Toleration("gpu", "Exists", "", "NoSchedule"),)]),
        priority_class_name=chance.choice(["", "", "high"]),
    )


CHANGES = (
    admit(labels={"cost-center": "4711"}),
    admit(labels={"team": "platform", "billed": "yes"}),
    admit(node_selector={"tenant": "acme"}),
    admit(node_selector={"zone": "b"}, annotations={"placed-by": "policy"}),
    admit(tolerations=[{"key": "tenant", "operator": "Equal", "value": "acme", "effect": "NoSchedule"}]),
    admit(tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]),
    admit(priority_class_name="low"),
    admit(service_account="etl"),
    admit(),
)


def _hook(chance: Random, number: int, tenants: tuple[str, ...], busy: float, *, long: bool) -> HookDrawn:
    weather = [_weather(chance, busy)]
    at = 0.0
    while at < busy and chance.random() < 0.7:
        at += chance.uniform(5.0, busy / 2 if not long else 60.0)
        weather.insert(-1, _weather(chance, at))
    if long and number == 0:  # broken for longer than it may be
        start = chance.uniform(0.0, 60.0)
        how = chance.sample(HOW_BROKEN, 2)
        weather = [
            Weather(start, 0.0, ("silent",), 0.0),
            Weather(busy, chance.choice([1.0, 1.0, 0.97]), tuple(how), 0.0),
        ]
    freezes = []
    for tenant in tenants:
        if chance.random() < 0.35:
            since = chance.uniform(0.0, busy / 2)
            freezes.append((tenant, since, since + chance.choice([5.0, 20.0, 40.0])))
    return HookDrawn(
        name=("budget", "placement", "webhook")[number],
        weather=tuple(weather),
        freezes=tuple(freezes),
        holds=chance.choice([0.0, 0.0, 0.1, 0.5]),
        refuses=chance.choice([0.0, 0.05, 0.3]),
        bad_changes=chance.choice([0.0, 0.0, 0.1]),
        changes=chance.choice([(), CHANGES]),
    )


def _weather(chance: Random, until: float) -> Weather:
    broken = chance.choice([0.0, 0.0, 0.1, 0.5, 1.0])
    kinds = tuple(chance.sample(HOW_BROKEN, chance.choice([1, 2, 4])))
    return Weather(until, broken, kinds, crowded=chance.choice([0.0, 0.0, 0.02, 0.2]))


OFTEN = ("cancel", "cancel", "clear", "clear", "pause", "unpause", "ask now", "resize pool", "stolen tokens")
SELDOM = (
    "crash",
    "crash",
    "crash soon",
    "crash soon",
    "second plane",
    "clock step",
    "full disk",
    "stall",
    "kill agent",
)


def _events(chance: Random, busy: float, *, long: bool) -> tuple[Event, ...]:
    triggers = [Event(chance.uniform(0.0, busy / 10), "trigger", chance.random()) for _ in range(3)]
    count = chance.choice([4, 8, 12])
    triggers += [Event(chance.uniform(0.0, busy), "trigger", chance.random()) for _ in range(count // 2)]

    def moment() -> float:
        """Half of what happens, happens while something has just begun."""
        if chance.random() < 0.5:
            return chance.choice(triggers).at + chance.choice([0.001, 0.01, 0.1, 0.4, 1.0])
        return chance.uniform(0.0, busy)

    events = [Event(moment(), chance.choice(OFTEN), chance.random()) for _ in range(count // 2)]
    for _ in range(chance.choice([0, 1, 2, 3] if not long else [0, 0, 1, 3])):
        what = chance.choice(SELDOM)
        seconds = {
            "crash": chance.choice([0.0, 1.0, 10.0, 100.0 if long else 20.0]),
            "crash soon": chance.choice([0.0, 1.0, 10.0]),
            "clock step": chance.choice([-86400.0, -30.0, 30.0, 3600.0]),
            "full disk": chance.choice([0.5, 5.0, 20.0]),
            "stall": chance.choice([0.5, 5.0, 35.0, 65.0]),
        }.get(what, 0.0)
        events.append(Event(moment(), what, chance.random(), seconds))
    return tuple(sorted((*triggers, *events), key=lambda e: e.at))
