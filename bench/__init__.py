"""`make bench`: what Dexaflow costs, each line a ratio or a number taken in one run.

`docs/bench.md` says how to read it.

`rounds.py` compares sides in fresh processes, `endpoint.py` is what they ask. `asking.py` and `recording.py` are one
side each, in a process of its own; `goclient/` is a side in Go. All others are measurements, or what they share.
"""
