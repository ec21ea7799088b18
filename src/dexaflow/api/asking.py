"""Query parameters that many lists share, and how they become filters. Unknown ones are refused: a filter that is
ignored would answer another question than the one asked.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict, get_args, get_origin

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
)

from dexaflow.api.problems import Problem
from dexaflow.api.services import MAX_PAGE
from dexaflow.store.reading_filters import Order, Span

__all__ = [
    "MAX_INT",
    "SORTING",
    "WHOLE",
    "AirflowPage",
    "Moment",
    "Name",
    "Never",
    "NotChosen",
    "PageArgs",
    "Pattern",
    "Query",
    "among",
    "none_unknown_or_twice",
    "order_of",
    "sortable",
    "spans_of",
]

MAX_INT = 2**31 - 1  # of an integer column

Name = Annotated[str, Field(max_length=250)]
Pattern = Annotated[str, Field(max_length=250)]


def _storable(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside the years 1 to 9999 in UTC") from None


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")


def _written(value: object) -> object:
    """Refuse the seconds since 1970 that pydantic takes too, as a number or in quotes."""
    if not (isinstance(value, str) and _DATE.match(value)):
        raise ValueError("is not a date and time with its offset, such as 2026-01-31T06:00:00+01:00")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_written), AfterValidator(_storable)]


# Airflow's fields that we know and cannot do: the document allows null alone, and another value is told why not.
NotChosen = Annotated[Moment | None, WithJsonSchema({"type": "null"})]
Never = Annotated[StrictBool | None, WithJsonSchema({"anyOf": [{"const": False}, {"type": "null"}]})]


def _whole(value: object) -> object:
    """Take `5.0` for 5, as JSON Schema does: not every client tells them apart."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)  # behind the bounds of an `Annotated`: those behind it would not be in the document


def among(words: Iterable[str]) -> Any:  # Any: what pydantic's `Field` returns
    """Return a `Field` that the document says to be one of `words`; the route refuses others in its own words."""
    return Field(max_length=250, json_schema_extra={"enum": list(words)})


def sortable(columns: Iterable[str]) -> Any:  # Any: what pydantic's `Field` returns
    """Return a `Field` for one entry of `order_by`, as the document has it; `order_of` refuses others."""
    return Field(max_length=250, json_schema_extra={"pattern": f"^-?({'|'.join(columns)})$"})


SORTING: Any = Field(
    default_factory=list, max_length=5, description="Fields to sort by; `-` before a field: descending."
)


class PageArgs(TypedDict):
    """What every paged list of the reader takes."""

    limit: int
    offset: int


class Query(BaseModel):
    """Base of all query models."""

    model_config = ConfigDict(extra="forbid")


class AirflowPage(Query):
    """A page of a list, as Airflow's client asks for it."""

    limit: Annotated[int, Field(ge=0, description=f"Rows wanted; at most {MAX_PAGE} come at once.")] = 50
    offset: Annotated[int, Field(ge=0, le=MAX_INT)] = 0
    order_by: Annotated[list[Name], SORTING]

    @property
    def page(self) -> PageArgs:
        """`limit` and `offset`, the limit cut to a page's size."""
        return {"limit": min(self.limit, MAX_PAGE), "offset": self.offset}


def order_of(asked: list[str], columns: Mapping[str, str], default: Order, last: str) -> Order:
    """Return the order asked for, in our columns, made total by `last` so that pages do not overlap.

    Args:
        columns: What a client may name, and the column it means.

    Raises:
        Problem: 422, a field one cannot sort by.
    """
    if not asked:
        return default
    order: list[tuple[str, bool]] = []
    for word in asked:
        name = word.removeprefix("-")
        if name not in columns:
            known = ", ".join(columns)
            raise Problem(
                422, f"order_by: cannot sort by {name[:100]!r}; use one of {known}", [("order_by", "unknown")]
            )
        if columns[name] not in (c for c, _ in order):
            order.append((columns[name], word.startswith("-")))
    if last not in (c for c, _ in order):
        order.append((last, order[-1][1]))
    return order


def spans_of(asked: BaseModel, columns: Mapping[str, str]) -> dict[str, Span]:
    """Return the stretches of time in `asked`: fields `<name>_gte`, `_gt`, `_lte`, `_lt` for each name in `columns`."""
    found: dict[str, Span] = {}
    for name, column in columns.items():
        ends: dict[str, Any] = {  # Any: datetime or None, by name
            end: value
            for end in ("gte", "gt", "lte", "lt")
            if (value := getattr(asked, f"{name}_{end}", None)) is not None
        }
        if ends:
            found[column] = Span(**ends)
    return found


async def none_unknown_or_twice(request: Request) -> None:
    """Refuse a parameter that the address does not take, or is given twice where one is taken: it would be ignored.

    Whoever clears a run with `?only_failed=true`, which belongs into the body, would clear all of it. For the
    `dependencies` of a router.

    Raises:
        Problem: 422, naming it.
    """
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    given = request.query_params
    for name in given:
        if len(given.getlist(name)) > 1 and name not in _lists(route):
            raise Problem(422, f"{name[:100]!r} is given twice; give it once", [(f"query.{name}"[:200], "given twice")])
    known = dict(_parameters(route))
    for name in given:
        if name not in known:
            takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            said = f"there is no parameter {name[:100]!r} at this address; {takes}"
            raise Problem(422, said, [(f"query.{name}"[:200], "unknown")])


def _lists(route: APIRoute) -> Iterator[str]:
    """Yield the names of a route's parameters that are lists."""
    return (name for name, annotation in _parameters(route) if _is_list(annotation))


def _parameters(route: APIRoute) -> Iterator[tuple[str, Any]]:  # Any: a type as written
    """Yield a route's parameters by name."""
    for parameter in route.dependant.query_params:
        annotation = parameter.field_info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from ((name, field.annotation) for name, field in annotation.model_fields.items())
        else:
            yield parameter.alias, annotation


def _is_list(annotation: Any) -> bool:  # Any: a type as written
    return get_origin(annotation) is list or any(_is_list(part) for part in get_args(annotation))
