"""Views that tests declare for their own length, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from ledger.domain.known import KNOWN
from projections.engine.view import Batch, Statement, View

Connection = psycopg.Connection[Any]
Declare = Callable[..., View]

WATTS = "CREATE TABLE {watts} (stream text PRIMARY KEY, sum numeric NOT NULL, many bigint NOT NULL)"
ADD_WATTS = (
    "INSERT INTO {watts} AS w (stream, sum, many) "
    "SELECT stream, sum((data ->> 'watts')::numeric), count(*) FROM {batch} b GROUP BY stream "
    "ON CONFLICT (stream) DO UPDATE SET sum = w.sum + excluded.sum, many = w.many + excluded.many"
)


@pytest.fixture
def declare() -> Iterator[Declare]:
    """Declares a view, by default `watts`: what lamps were made with; all are forgotten at the end."""
    before = dict(KNOWN.views)

    def make(name: str = "watts", **parts: Any) -> View:
        given = {"name": name, "topics": ("lamp.made",), "tables": WATTS, "statements": (ADD_WATTS,)}
        KNOWN.views.pop(name, None)
        type(name.title(), (View,), given | parts)
        return KNOWN.views[name]

    yield make
    for name, view in [*KNOWN.views.items()]:  # one of the package stays: it is imported once only
        if name not in before and type(view).__module__.startswith("tests."):
            del KNOWN.views[name]
    KNOWN.views.update(before)


def summed(batch: Batch) -> Iterator[Statement]:
    """The same as ADD_WATTS, in Python."""
    for event in batch.events:
        watts: Any = event.event.watts  # type: ignore[union-attr]
        if watts < 0:
            raise ValueError(f"negative\0 watts \ud800: {watts}")
        yield Statement(
            "INSERT INTO {watts} AS w VALUES (%(s)s, %(w)s, 1) "
            "ON CONFLICT (stream) DO UPDATE SET sum = w.sum + excluded.sum, many = w.many + 1",
            {"s": event.stream, "w": watts},
        )


def watts(connection: Connection) -> dict[str, tuple[int, int]]:
    """What the view `watts` shows."""
    rows = connection.execute("SELECT stream, sum::float8::int8, many FROM ledger_views.watts").fetchall()
    return {stream: (total, many) for stream, total, many in rows}


def watts_by_hand(connection: Connection, *, without: tuple[str, ...] = ()) -> dict[str, tuple[int, int]]:
    """What it should show, by a fold of the log in Python."""
    found: dict[str, tuple[int, int]] = {}
    rows = connection.execute("SELECT stream, data FROM ledger.events WHERE topic = 'lamp.made'").fetchall()
    for stream, data in rows:
        if stream not in without:
            total, many = found.get(stream, (0, 0))
            found[stream] = (total + int(data.get("watts", 1)), many + 1)
    return found


def parked(connection: Connection) -> list[tuple[str, int, int]]:
    """Stream, position and tries of what is parked, by position."""
    return connection.execute(
        "SELECT stream, position, tries FROM ledger.view_parked ORDER BY position"
    ).fetchall()
