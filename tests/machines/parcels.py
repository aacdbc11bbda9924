"""Machines that are asked about, and a table of the user's own beside them, for tests."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from ledger import Ledger
from ledger.machines import From, Machine, State
from projections import Projector, views_named

Connection = psycopg.Connection[Any]
KEY = sql.Identifier("p", "id")


class Parcel(Machine, name="queried_parcel"):
    """Here, away, here again; or lost."""

    HERE = State("here", initial=True)
    AWAY = State("away")
    LOST = State("lost 100%")
    table = (From(HERE).To(AWAY, LOST), From(AWAY).To(HERE, LOST))


class Letter(Machine, name="queried_letter"):
    """Another machine of the same objects."""

    OPEN = State("open", initial=True)
    READ = State("read")
    table = (From(OPEN).To(READ),)


def table(connection: Connection, keys: Any, kind: str = "text") -> None:
    """A table of the user's own, `p`, with these keys."""
    connection.execute(f"CREATE TABLE p (id {kind} PRIMARY KEY)")
    with connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO p VALUES (%s::text::{kind.split()[0]})", [(str(k),) for k in keys])


def found(connection: Connection, *conditions: sql.Composed, params: Any = None) -> set[Any]:
    """The keys of the user's rows for which all the conditions hold."""
    where = sql.SQL(" AND ").join(conditions)
    rows = connection.execute(sql.SQL("SELECT p.id FROM p WHERE {}").format(where), params)
    return {key for (key,) in rows}


def following(log: Ledger) -> Projector:
    """Keeps in_state, where it is told to catch up."""
    projector = Projector(log, views_named(["in_state"]))
    projector.catch_up()
    return projector
