"""A module that makes DAGs for others."""

from dexaflow import DAG, bash


def make(dag_id: str) -> DAG:
    with DAG(dag_id) as made:
        bash("a", "true")
    return made
