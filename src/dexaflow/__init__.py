"""Dexaflow runs workflows whose every task attempt passes admission first.

A DAG file needs only ``from dexaflow import DAG, task, bash``; a program that builds the server uses
``from dexaflow import server``; a policy author uses ``from dexaflow.admission import admit, hold, refuse``.
"""

from dexaflow.authoring import DAG, bash, chain, dag, get_context, task

__all__ = ["DAG", "bash", "chain", "dag", "get_context", "task"]
__version__ = "0.1.0"
