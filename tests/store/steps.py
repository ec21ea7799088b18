"""Work of the database, counted and not timed: in steps of SQLite's own machine."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

__all__ = ["steps_of"]


def steps_of(engine: Engine, what: Callable[[], object], *, each: int = 1) -> int:
    """Return how many times `each` steps are made for it, on the one connection that the engine has then."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    with engine.connect() as conn:
        driver: Any = conn.connection.dbapi_connection
        driver.set_progress_handler(count, each)
    try:
        what()
    finally:
        driver.set_progress_handler(None, each)
    return counted
