"""Attaching a view to the appends, and detaching it: from then on they, or a follower, keep it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from ledger import BeingBuilt, Ledger, LedgerBusy, LedgerError, NoPermission, Refused
from ledger.store.faults import ledger_errors

from ..sql import query
from . import inline
from .applying import NewMoves
from .copies import Connection, Shelf, projecting
from .inline import exclusively
from .projector import Projector
from .refolding import learn_moves
from .view import View


def attach(ledger: Ledger, view: View, *, patience: float = 60.0) -> bool:
    """Let every append keep a view from now on, in its own transaction; False where they did already.

    First it is brought to the log's present end; then appends wait for a moment, far less than a second. An
    append that was begun before is waited for, up to `patience` seconds.
    Raises BadInput for a view that no append can keep, Refused while streams of it are parked, ViewFailed,
    LedgerBusy, BeingBuilt while somebody else attaches or detaches it, NoPermission for who may not be the
    owner.
    """
    inline.check(view)
    deadline = time.monotonic() + patience
    Projector(ledger, [view]).catch_up()
    with projecting(ledger) as connection, _as_owner(ledger) as owner, _alone(connection, ledger, view.name):
        shelf = Shelf(connection, ledger.schema)
        copy = shelf.followed(view)
        with connection.transaction():
            inline.make_keeper(shelf, view, copy.number)
        names = {"routine": inline.routine_with_schema(ledger.schema, view.name)}
        query(owner, ledger.schema, "attach_view", effect=inline.effect_of(view.name), **names)
        try:
            _outlive_writers(shelf, view.name, deadline)
            return _begin(ledger, shelf, view, deadline)
        except BaseException:
            with suppress(LedgerError, psycopg.Error):
                _forget_unless_inline(shelf, owner, view.name)
            raise


def detach(ledger: Ledger, view: View | str, *, patience: float = 60.0) -> bool:
    """Let a follower keep a view again that appends keep now; False where none did.

    The follower goes on exactly where the appends end. Raises UnknownView, LedgerBusy, BeingBuilt,
    NoPermission.
    """
    name = view if isinstance(view, str) else view.name
    with projecting(ledger) as connection, _as_owner(ledger) as owner, _alone(connection, ledger, name):
        shelf = Shelf(connection, ledger.schema)
        was = _end(shelf, name, time.monotonic() + patience)
        query(owner, ledger.schema, "detach_view", effect=inline.effect_of(name))
        return was


def _begin(ledger: Ledger, shelf: Shelf, view: View, deadline: float) -> bool:
    """Take in what the follower has not, and let appends go on with it."""
    while True:
        bound = inline.bound_of(shelf)
        try:
            with exclusively(shelf, view.name, deadline - time.monotonic()) as already:
                copy = shelf.followed(view)
                if already:
                    return False
                inline.make_keeper(shelf, view, copy.number)
                inline.take_in(shelf, view, copy.number, bound)
                _refuse_parked(shelf, view, copy.number)
                query(shelf.connection, shelf.schema, "set_inline", view=view.name, inline=True)
                inline.try_keeper(shelf, view)
                return True
        except NewMoves:
            learn_moves(shelf, view, shelf.followed(view).number)
        except LedgerBusy:
            if time.monotonic() > deadline:
                raise
            Projector(ledger, [view]).catch_up()


def _end(shelf: Shelf, view: str, deadline: float) -> bool:
    """Let appends keep the view no more, and say where a follower goes on."""
    while True:
        bound = inline.bound_of(shelf)
        try:
            with exclusively(shelf, view, deadline - time.monotonic()) as was:
                if was:
                    ((_, live),) = query(shelf.connection, shelf.schema, "inline_of", view=view)
                    inline.settle(shelf, view, live, bound)
                    query(shelf.connection, shelf.schema, "set_inline", view=view, inline=False)
                return was
        except LedgerBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _refuse_parked(shelf: Shelf, view: View, number: int) -> None:
    ((parked,),) = query(shelf.connection, shelf.schema, "parked_in", view=view.name, copy=number)
    if parked:
        raise Refused(
            f"view {view.name} leaves out {parked} parked streams, and an append cannot: "
            f"retry them, or run `pledger rebuild {view.name}`, and attach it then"
        )


def _outlive_writers(shelf: Shelf, view: str, deadline: float) -> None:
    """Wait until every append is over that was begun before now, and so may not know of the effect.

    An append marks itself before it takes the locks with which it learns of changes: one that marks itself
    later calls the effect.
    """
    ((before,),) = query(shelf.connection, shelf.schema, "open_writers")
    pause = 0.005
    while True:
        ((now,),) = query(shelf.connection, shelf.schema, "open_writers")
        if not set(before) & set(now):
            return
        if time.monotonic() > deadline:
            raise LedgerBusy(f"view {view}: an append is held open all the time; see `pledger doctor`")
        time.sleep(pause)
        pause = min(0.25, pause * 2)


def _forget_unless_inline(shelf: Shelf, owner: Connection, view: str) -> None:
    ((is_inline, _),) = query(shelf.connection, shelf.schema, "inline_of", view=view)
    if not is_inline:
        query(owner, shelf.schema, "detach_view", effect=inline.effect_of(view))


@contextmanager
def _alone(connection: Connection, ledger: Ledger, view: str) -> Iterator[None]:
    """Be the only one who attaches or detaches the view, while the session lives. Raises BeingBuilt."""
    if query(connection, ledger.schema, "try_attacher", view=view) != [(True,)]:
        raise BeingBuilt(view)
    yield


@contextmanager
def _as_owner(ledger: Ledger) -> Iterator[Connection]:
    """A connection of the ledger's owner, who alone says what every append does. Raises NoPermission."""
    with projecting(ledger) as connection:
        try:
            with ledger_errors():
                query(connection, ledger.schema, "act_as_owner")
        except NoPermission as error:
            raise NoPermission(
                f"only the ledger's owner says what appends do: let a member of {ledger.schema}_owner "
                "attach and detach views"
            ) from error
        yield connection
