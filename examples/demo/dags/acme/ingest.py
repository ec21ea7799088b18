"""Its endpoint is killed meanwhile: the breaker opens, and nothing runs unchecked until it is back."""

from dexaflow import DAG, bash

with DAG("ingest", schedule=None):
    for part in range(6):
        bash(f"part_{part}", f"echo part {part} ingested")
