"""The HTTP API: Airflow's shapes under /api/v2, our own under /dexaflow/v1, the agents' door under /agent/v1.

It reads the database through `store.reading` and asks everything else of `ports.Commands`; it can import nothing that
dispatches, starts or signs. `app.create_app` puts it together, `front.Front` is what every request passes first.
"""
