"""`pledger as-of`: the whole ledger as of a position or a time, in a schema of its own for SQL queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import NotThere
from .moments import At, Position, moment_of
from .output import Column, json_line, local, plain
from .session import AsJson, Session, session_of
from .stderr import Progress, show_progress
from .views import views_for

if TYPE_CHECKING:
    from projections.time_travel import Past
    from projections.time_travel.make import Making

Names = Annotated[
    list[str] | None, typer.Argument(metavar="VIEW", help="Only these views. Default: all known views.")
]
Where = Annotated[int, typer.Argument(metavar="POSITION", min=0, help="The position of the copy.")]


def make(
    context: typer.Context,
    views: Names = None,
    at: At = None,
    position: Position = None,
    as_json: AsJson = False,
) -> None:
    """Make a copy of the ledger as of a position or a time; by default as it is now.

    The copy is a schema of its own, LEDGER_as_of_POSITION, with the views and their counters, `heads`
    (version, status and state of every stream), and `events`. It does not change until it is dropped. A copy
    that exists already is not made again.

    \b
    Examples:
      pledger as-of make --at 14:00
      pledger as-of make in_state --position 120000

    JSON: schema, position, time, made_at, events, streams, views, parked, unfolded, whole, new, beyond.
    """
    session = session_of(context, as_json)
    moment = moment_of(at, position)
    wanted = views_for(session, views or ())
    from projections.time_travel import as_of

    with session.ledger() as log, show_progress(session) as shown:
        past = as_of(log, position=moment.position, time=moment.time, views=wanted, progress=_told(shown))
    _show(past, session)


def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the copies.

    JSON, one object per line, as `make` prints it.
    """
    session = session_of(context, as_json)
    from projections.time_travel import pasts

    with session.ledger() as log:
        found = pasts(log)
    columns = [Column("schema"), Column("position", number=True), Column("time"), Column("made at"),
               Column("events", number=True), Column("views", keep=True)]  # fmt: skip
    session.print_rows(found, columns, _row, data=_as_json)


def drop(context: typer.Context, position: Where, as_json: AsJson = False) -> None:
    """Drop the copy of a position.

    Exits 3 if there is no such copy, 4 if it is in use by readers. JSON: dropped.
    """
    session = session_of(context, as_json)
    from projections.time_travel import drop as drop_past

    with session.ledger() as log:
        if not drop_past(log, position):
            raise NotThere(f"there is no copy as of position {position}", position=position)
    if session.json:
        json_line({"dropped": position})
    else:
        session.say(f"the copy as of position {position} is dropped")


def _told(shown: Progress) -> Any:
    """Shows the progress of making a copy."""
    tasks = {"events": shown.task("events"), "states": shown.task("states", "streams")}

    def tell(step: Making) -> None:
        tasks[step.what].update(step.done, step.total)

    return tell


def _show(past: Past, session: Session) -> None:
    time = None if past.time is None else local(past.time)
    shown = {name: getattr(past, name) for name in ("schema", "position", "events", "streams", "views")}
    session.print_fields(
        _as_json(past), {"schema": past.schema, "position": past.position, "time": time} | shown
    )
    if session.json:
        return
    if past.beyond:
        session.say("that is beyond the end of the log, so this is the end of the log")
    if past.parked or past.unfolded:
        session.say(
            f"{past.parked} streams are left out of a view (table parked), "
            f"{past.unfolded} states could not be folded"
        )
    session.say(f"to read it: SET search_path TO {past.schema}")


def _row(past: Past) -> tuple[Any, ...]:
    if past.made_at is None:
        return past.schema, past.position, "", "", "", "incomplete: make it again, or drop it"
    time = past.time and local(past.time)
    return past.schema, past.position, time, local(past.made_at), past.events, past.views


def _as_json(past: Past) -> dict[str, Any]:
    return dict(plain(past))
