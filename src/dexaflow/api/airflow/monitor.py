"""How the control plane is, and which version, as Airflow's client asks."""

from datetime import datetime

from fastapi import APIRouter
from starlette.responses import Response

import dexaflow
from dexaflow.api.airflow import shapes
from dexaflow.api.answers import answer
from dexaflow.api.services import Services

__all__ = ["monitor_routes"]


def _status(healthy: bool) -> str:
    return "healthy" if healthy else "unhealthy"


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def monitor_routes(services: Services) -> APIRouter:
    """Return the routes under /api/v2 about the control plane itself."""
    router = APIRouter(tags=["Airflow: monitor"])

    @router.get("/monitor/health", response_model=shapes.Health)
    async def get_health() -> Response:
        """How the parts are."""
        health = services.health()
        body: shapes.Health = {
            "metadatabase": {"status": _status(health.database)},
            "scheduler": {
                "status": _status(health.scheduler),
                "latest_scheduler_heartbeat": _moment(health.scheduler_heartbeat),
            },
            "triggerer": {"status": None, "latest_triggerer_heartbeat": None},
            "dag_processor": None
            if health.loader is None
            else {
                "status": _status(health.loader),
                "latest_dag_processor_heartbeat": _moment(health.loader_heartbeat),
            },
        }
        return answer(body)

    @router.get("/version", response_model=shapes.Version)
    async def get_version() -> Response:
        """Which Dexaflow this is."""
        return answer({"version": dexaflow.__version__, "git_version": None})

    return router
