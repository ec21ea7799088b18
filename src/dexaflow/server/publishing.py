"""Loaded DAG files become registered DAGs: own checks first (R2.2), then one transaction."""

import asyncio
from collections.abc import Callable, Collection
from typing import TypeVar

import structlog

from dexaflow.base.errors import DagError, StoreError, TermLost
from dexaflow.base.steps import Step, reached
from dexaflow.loading.registry import FileResult
from dexaflow.model.dags import DagSpec
from dexaflow.observe.troubles import Troubles
from dexaflow.policy.checks import check_task
from dexaflow.policy.policy import Policy
from dexaflow.scheduling.loop import planner
from dexaflow.store import registering
from dexaflow.store.bridge import Store
from dexaflow.store.transaction import Tx

__all__ = ["Publisher", "policy_problems"]

T = TypeVar("T")
log = structlog.get_logger()
_PAUSE_SECONDS = 1.0  # before a write that the database refused is tried again


def policy_problems(file: str, spec: DagSpec, policy: Policy) -> tuple[DagError, ...]:
    """Return what own checks say of a DAG at registration, naming task, field and rule (R2.2)."""
    return tuple(
        DagError(file, task.line or spec.line, f"task '{task.task_id}': {r.field}: {r.message} ({r.rule})")
        for task in spec.tasks
        for r in check_task(task, policy)
    )


class Publisher:
    """Takes what the folders give; `tenants` are those that the configuration knows."""

    def __init__(
        self,
        store: Store,
        policy: Callable[[], Policy],
        wake_scheduler: Callable[[], None],
        *,
        tenants: Collection[str] | None = None,
    ) -> None:
        self._store = store
        self._policy = policy
        self._wake_scheduler = wake_scheduler
        self._tenants = tenants
        self._troubles = Troubles(__name__)

    async def publish(self, result: FileResult) -> None:
        """Register one file's DAGs, or keep what is wrong with it; a file that fails keeps its last good versions.

        While the database cannot be used it waits: what a file holds must not be forgotten, since it may never change
        again. Raises `TermLost` when another control plane leads.
        """
        if result.removed:
            await self._write(lambda tx: registering.remove_file(tx, result.tenant_id, result.file))
            log.info("dag_file_removed", tenant_id=result.tenant_id, file=result.file)
            return
        if result.version is None:
            await self._write(lambda tx: registering.keep_errors(tx, result.tenant_id, result.file, result.errors))
            self._log(result.tenant_id, result.errors)
            return
        policy = self._policy()
        errors = list(result.errors)
        good: list[DagSpec] = []
        for spec in result.dags:
            problems = policy_problems(result.file, spec, policy)
            errors.extend(problems)
            if not problems:
                good.append(spec)
        loaded = registering.DagFile(result.tenant_id, result.file, result.version, good, self._tenants)

        def register(tx: Tx) -> tuple[tuple[DagError, ...], tuple[str, ...]]:
            return registering.register_file(tx, loaded, errors, planner(tx))

        found, registered = await self._write(register)
        reached(Step.VERSION_PUBLISHED)
        self._log(result.tenant_id, found)
        if registered or not found:  # else `dag_error` has said all there is to say
            log.info("dag_file_loaded", tenant_id=result.tenant_id, file=result.file, dags=list(registered))
        self._wake_scheduler()

    async def _write(self, verb: Callable[[Tx], T]) -> T:
        while True:
            try:
                return await self._store.do(verb)
            except TermLost:
                raise
            except StoreError as error:
                self._troubles.error("publish_failed", cause=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)

    @staticmethod
    def _log(tenant_id: str, errors: tuple[DagError, ...]) -> None:
        for error in errors:
            log.warning("dag_error", tenant_id=tenant_id, file=error.file, line=error.line, cause=error.cause)
