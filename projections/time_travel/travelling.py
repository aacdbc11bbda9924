"""Asking for the ledger as of a position or a time: made, listed, dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import monotonic, sleep
from typing import Final

import psycopg

from ledger import BadInput, Ledger, LedgerBusy
from ledger.store.declaring import declare_moves, declare_sets
from ledger.store.faults import ledger_errors

from ..audit.moments import Moment
from ..audit.moments import as_of as meant
from ..sql import query
from ..views.copies import Connection, projecting
from ..views.projector import views_named
from ..views.view import View
from .making import BATCH, Maker, Making
from .past import Past, dropped, found

RESERVED: Final = {"as_of", "events", "heads", "parked"}
"""Tables of every past; no view may bring one of these names."""


def as_of(
    ledger: Ledger,
    *,
    position: int | None = None,
    time: datetime | None = None,
    views: Sequence[View | str] | None = None,
    batch: int = BATCH,
    progress: Callable[[Making], None] | None = None,
) -> Past:
    """Make the ledger as of a position or an aware time, by default now, unless it is there already.

    views: by default all that this process knows. It is made anew where it was not finished, where it lacks
    one of the views, and where a view or what topics mean has another definition by now.
    Raises BadInput, UnknownView, ViewFailed, NoPermission, LedgerBusy.
    """
    wanted = [view if isinstance(view, View) else views_named([view])[0] for view in views or views_named()]
    _check(wanted)
    declare_moves(ledger)
    declare_sets(ledger)
    moment = meant(ledger, Moment(position=position, time=time))
    with projecting(ledger) as connection, _alone(connection, ledger, moment.position):
        maker = Maker(ledger, connection, moment, wanted, batch, progress or (lambda _: None))
        return maker.make()


def pasts(ledger: Ledger) -> list[Past]:
    """All pasts that are there, by position, also those that were never finished."""
    with ledger.reader() as connection:
        return [past for past, _ in found(connection, ledger.schema)]


def drop(ledger: Ledger, position: int, *, patience: float = 5.0) -> bool:
    """Drop the past of a position; False where there is none.

    Who reads it is waited for, in short turns. Raises LedgerBusy where somebody reads it all the time.
    """
    deadline = monotonic() + patience
    with projecting(ledger) as connection, _alone(connection, ledger, position, patience):
        while True:
            try:
                with connection.transaction():
                    query(connection, ledger.schema, "wait_shortly", ms=200)
                    return dropped(connection, ledger.schema, position)
            except psycopg.errors.LockNotAvailable:
                if monotonic() > deadline:
                    raise LedgerBusy(
                        f"somebody reads the ledger as of {position} all the time: it was not dropped"
                    ) from None
            sleep(0.1)


def _check(views: Iterable[View]) -> None:
    for view in views:
        if taken := sorted(RESERVED.intersection(view.table_names)):
            raise BadInput(
                f"view {view.name} has a table {taken[0]}, as every past has: leave it out by `views`"
            )


@contextmanager
def _alone(
    connection: Connection, ledger: Ledger, position: int, patience: float | None = None
) -> Iterator[None]:
    """Nobody else makes or drops the past of this position meanwhile; another one is waited for."""
    if patience is not None:
        connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{int(patience * 1000)}ms"])
    with ledger_errors():
        query(connection, ledger.schema, "hold_past", position=position)
    try:
        yield
    finally:
        if not connection.closed:
            query(connection, ledger.schema, "leave_past", position=position)
