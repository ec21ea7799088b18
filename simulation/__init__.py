"""A simulation of Dexaflow's worst nights: one seed is one run.

The control plane is the real one: scheduler, dispatcher, line, gate, breaker, watch, reports, people's commands and
recovery over the real store. Simulated are the edges: time (`loop`), the hooks (`hooks`), the machine on which agents
run (`machine`), and the store's thread (`queueing`). `drawing` draws a world from the seed, `night` runs it and does to
it what the world has in store: crashes, a second control plane, cancels, freezes, clock steps.

What is true is kept apart from what the product says: `record` notes at the edges what happened, and `checks` hold
that and the database, read on a connection of their own (`reading`), against the promises.
"""
