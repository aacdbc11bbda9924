"""`pledger changes`: the changes of a view as they happen: streams that enter states, progress of sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import Misuse
from .log import END, Follow, Limit, batches_of
from .output import clean, flush, iso, json_line, plain, write
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Cursor, Ledger
    from projections.engine.follower import BaseFollower


class Feed(StrEnum):
    """What can be followed."""

    IN_STATE = "in_state"
    PROGRESS = "progress"


Which = Annotated[Feed, typer.Argument(help="The view.")]
Category = Annotated[
    str | None, typer.Option(metavar="C", help="Only streams, or units of sets, of this category.")
]
Statuses = Annotated[
    list[str] | None,
    typer.Option("--status", metavar="S", help="Only streams that enter this status. Repeatable."),
]
After = Annotated[
    str, typer.Option(metavar="POSITION", help="Only changes after this position; `end`: only new changes.")
]


def changes(
    context: typer.Context,
    view: Which,
    follow: Follow = False,
    category: Category = None,
    status: Statuses = None,
    after: After = "0",
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed in a view: in_state, progress.

    in_state: each change of a stream's status, in order. progress: the sets that have changed, each with its
    present counts. Shows only what readers of the view can see.

    POSITION may also be a cursor of this feed. JSON, one object per line: for in_state position, stream,
    version, topic, before, status, at; for progress category, parent, present, running, done, failed, total,
    percent, position, at.
    """
    if status and view is Feed.PROGRESS:
        raise Misuse("--status is only for `changes in_state`: a set has no status")
    session = session_of(context, as_json)
    with session.ledger() as log:
        feed = _feed(log, view, category, status, after)
        _advise(session, log, view)
        line = _line_of(session, view)
        wanted = (change for batch in _batches(feed, log, follow) for change in batch)
        for change in islice(wanted, limit):
            line(change)
            if follow:
                flush()


def _batches(feed: BaseFollower[Any], log: Ledger, follow: bool) -> Iterator[list[Any]]:
    """The batches that exist now; a set that changes meanwhile is shown in its later state."""
    if follow:
        yield from batches_of(feed, log, follow)
    end = log.bound()
    while feed.position < end and (found := feed.poll()):
        yield found


def _feed(
    log: Ledger, view: Feed, category: str | None, statuses: list[str] | None, after: str
) -> BaseFollower[Any]:
    from ledger import Cursor
    from projections.feeds import ProgressChanges, ProgressCursor, StateChanges

    if view is Feed.IN_STATE:
        start = _start(log, after, Cursor)
        return StateChanges(log, category=category, statuses=statuses or None, after=start)
    return ProgressChanges(log, category=category, after=_start(log, after, ProgressCursor))


def _start(log: Ledger, after: str, kind: type[Cursor]) -> int | Cursor:
    if after == END:
        return log.bound()
    if after.isascii() and after.isdigit():
        return int(after)
    if ":" in after:
        return kind.parse(after)
    raise Misuse(f"--after {after!r} is not a position: give a number of 0 or more, a cursor, or `end`")


def _advise(session: Session, log: Ledger, view: Feed) -> None:
    from projections.feeds import filling_of

    if filling_of(log, view.value) is None:
        session.say(f"the view {view.value} does not exist yet: run `pledger rebuild {view.value}`")


def _line_of(session: Session, view: Feed) -> Callable[[Any], None]:
    if session.json:
        return lambda change: json_line(plain(change))
    return _entered if view is Feed.IN_STATE else _progressed


def _entered(change: Any) -> None:
    """Position, time, stream, version, topic, the state before (empty if there was none), the state."""
    values = (change.stream, str(change.version), change.topic, change.before or "", change.status)
    _write(str(change.position), iso(change.at), *values)


def _progressed(change: Any) -> None:
    """Position, time, category, parent, present, running, done, failed, total, percent."""
    sizes = (change.present, change.running, change.done, change.failed, change.total, change.percent)
    shown = ("" if size is None else str(size) for size in sizes)
    _write(str(change.position), iso(change.at), change.category, change.parent, *shown)


def _write(*values: str) -> None:
    write("\t".join(map(clean, values)) + "\n")
