"""DAG files: watching the folders, loading each file in a process of its own, keeping versions."""
