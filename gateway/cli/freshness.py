"""Commands that read views: made where they are missing, and reported where they are behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger import Ledger

    from .session import Session


def make_missing(session: Session, log: Ledger, views: Sequence[str], keeper: str) -> None:
    """Make and fill the views that do not exist yet.

    keeper: what keeps them up to date, for the advice. Raises SchemaMismatch if the login may not make one.
    """
    from projections.feeds import filling_of

    for name in views:
        if filling_of(log, name) is None:
            _make(session, log, name, keeper)


def _make(session: Session, log: Ledger, view: str, keeper: str) -> None:
    from ledger.errors import NoPermission, SchemaMismatch
    from projections.engine.projector import Projector, views_named

    try:
        Projector(log, views_named([view])).catch_up()
    except NoPermission:
        raise SchemaMismatch(
            f"the view {view} does not exist, and this role may not make it: {keeper}, or `pledger views "
            f"follow {view} --once` with the role projector"
        ) from None
    session.say(f"the view {view} did not exist; it was made now")


def say_how_fresh(session: Session, log: Ledger, views: Sequence[str], keeper: str) -> None:
    """Report that views are behind, and what updates them; and the streams that they leave out."""
    from projections.engine.projector import views_named
    from projections.engine.watch import State, watch

    for state in watch(log, views_named(views)):
        name = state.view
        if name not in views:
            continue
        lag = f"the view {name} is {state.lag_events} events behind"
        match state.state:
            case State.STOPPED if state.error is not None:
                session.say(f"{lag}, because it cannot be followed: {state.error}")
            case State.STOPPED:
                session.say(
                    f"{lag}, and nothing follows it: {keeper}, or `pledger views follow {name} --once`"
                )
            case State.BEHIND:
                session.say(f"{lag}; it is being followed")
            case State.OTHER_DEFINITION:
                session.say(f"the view {name} was built by other code: run `pledger rebuild {name}`")
        if state.parked:
            session.say(f"it leaves out {state.parked} streams: see `pledger views parked {name}`")
