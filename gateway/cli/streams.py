"""`pledger streams`, `history` and `show`: the recorded events, stream by stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import NotThere
from .moments import At, Position, as_of_json, moment_of, of_stream, told
from .output import (
    Column,
    Page,
    body,
    brief,
    event_json,
    fields,
    is_terminal,
    most,
    plain,
    table,
    time,
    titled,
    unacting,
    write,
)
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Ledger, Recorded
    from ledger.log.read import StreamInfo
    from projections.audit import Moment
    from projections.audit.snapshot import Snapshot

PAGE = 1000
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="List at most N. Default: 100 on a terminal, otherwise all."),
]
Name = Annotated[
    str, typer.Argument(metavar="STREAM", help="The stream's name, as `pledger streams` lists it.")
]


def streams(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only names with this prefix.")] = "",
    limit: Limit = None,
    after: Annotated[
        str, typer.Option(metavar="STREAM", help="Only names after this one, for the next page.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the streams by name.

    Shows the last version, the status, and the position and time of the last event of each stream.

    JSON, one object per line: stream, version, status, position, recorded_at.
    """
    session = session_of(context, as_json)
    columns = [Column("stream", keep=True), Column("version", number=True), Column("status"),
               Column("position", number=True), Column("last event")]  # fmt: skip
    with session.ledger() as log:
        page = Page(_listed(log, prefix, after), most(limit, 100))
        cells = attrgetter("stream", "version", "status", "position", "recorded_at")
        session.print_rows(page, columns, cells)
    if page.last is None:
        session.say(f"no stream starts with {prefix!r}" if prefix else "nothing is recorded yet")
    elif page.more:
        session.say(f"there are more: give --after {page.last.stream!r}, or a larger --limit")


def _listed(log: Ledger, prefix: str, after: str) -> Iterator[StreamInfo]:
    while page := log.streams(prefix, after=after, limit=PAGE):
        yield from page
        after = page[-1].stream


def history(
    context: typer.Context,
    stream: Name,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Show at most N. Default: all.")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Show the last event first.")] = False,
    after: Annotated[int, typer.Option(metavar="N", min=0, help="Only after this version.")] = 0,
    upto: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only up to this version.")] = None,
    at: At = None,
    position: Position = None,
    as_json: AsJson = False,
) -> None:
    """Show every event of one stream.

    Shows version, position, time, topic, actor and body of each event. With --at or --position: only the
    events up to that moment.

    JSON, one object per line: position, stream, version, topic, schema, recorded_at, actor, data, raw, meta.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        if at is not None or position is not None:
            then = _version_of(session, log, stream, moment_of(at, position))
            upto = then if upto is None else min(upto, then)
        events = islice(_recorded(log, stream, after=after, upto=upto, reverse=reverse), limit)
        if session.json:
            for event in events:
                write(event_json(event) + "\n")
            return
        table(EVENT, map(_event_row, events), color=session.color)


EVENT = [*titled("ver", "pos", number=True), *titled("time", "topic", "actor"), Column("body", rest=True)]
"""Columns of an event of one stream."""


def _version_of(session: Session, log: Ledger, stream: str, moment: Moment) -> int:
    found = of_stream(log, stream, moment)
    session.say(told(found))
    return found.version or 0


def _recorded(
    log: Ledger, stream: str, *, after: int = 0, upto: int | None = None, reverse: bool = False
) -> Iterator[Recorded]:
    """Events of a stream, page by page, after one version and up to another."""
    while events := log.read(stream, after=after, upto=upto, limit=PAGE, backwards=reverse):
        yield from events
        if reverse:
            upto = events[-1].version - 1
        else:
            after = events[-1].version


def _event_row(event: Recorded) -> list[Any]:
    told = brief(event) if is_terminal() else body(event)
    return [event.version, event.position, event.recorded_at, event.topic, event.meta.actor, told]


def show(
    context: typer.Context,
    stream: Name,
    version: Annotated[
        int | None, typer.Option("--version", "--at-version", metavar="N", min=1, help="As of a version.")
    ] = None,
    at: At = None,
    position: Position = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of one stream.

    The state now, or as of a version, a position or a time, folded from the stream's events. A stream of an
    unknown domain (see --domain) is shown without its state. JSON: stream, category, key, version, status,
    state (null if the domain is unknown), last_event (an object as in `history`), as_of (null for now;
    otherwise position, time, beyond, version).
    """
    session = session_of(context, as_json)
    session.know_domains()
    moment = moment_of(at, position, version)
    with session.ledger() as log:
        snapshot = _snapshot(log, stream, moment)
    if snapshot.found is not None and version is None:
        session.say(told(snapshot.found))
    _print_state(session, snapshot)


def _snapshot(log: Ledger, name: str, moment: Moment) -> Snapshot:
    from projections.audit.snapshot import snapshot_at, snapshot_now

    if moment == moment_of():
        return snapshot_now(log, name)
    found = of_stream(log, name, moment)
    snapshot = snapshot_at(log, name, found)
    if snapshot is None:
        raise NotThere(f"{name} has no event {told(found)}", stream=name, position=found.position)
    return snapshot


def _print_state(session: Session, snapshot: Snapshot) -> None:
    from ledger import split_name

    last = snapshot.last
    category, key = split_name(last.stream)
    state = None if snapshot.opened is None else plain(snapshot.opened.state)
    if session.json:
        start = {"stream": last.stream, "category": category, "key": list(key), "version": last.version}
        text = json.dumps({**start, "status": snapshot.status, "state": state}, ensure_ascii=False)[:-1]
        then = "null" if snapshot.found is None else json.dumps(as_of_json(snapshot.found))
        write(f'{unacting(text)}, "last_event": {event_json(last)}, "as_of": {then}}}\n')
        return
    who = f" by {last.meta.actor}" if last.meta.actor else ""
    pairs = [("stream", last.stream), ("version", str(last.version)), ("status", snapshot.status or "")]
    pairs += [("last event", f"{last.topic} at position {last.position}, {time(last.recorded_at)}{who}")]
    pairs += [(name, _told(value)) for name, value in (state or {}).items() if name != "status"]
    fields(pairs, color=session.color)
    if snapshot.opened is None:
        session.say(f"no imported domain folds {category!r} streams, so no state is shown; see --domain")


def _told(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)
