"""Holding a live copy where it is for a moment, so that another can be brought to the same position."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psycopg

from ledger import Ledger, LedgerBusy

from ..sql import query
from . import inline
from .copies import Connection, Copy, Shelf, projecting
from .view import View

HOLD_MS: Final = 500
"""How long a switch waits for the live copy before it lets others pass and tries again."""
TRIES: Final = 120
"""How often it tries."""


class Held(NamedTuple):
    """The live copy, held on a connection of its own. bound: how far the log was safe to read before."""

    shelf: Shelf
    bound: int


@contextmanager
def held_where_it_is(ledger: Ledger, view: View, live: Copy) -> Iterator[Held]:
    """Hold the live copy of a view, by a transaction on a connection of its own.

    What is done on that connection counts when the block ends. Projectors wait meanwhile; of a view that
    appends keep, they do. Raises LedgerBusy where others hold it for too long.
    """
    with projecting(ledger) as connection:
        shelf = Shelf(connection, ledger.schema)
        bound = inline.bound_of(shelf)
        if live.inline:
            with inline.exclusively(shelf, view.name):
                yield Held(shelf, bound)
            return
        for attempt in range(TRIES):
            with connection.transaction():
                if _lock(connection, ledger.schema, view, live):
                    yield Held(shelf, bound)
                    return
            time.sleep(min(1.0, 0.05 * 2**attempt))
    raise LedgerBusy(f"view {view.name} was held by others for too long; run the rebuild again: it goes on")


def _lock(connection: Connection, schema: str, view: View, live: Copy) -> bool:
    """Hold the live copy until the transaction ends; False where somebody else holds it for long."""
    query(connection, schema, "short_lock", ms=HOLD_MS)
    try:
        with connection.transaction():
            query(connection, schema, "lock_copy", view=view.name, copy=live.number)
    except psycopg.errors.LockNotAvailable:
        return False
    return True
