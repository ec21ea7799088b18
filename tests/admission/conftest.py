"""Settings of the tests of this folder."""

import asyncio

# looptime asks for the current event loop before each plain test too, and the first to ask is given a new one that
# nobody ever closes. Once the loop has been set, even to none, nothing is made up.
asyncio.set_event_loop(None)
