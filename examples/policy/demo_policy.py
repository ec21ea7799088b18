"""A policy such as a platform team would write: placement and cost labels, a freeze window, a budget.

Run it as an endpoint from the top of the repository:

    dexaflow endpoint serve examples.policy.demo_policy:policy

or in the control plane's own process, with `execution.admission.hooks: [examples.policy.demo_policy:policy]`.
"""

import os
from pathlib import Path

from dexaflow.admission import Decision, Request, admit, hold, refuse

__all__ = ["FREEZE_FILE", "policy"]

FREEZE_FILE = "DEMO_FREEZE_FILE"  # environment variable: while this file exists, what is frozen waits
FROZEN = frozenset({"frozen", "quarter_close"})  # tenants and DAGs that a freeze is about
COST_CENTERS = {"acme": "4711"}  # tenants with nodes of their own
BUDGETS = {"over_budget": ("1,000", "1,240"), "train_model": ("20,000", "31,500")}  # DAG: EUR a month, EUR asked for


def policy(request: Request) -> Decision:
    """Refuse what no budget covers, hold what is frozen, place the tenants that have nodes of their own."""
    if request.dag_id in BUDGETS:
        budget, needed = BUDGETS[request.dag_id]
        return refuse(f"over budget: {request.dag_id} needs {needed} EUR this month, {request.tenant_id} has {budget}")
    until = _frozen_until()
    if until and FROZEN & {request.tenant_id, request.dag_id}:
        return hold(f"{request.dag_id} is frozen until {until}")
    if request.tenant_id in COST_CENTERS:
        tenant = request.tenant_id
        return admit(
            node_selector={"tenant": tenant},
            tolerations=[{"key": "tenant", "operator": "Equal", "value": tenant, "effect": "NoSchedule"}],
            labels={"cost-center": COST_CENTERS[tenant]},
        )
    return admit()


def _frozen_until() -> str:
    """Return until when there is a freeze, as the first line of its file says; "" when there is none."""
    path = os.environ.get(FREEZE_FILE, "")
    if not path:
        return ""
    try:
        lines = Path(path).read_text("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return (lines[0].strip() if lines else "") or "further notice"
