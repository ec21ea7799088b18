"""Starting what was admitted: a process here, a pod in the Cluster edition."""
