"""Attaching a view to appends, which then keep it, and detaching it, so that a follower keeps it again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from ledger import BeingBuilt, Ledger, LedgerBusy, LedgerError, NoPermission, Refused
from ledger.log.server_errors import ledger_errors
from ledger.log.sql import Statements

from . import inline
from .apply import NewStatuses
from .copies import Copies, open_copies
from .inline import locked_view
from .projector import Projector
from .refold import learn_statuses
from .view import View

SQL = Statements(__package__, "attach", "copies")


def attach(ledger: Ledger, view: View, *, timeout: float = 60.0) -> bool:
    """Let every append keep a view from now on, in its own transaction; False if they did already.

    First the view is brought to the log's present end; then appends wait briefly, far less than a second.
    The call waits up to `timeout` seconds for appends that began before.
    Raises BadInput for a view that no append can keep, Refused while streams of it are parked, ViewFailed,
    LedgerBusy, BeingBuilt while another session attaches or detaches it, NoPermission if the login may not
    act as the owner.
    """
    inline.check(view)
    deadline = time.monotonic() + timeout
    Projector(ledger, [view]).catch_up()
    with open_copies(ledger) as copies, _as_owner(ledger) as owner, _alone(copies, view.name):
        copy = copies.followed(view)
        with copies.connection.transaction():
            inline.make_effect(copies, view, copy.number)
        names = {"routine": inline.routine_with_schema(ledger.schema, view.name)}
        owner.run(SQL.attach_view, effect=inline.effect_of(view.name), **names)
        try:
            _outlive_writers(copies, view.name, deadline)
            return _begin(ledger, copies, view, deadline)
        except BaseException:
            with suppress(LedgerError, psycopg.Error):
                _forget_unless_inline(copies, owner, view.name)
            raise


def detach(ledger: Ledger, view: View | str, *, timeout: float = 60.0) -> bool:
    """Let a follower keep a view again that appends keep now; False if appends did not keep it.

    The follower continues exactly where the appends end. Raises UnknownView, LedgerBusy, BeingBuilt,
    NoPermission.
    """
    name = view if isinstance(view, str) else view.name
    with open_copies(ledger) as copies, _as_owner(ledger) as owner, _alone(copies, name):
        was = _end(copies, name, time.monotonic() + timeout)
        owner.run(SQL.detach_view, effect=inline.effect_of(name))
        return was


def _begin(ledger: Ledger, copies: Copies, view: View, deadline: float) -> bool:
    """Apply what the follower has not applied, and let appends keep the view."""
    while True:
        bound = inline.bound_of(copies)
        try:
            with locked_view(copies, view.name, deadline - time.monotonic()) as already:
                copy = copies.followed(view)
                if already:
                    return False
                inline.make_effect(copies, view, copy.number)
                inline.apply_visible(copies, view, copy.number, bound)
                _refuse_parked(copies, view, copy.number)
                copies.run(SQL.set_inline, view=view.name, inline=True)
                inline.try_effect(copies, view)
                return True
        except NewStatuses:
            learn_statuses(copies, view, copies.followed(view).number)
        except LedgerBusy:
            if time.monotonic() > deadline:
                raise
            Projector(ledger, [view]).catch_up()


def _end(copies: Copies, view: str, deadline: float) -> bool:
    """Stop appends from keeping the view, and record where a follower continues."""
    while True:
        bound = inline.bound_of(copies)
        try:
            with locked_view(copies, view, deadline - time.monotonic()) as was:
                if was:
                    ((_, live),) = copies.run(SQL.inline_of, view=view)
                    inline.record_position(copies, view, live, bound)
                    copies.run(SQL.set_inline, view=view, inline=False)
                return was
        except LedgerBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _refuse_parked(copies: Copies, view: View, number: int) -> None:
    ((parked,),) = copies.run(SQL.parked_in, view=view.name, copy=number)
    if parked:
        raise Refused(
            f"view {view.name} has {parked} parked streams, which appends cannot leave out: "
            f"retry them, or run `pledger rebuild {view.name}`, then attach the view"
        )


def _outlive_writers(copies: Copies, view: str, deadline: float) -> None:
    """Wait for every append that began before now, because it may not call the effect.

    An append marks itself before it takes the locks under which it reads changes: one that marks itself later
    calls the effect.
    """
    ((before,),) = copies.run(SQL.open_writers)
    pause = 0.005
    while True:
        ((now,),) = copies.run(SQL.open_writers)
        if not set(before) & set(now):
            return
        if time.monotonic() > deadline:
            raise LedgerBusy(f"view {view}: an append stays open; see `pledger doctor`, and try again")
        time.sleep(pause)
        pause = min(0.25, pause * 2)


def _forget_unless_inline(copies: Copies, owner: Copies, view: str) -> None:
    ((is_inline, _),) = copies.run(SQL.inline_of, view=view)
    if not is_inline:
        owner.run(SQL.detach_view, effect=inline.effect_of(view))


@contextmanager
def _alone(copies: Copies, view: str) -> Iterator[None]:
    """Take the session lock for attaching or detaching the view. Raises BeingBuilt."""
    if copies.run(SQL.try_attacher, view=view) != [(True,)]:
        raise BeingBuilt(view)
    yield


@contextmanager
def _as_owner(ledger: Ledger) -> Iterator[Copies]:
    """A connection as the ledger's owner, who alone may change what appends do. Raises NoPermission."""
    with open_copies(ledger) as copies:
        try:
            with ledger_errors():
                copies.run(SQL.act_as_owner)
        except NoPermission as error:
            raise NoPermission(
                f"only a member of {ledger.schema}_owner may attach and detach views, because that changes "
                "what appends do"
            ) from error
        yield copies
