"""`pledger views attach|detach`: views that every append keeps in its transaction, or a follower again."""

from __future__ import annotations

from typing import Annotated

import typer

from .naming_views import views_for
from .printing import json_line
from .session import AsJson, Session, session_of

Name = Annotated[str, typer.Argument(metavar="VIEW", help="A view; `pledger views` lists them.")]
Patience = Annotated[
    float, typer.Option(metavar="S", min=0, help="Seconds to wait for appends that are held open.")
]


def add_to(views: typer.Typer) -> None:
    """Add the commands of this module to the group `views`."""
    views.command()(attach)
    views.command()(detach)


def attach(context: typer.Context, view: Name, patience: Patience = 60.0, as_json: AsJson = False) -> None:
    """Let every append keep a view, in its own transaction.

    The view is brought to the log's end first; then appends wait for a moment. From then on it is never
    behind, every append pays for it, and an event on which it fails is refused. Only the ledger's owner may
    say so.

    JSON: view, inline, changed.
    """
    session = session_of(context, as_json)
    (wanted,) = views_for(session, [view])
    from projections.views.attaching import attach as attach_view

    with session.ledger() as log:
        changed = attach_view(log, wanted, patience=patience)
    _told(session, view, True, changed)


def detach(context: typer.Context, view: Name, patience: Patience = 60.0, as_json: AsJson = False) -> None:
    """Let a follower keep a view again (`pledger views follow`).

    It goes on exactly where the appends end. Also for a view that refuses appends: they go on, and the
    follower parks what fails.

    JSON: view, inline, changed.
    """
    session = session_of(context, as_json)
    from projections.views.attaching import detach as detach_view

    with session.ledger() as log:
        changed = detach_view(log, view, patience=patience)
    _told(session, view, False, changed)


def _told(session: Session, view: str, inline: bool, changed: bool) -> None:
    if session.json:
        json_line({"view": view, "inline": inline, "changed": changed})
        return
    by = "appends keep it" if inline else "a follower keeps it"
    session.say(f"view {view}: {by}{'' if changed else ', as before'}")
