"""
The criteria of Prefect's filters: `{"any_": […]}`, `{"before_": T}`, `{"like_": "x"}` of one field, as SQL.

A field of a filter is declared once: what is compared, and which criteria it has.

    "name": Field(column("name"), {"any_": ONE_OF, "like_": LIKE})

Values go to the server as parameters, names come from the declarations only, and the texts of the conditions
from `criteria.sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg import sql

from ledger import BadInput
from ledger.errors import shown
from ledger.log.sql import Statements

SQL: Final = Statements(__package__, "criteria")

MOST: Final = 10_000
"""Values that one criterion may list."""


class Criterion(NamedTuple):
    """One criterion: the name of its text, and how its value is read.

    skips_empty: an empty value is no criterion.
    """

    text: str
    read: Callable[[Any], Any]
    skips_empty: bool = False


class Column(NamedTuple):
    """What is compared: the name of a text, and the name of a column or field in it."""

    text: str
    name: str = ""

    def of(self, table: str, views: sql.Identifier) -> sql.Composed:
        """The expression, of the row with this alias."""
        name = sql.Identifier(self.name) if self.text == "column" else sql.Literal(self.name)
        return SQL[self.text].named(name=name, table=sql.Identifier(table), views=views)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a filter. normal: brings what a client sent into another form."""

    column: Column
    criteria: Mapping[str, Criterion]
    normal: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict


class Values:
    """The parameters of one statement; `add` returns the placeholder of a value."""

    def __init__(self) -> None:
        self.all: dict[str, Any] = {}

    def add(self, value: Any) -> sql.Placeholder:
        name = f"v{len(self.all)}"
        self.all[name] = value
        return sql.Placeholder(name)


def conditions(
    field: Field, told: Mapping[str, Any], table: str, views: sql.Identifier, values: Values, place: str
) -> list[sql.Composable]:
    """The conditions of one field of a filter. Raises BadInput, which names the place."""
    found: list[sql.Composable] = []
    for name, given in field.normal(told).items():
        criterion = field.criteria.get(name)
        if criterion is None:
            raise BadInput(f"{place} has no criterion {shown(name)}; it has {', '.join(field.criteria)}")
        if given is None or (criterion.skips_empty and not given):
            continue
        try:
            value = criterion.read(given)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"{place}.{name}: {shown(given)} {error}") from None
        found.append(
            SQL[criterion.text].named(
                column=field.column.of(table, views), table=sql.Identifier(table), value=values.add(value),
                views=views,
            )
        )  # fmt: skip
    return found


# Reading values


def _items(given: Any) -> Sequence[Any]:
    if not isinstance(given, list | tuple):
        raise ValueError("must be a list")
    if len(given) > MOST:
        raise ValueError(f"must not have more than {MOST} items")
    return given


def text(given: Any) -> str:
    """A text that PostgreSQL can compare. Raises ValueError."""
    if not isinstance(given, str):
        raise ValueError("must be text")
    if "\0" in given:
        raise ValueError("must not contain NUL")
    given.encode()  # a lone surrogate is a ValueError
    return given


def texts(given: Any) -> list[str]:
    """A list of texts. Raises ValueError."""
    return [text(one) for one in _items(given)]


def ids(given: Any) -> list[str]:
    """A list of ids, in their one spelling. Raises ValueError."""
    return [identity(one) for one in _items(given)]


def identity(given: Any) -> str:
    """An id in its one spelling: a UUID in lower case. Raises ValueError."""
    try:
        return str(given if isinstance(given, UUID) else UUID(given))
    except (TypeError, ValueError, AttributeError):
        raise ValueError("must be a UUID") from None


def time(given: Any) -> datetime:
    """A time, with `T` or a space before the hours; one without an offset is UTC. Raises ValueError."""
    try:
        at = given if isinstance(given, datetime) else datetime.fromisoformat(given)
        return at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("must be a time in ISO 8601") from None


def flag(given: Any) -> bool:
    """True or false. Raises ValueError."""
    if not isinstance(given, bool):
        raise ValueError("must be true or false")
    return given


def _pattern(given: Any) -> str:
    return f"%{text(given)}%"


def _prefixes(given: Any) -> list[str]:
    return [f"{one}%" for one in texts(given)]


# The criteria, as fields name them.

ONE_ID: Final = Criterion("one_of", ids)
NO_ID: Final = Criterion("none_of", ids, True)
ONE_OF: Final = Criterion("one_of", texts)
NONE_OF: Final = Criterion("none_of", texts, True)
LIKE: Final = Criterion("is_like", _pattern, True)
PREFIX: Final = Criterion("one_prefix_of", _prefixes, True)
NULL: Final = Criterion("is_nothing", flag)
EXISTS: Final = Criterion("is_there", flag)
EQUAL: Final = Criterion("is_that", flag)
BEFORE: Final = Criterion("at_most", time)
AFTER: Final = Criterion("at_least", time)
ALL_TAGS: Final = Criterion("all_tags", texts, True)
ANY_TAG: Final = Criterion("any_tag", texts)
NO_TAGS: Final = Criterion("no_tags", flag)
ALL_ITEMS: Final = Criterion("all_items", texts, True)
NOT_BEGUN: Final = Criterion("has_not_begun", flag)
CHILD_OF: Final = Criterion("child_of_one", ids)
SUBFLOW: Final = Criterion("stands_for_subflow", flag)
NOT_DEPLOYED: Final = Criterion("is_not_deployed", flag)
OWN_OR_FLOW: Final = Criterion("own_or_flow_is_like", _pattern, True)
