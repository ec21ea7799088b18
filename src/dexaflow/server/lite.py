"""Lite: everything in one process, wired here and nowhere else (R10.1)."""

import asyncio
import contextlib
import secrets
import signal
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import random
from typing import Any

import structlog
import uvicorn

from dexaflow.admission.breaker import BreakerState
from dexaflow.admission.gate import Gate
from dexaflow.api.agent_routes import agent_routes
from dexaflow.api.app import App, create_app
from dexaflow.api.front import token_check
from dexaflow.api.ports import Health
from dexaflow.base.clock import Clock, SystemClock
from dexaflow.base.errors import DexaflowError, TermLost
from dexaflow.config.schema import Config
from dexaflow.dispatch.dispatcher import Dispatcher, hold_counts
from dexaflow.dispatch.line import Line
from dexaflow.executors.process import ProcessExecutor
from dexaflow.loading.registry import DagFolders
from dexaflow.loading.versions import remove_unused
from dexaflow.observe.metrics import Metrics
from dexaflow.reports.handling import AgentReports
from dexaflow.reports.logs import LogFiles
from dexaflow.reports.watch import Watch
from dexaflow.scheduling.loop import Scheduler
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.server.agents import AgentDesk
from dexaflow.server.commands import ServerCommands
from dexaflow.server.data_folder import DataFolder
from dexaflow.server.hooks import build_hooks
from dexaflow.server.publishing import Publisher
from dexaflow.store import leading, people, registering, reporting
from dexaflow.store.bridge import StoreThread, UpClock, run_alone
from dexaflow.store.engine import open_reader, open_writer, store_errors
from dexaflow.store.migrating import migrate
from dexaflow.store.reading import Reader
from dexaflow.store.transaction import Tx, iso
from dexaflow.tokens.keys import load_or_create, public_keys
from dexaflow.tokens.lifetime import Outage
from dexaflow.tokens.mint import Minter
from dexaflow.tokens.verify import Verifier

__all__ = ["LiteOptions", "serve"]

log = structlog.get_logger()
TICK_SECONDS = 1.0
RETENTION_SECONDS = 600.0
READY_AFTER_SECONDS = 15.0  # a scheduler that has not made a pass for so long is not ready


@dataclass(frozen=True, slots=True)
class LiteOptions:
    """Where Lite runs; None: what the configuration says."""

    dags: Path
    data: Path
    host: str | None = None
    port: int | None = None


def _listen(host: str, port: int) -> socket.socket:
    """Bind before anything else starts: a port in use is a clear line and not a half-started server."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise DexaflowError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another with --host or --port"
        ) from error
    listener.setblocking(False)
    return listener


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: stopping has an order, and it is ours."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say so."""
        await super().startup(sockets=sockets)
        self.up.set()


async def serve(
    config: Config,
    options: LiteOptions,
    *,
    admission: Sequence[Any] = (),
    clock: Clock | None = None,
    on_ready: Callable[[str, str], None] | None = None,
) -> None:
    """Run Lite until SIGTERM or SIGINT.

    Args:
        admission: Hooks in process, asked in this order before those of the configuration (R8.1).
        on_ready: Called once with the URL and the API token when the server answers.

    Raises:
        DexaflowError: it cannot start, or the database was taken over; one line says why.
    """
    folder = DataFolder(options.data.absolute())  # agents work elsewhere
    with folder.opened():
        await _serve(config, options, folder, admission, clock or SystemClock(), on_ready)


