"""Pages of our own lists."""

from typing import Annotated

from pydantic import Field

from dexaflow.api.asking import MAX_INT, PageArgs, Query
from dexaflow.api.services import MAX_PAGE

__all__ = ["Page"]


class Page(Query):
    """A page of a list."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    offset: Annotated[int, Field(ge=0, le=MAX_INT)] = 0

    @property
    def page(self) -> PageArgs:
        """`limit` and `offset`."""
        return {"limit": self.limit, "offset": self.offset}
