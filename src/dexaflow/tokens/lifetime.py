"""How long a token lives: on the control planes' own time, so that nothing but being served ages it.

Not by the wall clock: set an hour forward it must not end the tokens of all running tasks, at once or at the next
start, nor keep a leaked one alive when it is set back. And agents outlive every control plane (R10.3): time in which
none was up, and none could have renewed a token, must not run. A token's time is that of `leader.up_seconds`.
"""

from collections.abc import Callable

__all__ = ["AUDIENCE", "ISSUER", "LIFETIME_SECONDS", "UNTIL", "Up"]

Up = Callable[[], float]  # seconds that control planes have been up, ever: the store's `UpClock`

ISSUER = "dexaflow"
AUDIENCE = "dexaflow/agent"
UNTIL = "until_up"  # the claim; not `exp`, which others would read as a date
LIFETIME_SECONDS = 600.0  # many heartbeats long; short beside the time a leaked one would be of use
