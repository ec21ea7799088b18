"""Refused: the budget does not cover it."""

from dexaflow import DAG, bash

with DAG("train_model", schedule=None, default_args={"retries": 3}):
    bash("train", "echo this never runs")
