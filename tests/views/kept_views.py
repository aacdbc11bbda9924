"""Views for tests of views that appends keep, and what a rebuild does with one of them."""

from __future__ import annotations

from typing import Any

import psycopg

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Ledger
from ledger.domain.known import KNOWN
from projections.engine import inline
from projections.engine.apply import Applier
from projections.engine.copies import Copies, projecting
from projections.engine.view import View

Connection = psycopg.Connection[Any]
IN_STATE = KNOWN.views["in_state"]


class Tally(View):
    """Counts each event, so that one that is applied twice or missed is seen."""

    name = "tally"
    tables = "CREATE TABLE {tally} (stream text PRIMARY KEY, events bigint NOT NULL, sum numeric NOT NULL)"
    statements = (
        "INSERT INTO {tally} AS t (stream, events, sum) "
        "SELECT stream, count(*), sum(position) FROM {batch} b WHERE topic NOT LIKE 'none%%' "
        "GROUP BY stream ORDER BY stream "
        "ON CONFLICT (stream) DO UPDATE SET events = t.events + excluded.events, sum = t.sum + excluded.sum",
    )
    inline = True


class Ratio(View):
    """Fails on an event whose value is 0."""

    name = "ratio"
    topics = ("lamp.read",)
    tables = "CREATE TABLE {ratio} (stream text, value integer)"
    statements = (
        "INSERT INTO {ratio} (stream, value) SELECT stream, 100 / (data->>'value')::integer FROM {batch} b",
    )
    inline = True


TALLY, RATIO = KNOWN.views.pop("tally"), KNOWN.views.pop("ratio")
COUNTED = "SELECT stream, count(*), sum(position) FROM ledger.events GROUP BY stream ORDER BY stream"
TALLIED = 'SELECT stream, events, sum FROM ledger_views.tally ORDER BY stream COLLATE "C"'


def tallied(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(TALLIED).fetchall()


def counted(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(COUNTED).fetchall()


def swap(log: Ledger, view: View) -> int:
    """What a rebuild does with an inline view: fill a copy, and switch to it while no append writes."""
    with projecting(log) as connection:
        copies = Copies(connection, "ledger")
        new = copies.begin(view)
        copies.index(view, new.number)
        inline.make_ready(copies, view, new.number)
        bound = inline.bound_of(copies)
        filler = Applier(copies, view, new)
        filler.live = False
        filler.apply(0, bound, 0)
        with inline.locked_view(copies, view.name):
            inline.apply_visible(copies, view, new.number, bound)
            copies.show(view, new.number)
            copies.finish(view, new.number)
            connection.execute(
                "UPDATE ledger.views SET kept = live, live = %s WHERE name = %s", (new.number, view.name)
            )
        return new.number
