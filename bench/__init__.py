"""`make bench`: what Dexaflow costs, each line a ratio or a number taken in one run.

`docs/bench.md` says how to read it.

`asking.py` is one side of a comparison in a process of its own, `endpoint.py` what both sides ask; `gate.py` and
`lite.py` are the measurements.
"""
