"""What a DAG file imports: DAG, task, bash. Standard library only; it rides in the task's image."""
