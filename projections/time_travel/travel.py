"""Making, listing and dropping the ledger as of a position or a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import monotonic, sleep
from typing import Final

import psycopg

from ledger import BadInput, Ledger, LedgerBusy
from ledger.log.announce import announce
from ledger.log.server_errors import ledger_errors
from ledger.log.sql import Statements, run
from ledger.roles import require_roles

from ..audit.moments import Moment
from ..audit.moments import as_of as meant
from ..engine.copies import SQL as COPIES
from ..engine.copies import Connection, projecting
from ..engine.projector import views_named
from ..engine.view import View
from .make import BATCH, Maker, Making
from .past import Past, dropped, found

SQL = Statements(__package__, "travel")


RESERVED: Final = {"as_of", "events", "heads", "parked"}
"""Tables of every past; no view may have a table of these names."""


def as_of(
    ledger: Ledger,
    *,
    position: int | None = None,
    time: datetime | None = None,
    views: Sequence[View | str] | None = None,
    batch: int = BATCH,
    progress: Callable[[Making], None] | None = None,
) -> Past:
    """Make the ledger as of a position or an aware time, by default now, unless it exists already.

    views: by default all that this process has imported. It is made anew if it was not finished, lacks one of
    the views, or if the definition of a view or the meaning of topics has changed.
    Raises BadInput, UnknownView, ViewFailed, NoPermission, LedgerBusy.
    """
    wanted = [view if isinstance(view, View) else views_named([view])[0] for view in views or views_named()]
    _check(wanted)
    require_roles(ledger, "pledger as-of make")
    announce(ledger)
    moment = meant(ledger, Moment(position=position, time=time))
    with projecting(ledger) as connection, _alone(connection, ledger, moment.position):
        maker = Maker(ledger, connection, moment, wanted, batch, progress or (lambda _: None))
        return maker.make()


def pasts(ledger: Ledger) -> list[Past]:
    """All pasts by position, including unfinished ones."""
    with ledger.reader() as connection:
        return [past for past, _ in found(connection, ledger.schema)]


def drop(ledger: Ledger, position: int, *, timeout: float = 5.0) -> bool:
    """Drop the past of a position; False if there is none.

    It waits for readers, in short turns. Raises LedgerBusy if it is being read all the time, NoPermission.
    """
    require_roles(ledger, "pledger as-of drop")
    deadline = monotonic() + timeout
    with projecting(ledger) as connection, _alone(connection, ledger, position, timeout):
        while True:
            try:
                with connection.transaction():
                    run(connection, ledger.schema, COPIES.wait_shortly, ms=200)
                    return dropped(connection, ledger.schema, position)
            except psycopg.errors.LockNotAvailable:
                if monotonic() > deadline:
                    raise LedgerBusy(
                        f"the ledger as of {position} is being read: it was not dropped; try again"
                    ) from None
            sleep(0.1)


def _check(views: Iterable[View]) -> None:
    for view in views:
        if taken := sorted(RESERVED.intersection(view.table_names)):
            raise BadInput(
                f"view {view.name} has a table {taken[0]}, and so has every past: leave it out of `views`"
            )


@contextmanager
def _alone(
    connection: Connection, ledger: Ledger, position: int, timeout: float | None = None
) -> Iterator[None]:
    """Hold the lock for making or dropping the past of this position; waits for another holder."""
    if timeout is not None:
        connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{int(timeout * 1000)}ms"])
    with ledger_errors():
        run(connection, ledger.schema, SQL.hold_past, position=position)
    try:
        yield
    finally:
        if not connection.closed:
            run(connection, ledger.schema, SQL.leave_past, position=position)
