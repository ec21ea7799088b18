"""Starting what was admitted: a process here, a pod in the Cluster edition.

An executor starts a `Launch` and nothing else, and a `Launch` is built of the three proofs that the steps before it
issue (`ports.py`). It keeps no state of its own that a restart would lose: what runs is found again by launch id.
"""
