"""For every test."""

import asyncio

# looptime asks the policy for a loop in tests that have none, and until one has been set the policy makes one that
# nobody closes: a warning, and so a failure, in whichever test the garbage is collected.
asyncio.set_event_loop(None)
