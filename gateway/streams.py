"""`pledger streams`, `history` and `show`: what is recorded, stream by stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .codes import NotThere
from .plain import body, event_json, iso, local, plain
from .printing import Column, fields, is_terminal, json_line, table, write
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Ledger, Recorded, Stream
    from ledger.store.reading import StreamInfo

PAGE = 1000
Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name, such as `streams` lists it.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (streams, history, show):
        app.command()(command)


def streams(
    context: typer.Context,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Only names that start so.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 100,
    after: Annotated[
        str, typer.Option(metavar="STREAM", help="Only names after this one: the next page.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """List the streams by name.

    Each with its last version, its status, and the position and time of its last event.

    JSON, one object a line: stream, version, status, position, recorded_at.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        found = list(islice(_listed(log, prefix, after), limit + 1))
    shown = found[:limit]
    if session.json:
        for info in shown:
            json_line(plain(info))
    else:
        columns = [Column("stream", keep=True), Column("version", number=True), Column("status"),
                   Column("position", number=True), Column("last event")]  # fmt: skip
        table(columns, map(_row, shown), color=session.color)
    if not found:
        session.say(f"no stream starts with {prefix!r}" if prefix else "nothing is recorded yet")
    if len(found) > limit:
        session.say(f"there are more: --after {shown[-1].stream!r}, or a larger --limit")


def _listed(log: Ledger, prefix: str, after: str) -> Iterator[StreamInfo]:
    while page := log.streams(prefix, after=after, limit=PAGE):
        yield from page
        after = page[-1].stream


def _row(info: StreamInfo) -> list[str]:
    at = local(info.recorded_at) if is_terminal() else iso(info.recorded_at)
    return [info.stream, str(info.version), info.status or "", str(info.position), at]


def history(
    context: typer.Context,
    stream: Name,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="At most so many; all by default.")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The last event first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every event of one stream.

    Each with its version, position, time, topic, actor and body.

    JSON, one object a line: position, stream, version, topic, schema, recorded_at, actor, data, raw, meta.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        events = islice(_recorded(log, stream, reverse=reverse), limit)
        if session.json:
            for event in events:
                write(event_json(event) + "\n")
            return
        columns = [Column("ver", number=True), Column("pos", number=True), Column("time")]
        columns += [Column("topic"), Column("actor"), Column("body", rest=True)]
        table(columns, map(_event_row, events), color=session.color)


def _recorded(
    log: Ledger, stream: str, *, upto: int | None = None, reverse: bool = False
) -> Iterator[Recorded]:
    """Events of a stream, page by page, up to a version."""
    after = 0
    while events := log.read(stream, after=after, upto=upto, limit=PAGE, backwards=reverse):
        yield from events
        if reverse:
            upto = events[-1].version - 1
        else:
            after = events[-1].version


def _event_row(event: Recorded) -> list[str]:
    at = local(event.recorded_at) if is_terminal() else iso(event.recorded_at)
    return [str(event.version), str(event.position), at, event.topic, event.meta.actor or "", body(event)]


def show(
    context: typer.Context,
    stream: Name,
    at_version: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="As it was at this version.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of one stream.

    Now or as of a version, folded from its events. A stream whose domain is not known here (see --domain) is
    shown without its state. JSON: stream, category, key, version, status, state (null where not known),
    last_event (an object as in `history`).
    """
    session = session_of(context, as_json)
    session.know_domains()
    with session.ledger() as log:
        last, opened = _seen(log, stream, at_version)
        if opened is not None:
            status = opened.state.status
        else:
            head = log.head(stream)
            status = head.status if head is not None and head.version == last.version else None
    _print_state(session, last, opened, None if status is None else str(status))


def _seen(log: Ledger, name: str, at_version: int | None) -> tuple[Recorded, Stream[Any, Any] | None]:
    """The last event that counts, and the stream folded up to it, None where no domain here knows it."""
    (newest,) = log.read(name, limit=1, backwards=True)
    if at_version is not None and at_version > newest.version:
        message = f"{name} has {newest.version} version(s), not {at_version}"
        raise NotThere(message, stream=name, version=newest.version)
    stream, version = _unfolded(name), newest.version if at_version is None else at_version
    if stream is not None and at_version is None:
        stream = log.load(type(stream), *stream.key)
        version = stream.version
    elif stream is not None:
        for event in _recorded(log, name, upto=version):
            stream.replay(event.event, event.recorded_at)
    return newest if newest.version == version else log.read(name, after=version - 1, upto=version)[0], stream


def _unfolded(name: str) -> Stream[Any, Any] | None:
    """A fresh stream of this name, None where no domain of this process would give a stream that name."""
    from ledger import BadName, split_name
    from ledger.stream import CATEGORIES

    category, key = split_name(name)
    try:
        stream = CATEGORIES[category](*key)
    except (KeyError, BadName, TypeError, ValueError):
        return None
    return stream if stream.name == name else None


def _print_state(
    session: Session, last: Recorded, opened: Stream[Any, Any] | None, status: str | None
) -> None:
    from ledger import split_name

    category, key = split_name(last.stream)
    state = None if opened is None else plain(opened.state)
    if session.json:
        name = {"stream": last.stream, "category": category, "key": list(key)}
        start = json.dumps(
            {**name, "version": last.version, "status": status, "state": state}, ensure_ascii=False
        )
        start = start[:-1]
        write(f'{start}, "last_event": {event_json(last)}}}\n')
        return
    at = local(last.recorded_at) if is_terminal() else iso(last.recorded_at)
    who = f" by {last.meta.actor}" if last.meta.actor else ""
    pairs = [("stream", last.stream), ("version", str(last.version)), ("status", status or "")]
    pairs += [("last event", f"{last.topic} at position {last.position}, {at}{who}")]
    pairs += [(name, _told(value)) for name, value in (state or {}).items() if name != "status"]
    fields(pairs, color=session.color)
    if opened is None:
        session.say(f"no domain known here folds {category!r} streams, so no state is shown; see --domain")


def _told(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)
