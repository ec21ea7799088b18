"""Lite: everything in one process, wired here and nowhere else (R10.1)."""

import asyncio
import contextlib
import gc
import os
import secrets
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import random
from typing import Any

import structlog

from dexaflow.admission.breaker import BreakerState
from dexaflow.admission.gate import Gate
from dexaflow.api.agent_routes import agent_routes
from dexaflow.api.app import App, create_app
from dexaflow.api.front import token_check
from dexaflow.base.clock import Clock, SystemClock
from dexaflow.base.errors import DexaflowError
from dexaflow.base.ids import RandomIds, TimeOrderedIds
from dexaflow.base.steps import Step, reached
from dexaflow.config.schema import Config
from dexaflow.dispatch.dispatcher import Dispatcher, hold_counts
from dexaflow.dispatch.line import Line
from dexaflow.executors.process import ProcessExecutor
from dexaflow.loading.registry import DagFolders
from dexaflow.loading.versions import remove_unfinished
from dexaflow.observe.metrics import Metrics
from dexaflow.reports.handling import AgentReports
from dexaflow.reports.logs import LogFiles
from dexaflow.reports.watch import Watch
from dexaflow.scheduling.loop import Scheduler
from dexaflow.scheduling.retries import seconds_to_retry
from dexaflow.server.agents import AgentDesk
from dexaflow.server.commands import ServerCommands
from dexaflow.server.data_folder import DataFolder
from dexaflow.server.database import lead
from dexaflow.server.health import HealthOf
from dexaflow.server.hooks import build_hooks
from dexaflow.server.listening import HttpServer, listen, url_of
from dexaflow.server.publishing import Publisher
from dexaflow.server.upkeep import keep_time, remove_what_is_old, take_up
from dexaflow.store import gauges, leading, registering
from dexaflow.store.bridge import StoreThread
from dexaflow.store.reading import Reader
from dexaflow.tokens.keys import load_or_create, public_keys
from dexaflow.tokens.mint import Minter
from dexaflow.tokens.verify import Verifier

__all__ = ["LiteOptions", "serve"]

log = structlog.get_logger()
_LAST_TICK_SECONDS = 6.0  # a little more than a busy database takes to say so


@dataclass(frozen=True, slots=True)
class LiteOptions:
    """Where Lite runs; None: what the configuration says."""

    dags: Path
    data: Path
    host: str | None = None
    port: int | None = None


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
    # Whatever fails on the way, no half-started server is left.
    with folder.opened():
        async with contextlib.AsyncExitStack() as closing:
            await _run(config, options, folder, admission, clock or SystemClock(), on_ready, closing)
        log.info("server_stopped")


