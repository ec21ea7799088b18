"""Airflow's REST API v2, as far as we have the same thing: paths, bodies and states that Airflow's own client reads."""