async def _serve(
    config: Config,
    options: LiteOptions,
    folder: DataFolder,
    admission: Sequence[Any],
    clock: Clock,
    on_ready: Callable[[str, str], None] | None,
) -> None:
    def new_id() -> str:
        return str(uuid.uuid4())

    def run_id_bits() -> int:
        return secrets.randbits(80)

    host = options.host or config.server.host
    listener = _listen(host, config.server.port if options.port is None else options.port)
    try:
        hooks = build_hooks(config, admission)
        signing_key = load_or_create(folder.signing_key)
        token = folder.api_token()
        with store_errors(f"cannot use {folder.database}"):
            engine = open_writer(folder.database)
            migrate(engine)
            base_up = run_alone(engine, leading.read_up, clock=clock, up=lambda: 0.0, new_id=new_id, term=None)
            up = UpClock(clock, base_up).up
            last_up = run_alone(engine, leading.last_up, clock=clock, up=up, new_id=new_id, term=None)
            term = run_alone(engine, leading.take_lead, clock=clock, up=up, new_id=new_id, term=None)
            found = run_alone(engine, leading.recover, clock=clock, up=up, new_id=new_id, term=term)
            run_alone(engine, people.ensure_default_pool, clock=clock, up=up, new_id=new_id, term=term)
        store = StoreThread(engine, clock=clock, up=up, new_id=new_id, term=term)
        reader_engine = open_reader(folder.database)
    except BaseException:
        listener.close()
        raise

    policy = config.policy()
    names = [h.name for h in hooks.callers]
    metrics = Metrics(timeout=config.execution.admission.timeout, hooks=names)
    gate = Gate(
        hooks.callers,
        policy=policy,
        fail_open=config.execution.admission.fail_open,
        clock=clock,
        new_uid=new_id,
        new_incident=lambda: secrets.token_hex(6),
        observer=_Observer(metrics, lambda: dispatcher.wake()),
    )
    if config.execution.admission.fail_open and hooks.callers:
        log.warning(
            "fail_open", meaning="a broken hook admits attempts unchanged", hooks=[h.name for h in hooks.callers]
        )
    minter = Minter(signing_key, clock)
    outage = None if last_up is None else Outage(last_up, clock.now())
    verifier = Verifier(public_keys(signing_key), clock, outage)
    executor = ProcessExecutor(folder.agents, folder.server_file)
    logs = LogFiles(folder.logs)
    scheduler = Scheduler(
        store, clock=clock, up=up, parallelism=config.parallelism, run_id_bits=run_id_bits,
        on_queued=lambda attempt: dispatcher.dispatch(attempt), on_kill=lambda kill: watch.kill(kill),
    )  # fmt: skip
    watch = Watch(
        store, executor, clock=clock, retry=seconds_to_retry, silence=config.agent.silence,
        wake_scheduler=scheduler.wake,
    )  # fmt: skip
    executor.on_exit(watch.exited)
    line = Line(
        policy=lambda: policy, gate=gate, minter=minter, executor=executor, store=store, clock=clock, new_id=new_id,
        parallelism=config.parallelism, term=term, retry=seconds_to_retry,
    )  # fmt: skip
    dispatcher = Dispatcher(
        line, gate, store, clock=clock, up=up, recheck=config.execution.admission.recheck, jitter=random,
        retry=seconds_to_retry, wake_scheduler=scheduler.wake,
    )  # fmt: skip
    reports = AgentReports(
        store, logs, watch, versions=folder.versions, retry=seconds_to_retry, wake_scheduler=scheduler.wake,
        moved=metrics.attempt_moved,
    )  # fmt: skip
    commands = ServerCommands(store, gate, dispatcher, scheduler, watch, clock=clock, run_id_bits=run_id_bits)
    publisher = Publisher(store, lambda: policy, scheduler.wake)
    folders = DagFolders(
        config.tenant_folders(options.dags), folder.versions, timeout=config.loading.timeout
    )  # fmt: skip

    metrics.read_breakers(lambda: {s.name: s.state is not BreakerState.CLOSED for s in gate.status()})
    metrics.read_holds(lambda: hold_counts(dispatcher.held(), clock.now()))
    metrics.read_stale_files(hooks.stale_files)
    metrics.read_abandoned_calls(hooks.abandoned_calls)
    reader = Reader(reader_engine)
    desk = AgentDesk(reports, minter, heartbeat_seconds=config.agent.heartbeat)
    health = _HealthOf(scheduler, clock, folders)
    app = create_app(
        reader=reader,
        commands=commands,
        api_token=token_check(token),
        agent_routes=agent_routes(desk, verifier),
        metrics=metrics.render,
        health=health.read,
        logs=logs,
    )
    http = _Uvicorn(
        uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", http="httptools", loop="none", ws="none",
            timeout_graceful_shutdown=5, server_header=False, backlog=1024,
        )
    )  # fmt: skip
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    url = _url(listener)
    store.start()
    try:
        hooks.start()
        await _take_up(store, executor, watch, found)
        known = await store.do(registering.active_files)
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(scheduler.run(), name="scheduler"),
                group.create_task(dispatcher.run(), name="dispatcher"),
                group.create_task(watch.run(), name="watch"),
                group.create_task(_tick(store), name="tick"),
                group.create_task(folders.run(publisher.publish, known=known), name="dag folders"),
                group.create_task(_retain(store, logs, folder, config.history.retention, clock), name="retention"),
            ]
            serving = group.create_task(http.serve(sockets=[listener]), name="http")
            serving.add_done_callback(lambda _: stop.set())  # a server that ends by itself must not look alive
            await http.up.wait()
            folder.announce(url)
            log.info("server_ready", url=url, data=str(folder.root), term=term)
            if on_ready is not None:
                on_ready(url, token)
            await stop.wait()
            await _stop_in_order(dispatcher, app, http, loops, config.execution.admission.timeout)
    except BaseExceptionGroup as failures:
        raise _one_line(failures) from failures
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        folder.withdraw()
        listener.close()
        await executor.aclose()  # agents go on, and are adopted by the next start
        await hooks.aclose()
        with contextlib.suppress(DexaflowError):
            await store.do(leading.tick)
        await store.aclose()
        reader_engine.dispose()
        log.info("server_stopped")


