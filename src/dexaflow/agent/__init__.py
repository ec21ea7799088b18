"""Runs one attempt beside the user's code and reports until it is heard. Standard library only.

Three kinds of process::

    executor ── spawner ── agent (one for each launch, own session) ── the user's process (own session and group)

The *spawner* has all modules loaded and forks an *agent* for each launch, so that a tiny attempt costs milliseconds.
Agents outlive the spawner and the server. An agent holds the token, in its memory alone: it comes over a pipe that the
spawner never reads, and the user's process is a fresh `exec` with an environment and descriptors made for it. The
user's process dies with its agent (R10.4): by the kernel's parent-death signal, and what escaped that by the spawner,
which adopts orphans and kills them, or by the executor, which finds them by group and environment.

How an agent talks to the server
--------------------------------

JSON over HTTP/1.1, ``POST`` only, ``Authorization: Bearer <agent token>``. The address is read anew from the server
file (``{"url": "http://127.0.0.1:8080"}``) for each connection, since a restart may move the server, or is fixed.

``POST /agent/v1/started`` ``{"launch_id": str, "pid": int, "host": str}``
    -> 200 ``{"work": {...}, "heartbeat_seconds": number}``. The agent runs nothing of the user's before (R1.7). Said
    again by the same pid and host it is accepted again, since the answer may have been lost; said by another agent of
    the same launch it is refused.
``POST /agent/v1/heartbeat`` ``{}``
    -> 200 ``{"token": str, "stop": null | str}``. The token replaces the one in use. A `stop` (``cancelled``,
    ``cleared``, ...) ends the user's processes: SIGTERM, five seconds, SIGKILL; the agent then reports `failed` with
    that reason.
``POST /agent/v1/log?offset=N`` the log's bytes from N, at most 256 KiB, ``application/octet-stream``
    -> 200 ``{"offset": M}``: so much of the log the server has now; the agent goes on from M. Bytes that the server
    has already are ignored; bytes beyond its end are not taken, and M tells the agent where to begin again.
``POST /agent/v1/finished`` ``{"state": "success"|"failed", "exit_code": int|null, "reason": str, "timed_out": bool,
"result": str|null, "log_offset": int, "log_tail": str}``
    -> 200 ``{"finished": launch_id}``. `exit_code` is negative for a signal, null when nothing ran. `reason` is one
    line, empty for a success. `result` is JSON text of at most 65,536 bytes, null when there is none (a bash task).
    `log_tail` is the base64 of the last bytes of the log, at most 64 KiB, which begin at `log_offset`. Said again it
    changes nothing.

So a tiny attempt is two requests: `started`, and `finished` with its log inside.

`work` is ``{"tenant_id", "dag_id", "run_id", "task_id", "try_number", "operator": "python"|"bash", "bash_command",
"env": {str: str}, "env_from": {str: task_id}, "execution_timeout": seconds|null, "context": {"tenant_id", "dag_id",
"run_id", "task_id", "try_number", "logical_date", "data_interval_start", "data_interval_end", "conf"}, "root", "file",
"inputs": {task_id: JSON}}``. `root` is the folder of the sources as they were when the run began, `file` the DAG's
file in it.

What the server's answer means:

===================  ==================================================================================================
200, as above        heard
401, 403, 409, 410   this launch does not count (any more): the agent kills what runs, and ends. So it does when a
                     `started` is answered 400, 413 or 422
400, 413, 422        to a `finished`: said once more as a bare failure that names the problem; to others: tried again
anything else        not heard, like a lost connection: tried again, for ever, with growing pauses and jitter; only when
                     the folder of the server file is gone too, this is as a 410
===================  ==================================================================================================

How an agent ends: exit status 0 when its report was heard, 3 when it was turned away, 4 when it could not write its
state file and so began nothing, else it died. Its state file
(`folder.py`) is there from before its first request until it was heard or turned away.
"""