async def _run(
    config: Config,
    options: LiteOptions,
    folder: DataFolder,
    admission: Sequence[Any],
    clock: Clock,
    on_ready: Callable[[str, str], None] | None,
    closing: contextlib.AsyncExitStack,
) -> None:
    new_id = TimeOrderedIds(lambda: int(clock.now().timestamp() * 1000), os.urandom)

    host = options.host or config.server.host
    listener = listen(host, config.server.port if options.port is None else options.port)
    closing.callback(listener.close)
    hooks = build_hooks(config, admission)
    closing.push_async_callback(hooks.aclose)
    names = [h.name for h in hooks.callers]
    metrics = Metrics(timeout=config.execution.admission.timeout, hooks=names)
    signing_key = load_or_create(folder.signing_key)
    token = folder.api_token()
    database = lead(folder.database, clock, new_id, closing)
    up, term = database.up, database.term
    store = StoreThread(
        database.writer, clock=clock, up=up, new_id=new_id, term=term, on_moved=metrics.attempts_moved
    )  # fmt: skip
    policy = config.policy()
    gate = Gate(
        hooks.callers,
        policy=policy,
        fail_open=config.execution.admission.fail_open,
        clock=clock,
        new_uid=RandomIds(os.urandom),
        new_incident=lambda: secrets.token_hex(6),
        observer=_Observer(metrics, lambda: dispatcher.wake()),
    )
    if config.execution.admission.fail_open and hooks.callers:
        log.warning(
            "fail_open", meaning="a broken hook admits attempts unchanged", hooks=[h.name for h in hooks.callers]
        )
    minter = Minter(signing_key, up)
    verifier = Verifier(public_keys(signing_key), up)
    with folder.errors():
        executor = ProcessExecutor(folder.agents, folder.server_file)
    logs = LogFiles(folder.logs)
    scheduler = Scheduler(
        store, clock=clock, up=up, parallelism=config.parallelism,
        on_queued=lambda attempt: dispatcher.dispatch(attempt), on_kill=lambda kill: commands.ended(kill),
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
    )  # fmt: skip
    commands = ServerCommands(store, gate, dispatcher, scheduler, watch, clock=clock)
    tenants = config.tenant_folders(options.dags)
    publisher = Publisher(store, lambda: policy, scheduler.wake, tenants=tenants)
    folders = DagFolders(tenants, folder.versions, clock=clock, timeout=config.loading.timeout)

    metrics.read_breakers(lambda: {s.name: s.state is not BreakerState.CLOSED for s in gate.status()})
    metrics.read_holds(lambda: hold_counts(dispatcher.held(), clock.now()))
    metrics.read_stale_files(hooks.stale_files)
    metrics.read_abandoned_calls(hooks.abandoned_calls)
    metrics.read_attempts(lambda: database.read(gauges.attempts_in_state))
    metrics.read_slots(lambda: database.read(gauges.pool_slots))
    reader = Reader(database.reader, parallelism=config.parallelism, tenants=tenants)
    desk = AgentDesk(reports, minter, heartbeat_seconds=config.agent.heartbeat)
    health = HealthOf(scheduler, clock, folders)
    app = create_app(
        reader=reader,
        commands=commands,
        api_token=token_check(token),
        agent_routes=agent_routes(desk, verifier),
        metrics=metrics.render,
        health=health.read,
        logs=logs,
    )
    http = HttpServer(app)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
        closing.callback(loop.remove_signal_handler, number)

    # Closed in the opposite order: first nobody finds us, then agents go on alone, and last the database.
    store.start()
    closing.push_async_callback(store.aclose)
    closing.push_async_callback(_last_tick, store)
    closing.push_async_callback(executor.aclose)  # agents are adopted by the next start
    closing.callback(folder.withdraw)
    hooks.start()
    await asyncio.to_thread(remove_unfinished, folder.versions)
    with folder.errors():
        await take_up(executor, watch, database.found)
    known = await store.do(registering.known_files)
    url = url_of(listener)

    def kept() -> None:
        folder.announce(url)  # agents find the server by this file, and it may have got lost
        health.written()

    try:
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(scheduler.run(), name="scheduler"),
                group.create_task(dispatcher.run(), name="dispatcher"),
                group.create_task(watch.run(), name="watch"),
                group.create_task(keep_time(store, kept), name="time"),
                group.create_task(folders.run(publisher.publish, known=known), name="dag folders"),
                group.create_task(
                    remove_what_is_old(store, logs, folder.versions, config.history.retention, clock), name="retention"
                ),
            ]
            serving = group.create_task(http.serve(sockets=[listener]), name="http")
            serving.add_done_callback(lambda _: stop.set())
            await http.up.wait()
            folder.announce(url)
            gc.collect()
            gc.freeze()  # what the start has made stays: no need to look through it again and again
            reached(Step.ANNOUNCED)
            host, port = listener.getsockname()[:2]
            log.info("server_ready", url=url, listens=f"{host} port {port}", data=str(folder.root), term=term)
            if on_ready is not None:
                on_ready(url, token)
            await stop.wait()
            if serving.done():  # a server that ends by itself must not look alive, nor as if it was told to
                raise DexaflowError("the HTTP server ended by itself; the log says why")
            await _stop_in_order(dispatcher, app, http, loops, config.execution.admission.timeout)
    except BaseExceptionGroup as failures:
        raise _one_line(failures) from failures


async def _last_tick(store: StoreThread) -> None:
    with contextlib.suppress(DexaflowError, TimeoutError):
        async with asyncio.timeout(_LAST_TICK_SECONDS):
            await store.do(leading.tick)


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
    dispatcher: Dispatcher, app: App, http: HttpServer, loops: list[asyncio.Task[None]], timeout: float
) -> None:
    """No new asks; what is being asked may still be answered; then the API, then the loops."""
    log.info("server_stopping", asking=dispatcher.asking)
    dispatcher.stop_asking()
    loops[0].cancel()
    reached(Step.STOPPING)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout + 1.0):
            await dispatcher.quiet.wait()
    app.stop_streams()
    http.should_exit = True
    for task in loops:
        task.cancel()


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
