"""Where tasks run: the author's own placement, which admission may add to. Lite checks, records and shows it."""

from dexaflow import DAG, bash, task


@task(
    pool_slots=2,
    resources={"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
    execution={
        "node_selector": {"zone": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        "labels": {"team": "data"},
    },
)
def train() -> dict[str, float]:
    return {"accuracy": 0.93}


with DAG("placed", description="Tasks that say where they want to run", tags=["example", "placement"]):
    bash("notify", 'echo "trained: $MODEL"', env={"MODEL": train()}, execution={"labels": {"team": "ops"}})
