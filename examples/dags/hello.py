"""The smallest workflow: two tasks, one after the other. It runs when it is triggered."""

from dexaflow import DAG, bash

with DAG("hello", description="Says hello, then goodbye"):
    bash("hello", 'echo "hello from $DEXAFLOW_TASK_ID, try $DEXAFLOW_TRY_NUMBER"') >> bash("goodbye", "echo goodbye")
