"""DAG files: watching the folders, loading each file in a process of its own, keeping versions.

A DAG file is a program of somebody else's. `child` executes it in a process that the server neither trusts nor waits
for longer than the limit; `loader` starts that process and believes nothing that it says without checking. What was
loaded is kept by `versions` under the digest of its bytes, so that a run goes on with the version that it began with.
`watcher` says what changed in the folders, and `registry` ties these together. The tenant comes from the folder, never
from the file. Whether a schedule makes runs, and who owns a `dag_id`, is decided elsewhere.
"""