def _one_line(failures: BaseExceptionGroup) -> DexaflowError:
    """Return what to tell whoever started the server; the log has the rest. A dead loop must not look alive."""
    causes: list[BaseException] = [failures]
    while any(isinstance(cause, BaseExceptionGroup) for cause in causes):
        causes = [
            c for cause in causes for c in (cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause])
        ]
    known = [cause for cause in causes if isinstance(cause, DexaflowError)]
    if known:
        return known[0]
    log.error("server_failed", exc_info=failures)
    return DexaflowError(f"the server stopped: {type(causes[0]).__name__}: {causes[0]}; its log says where")


async def _stop_in_order(
    dispatcher: Dispatcher, app: App, http: uvicorn.Server, loops: list[asyncio.Task[None]], timeout: float
) -> None:
    """No new asks; what is being asked may still be answered; then the API, then the loops."""
    log.info("server_stopping", asking=dispatcher.asking)
    dispatcher.stop_asking()
    loops[0].cancel()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout + 1.0):
            await dispatcher.quiet.wait()
    app.stop_streams()
    http.should_exit = True
    for task in loops:
        task.cancel()


async def _take_up(store: StoreThread, executor: ProcessExecutor, watch: Watch, found: leading.Found) -> None:
    """Adopt what an earlier server launched: what lives goes on, what is gone is ended or asked anew (R10.3)."""
    alive = set(await executor.recover())
    lost = 0
    for attempt_id, launch_id in found.launching:
        if launch_id not in alive:
            await executor.kill(launch_id)
            await store.do(partial(_lost, attempt_id, launch_id))
            lost += 1
    for _, launch_id in found.running:
        if launch_id not in alive:
            watch.gone(launch_id)
    current = {launch_id for _, launch_id in (*found.launching, *found.running)}
    for launch_id in alive - current:
        await executor.kill(launch_id)  # nobody's any more: its attempt went on without it
    log.info("server_recovered", requeued=found.requeued, lost=lost, adopted=len(alive & current))


def _lost(attempt_id: str, launch_id: str, tx: Tx) -> bool:
    return reporting.lost(tx, attempt_id, launch_id)


def _remove_old(before: str, tx: Tx) -> list[str]:
    return people.remove_old(tx, before)


async def _tick(store: StoreThread) -> None:
    while True:
        await asyncio.sleep(TICK_SECONDS)
        try:
            await store.do(leading.tick)
        except TermLost:
            raise
        except DexaflowError as error:
            log.error("tick_failed", cause=str(error))


async def _retain(store: StoreThread, logs: LogFiles, folder: DataFolder, retention: float, clock: Clock) -> None:
    """Remove finished runs with all that belongs to them once they are older than `history.retention`."""
    while True:
        before = iso(clock.now() - timedelta(seconds=retention))
        try:
            while removed := await store.do(partial(_remove_old, before)):
                for run_id in removed:
                    await asyncio.to_thread(logs.remove_run, run_id)
            in_use = await store.do(people.snapshots_in_use)
            await asyncio.to_thread(partial(remove_unused, folder.versions, in_use, now=clock.now().timestamp()))
        except TermLost:
            raise
        except (DexaflowError, OSError) as error:
            log.error("retention_failed", cause=str(error))
        await asyncio.sleep(RETENTION_SECONDS)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"


class _Observer:
    """The gate's observer: counts and logs, and has the dispatcher look when a breaker moves."""

    def __init__(self, metrics: Metrics, wake: Callable[[], None]) -> None:
        self._metrics = metrics
        self._wake = wake
        self.reviewed = metrics.reviewed
        self.hook_failed = metrics.hook_failed

    def breaker_changed(self, hook: str, *, is_open: bool) -> None:
        """See `Observer.breaker_changed`."""
        self._metrics.breaker_changed(hook, is_open=is_open)
        self._wake()


class _HealthOf:
    """Whether the loops of this process do their work."""

    def __init__(self, scheduler: Scheduler, clock: Clock, folders: DagFolders) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._folders = folders
        self._passes = -1
        self._moved_at = clock.monotonic()
        self._moved = clock.now()

    def read(self) -> Health:
        """Return how this process is."""
        if self._scheduler.passes != self._passes:
            self._passes = self._scheduler.passes
            self._moved_at = self._clock.monotonic()
            self._moved = self._clock.now()
        scheduling = self._clock.monotonic() - self._moved_at < READY_AFTER_SECONDS and self._passes > 0
        loaded = self._folders.ready.is_set()
        why = (
            "" if scheduling and loaded else "the scheduler makes no passes" if loaded else "DAG files are being loaded"
        )
        return Health(
            live=True, ready=scheduling and loaded, database=scheduling, scheduler=scheduling,
            scheduler_heartbeat=self._moved, loader=loaded, why=why,
        )  # fmt: skip
