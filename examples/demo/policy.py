"""The policy that the demo's endpoint serves: one function, as any policy author writes it."""

import os
from pathlib import Path

from dexaflow.admission import Admit, Hold, Refuse, Request, admit, hold, refuse

FREEZE = Path(os.environ.get("DEMO_FREEZE_FILE", "freeze"))
COST_CENTERS = {"acme": "4711", "globex": "0815"}


def place(request: Request) -> Admit | Hold | Refuse:
    """Refuse what the budget does not cover, hold what a freeze covers, and place the rest on its tenant's nodes."""
    if request.dag_id == "train_model":
        return refuse("the training budget of November is spent; 12 GPU hours over")
    if request.tenant_id == "globex" and FREEZE.exists():
        return hold("quarter-end freeze until 06:00 UTC")
    return admit(
        node_selector={"tenant": request.tenant_id},
        tolerations=[{"key": "tenant", "operator": "Equal", "value": request.tenant_id, "effect": "NoSchedule"}],
        labels={"cost-center": COST_CENTERS.get(request.tenant_id, "unknown")},
    )
