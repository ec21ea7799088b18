"""Our own API: what Airflow has no words for (holds, hooks, reviews, explanations), in our own states."""
