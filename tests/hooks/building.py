"""Requests to ask about."""

from dataclasses import replace
from typing import Any

from dexaflow.admission.decisions import Request
from dexaflow.kube.tolerations import Toleration
from dexaflow.model.execution import Execution, Resources

__all__ = ["a_request"]

_REQUEST = Request(
    uid="6f1c2a8e-0d4b-4f5e-9a3c-2b7d8e1f0a42",
    tenant_id="acme",
    dag_id="nightly_etl",
    run_id="0193f2c4-0000-7000-8000-000000000000",
    task_id="extract",
    try_number=1,
    operator="python",
    image="ghcr.io/acme/etl:1",
    source_mode=False,
    resources=Resources(requests={"cpu": "500m"}, limits={"memory": "1Gi"}),
    execution=Execution(
        service_account="dexaflow-task",
        node_selector={"zone": "a"},
        labels={"team": "data"},
        tolerations=(Toleration(key="tenant", operator="Exists"),),
    ),
    service_account_chosen=False,
)


def a_request(**changes: Any) -> Request:  # Any: each field has its own type
    """Return a request; what is given replaces its fields."""
    return replace(_REQUEST, **changes)
