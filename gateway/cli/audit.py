"""`pledger diff`, `blame` and `why`: what changed in a stream, who changed it, and what caused that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import NotThere
from .moments import At, Position, as_of_json, moment_of, of_stream, told
from .output import Column, is_terminal, iso, json_line, table, titled
from .session import AsJson, Session, session_of
from .streams import Name

if TYPE_CHECKING:
    from ledger import Recorded
    from projections.audit import Blame, Change, Differences, Why
    from projections.audit.chain import Node

Ends = "`7` is a version, `@123` a position, all else a time, such as 14:00 or now-2h."
From = Annotated[str, typer.Option("--from", metavar="MOMENT", help=f"The first moment. {Ends}")]
To = Annotated[str | None, typer.Option("--to", metavar="MOMENT", help="The second moment. Default: now.")]
Version = Annotated[int | None, typer.Option("--version", metavar="N", min=1, help="As of a version.")]


# One stream


def diff(
    context: typer.Context,
    stream: Name,
    from_: From,
    to: To = None,
    every: Annotated[bool, typer.Option("--all", help="Show every change between the moments.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what differs in a stream between two moments.

    Shows each changed field with its old and new value, and the event that changed it last: its version,
    position, topic, actor and time. For a stream of an unknown domain (see --domain), the last value of each
    field in its events is compared.

    \b
    Examples:
      pledger diff lsm.strip/brain-7/1/0/3 --from 2
      pledger diff lsm.strip/brain-7/1/0/3 --from now-1d --to @51234 --all

    JSON, one object: stream, known (whether a domain folded it), from and to (position, time, beyond,
    version), changes (field, path, old, new, version, position, topic, actor, recorded_at; old or new is
    missing if the field was missing then).
    """
    from projections.audit import Moment
    from projections.audit import diff as compared
    from projections.audit.snapshot import know_machine

    session = session_of(context, as_json)
    session.know_domains()
    ends = [Moment.parse(from_), Moment() if to is None else Moment.parse(to)]
    with session.ledger() as log:
        for end in ends:
            of_stream(log, stream, end)
        know_machine(log, stream)
        found = compared(log, stream, *ends)
    session.say(f"from version {found.before.version}, {told(found.before)}")
    session.say(f"to version {found.after.version}, {told(found.after)}")
    _advise(session, found.known)
    _print_changes(session, found, every)


def _print_changes(session: Session, found: Differences, every: bool) -> None:
    from projections.audit import Change, path_text

    rows = [(Change(*field[:3]), field.event) for field in found.fields]
    if every:
        rows = [(change, step.event) for step in found.steps for change in step.changes]
    if session.json:
        start = {"stream": found.stream, "known": found.known}
        start |= {"from": as_of_json(found.before), "to": as_of_json(found.after)}
        json_line({**start, "changes": [{**_change(change), **_by(event)} for change, event in rows]})
        return
    columns = [Column("field", keep=True), Column("old", keep=True), Column("new", keep=True), *BY]
    lines = ([path_text(c.path), _value(c.old), _value(c.new), *_by_row(event)] for c, event in rows)
    table(columns, lines, color=session.color)


def _change(change: Change) -> dict[str, Any]:
    from projections.audit import path_text
    from projections.audit.differences import ABSENT

    known = {"field": path_text(change.path), "path": list(change.path)}
    return known | {
        name: value for name, value in (("old", change.old), ("new", change.new)) if value is not ABSENT
    }


def blame(
    context: typer.Context,
    stream: Name,
    version: Version = None,
    at: At = None,
    position: Position = None,
    as_json: AsJson = False,
) -> None:
    """Show who last set each field of a stream's state.

    Shows each field with its value, and the version, position, topic, actor and time of the last event that
    changed it; a field that no event has changed is shown without them. The state is the present one, or as
    of a version, a position or a time. For streams of an unknown domain see `diff`.

    JSON, one object: stream, known, as_of (position, time, beyond, version), fields (field, path, value,
    version, position, topic, actor, recorded_at).
    """
    from projections.audit import blame as blamed
    from projections.audit.snapshot import know_machine

    session = session_of(context, as_json)
    session.know_domains()
    moment = moment_of(at, position, version)
    with session.ledger() as log:
        of_stream(log, stream, moment)
        know_machine(log, stream)
        found = blamed(log, stream, moment)
    session.say(f"version {found.as_of.version}, {told(found.as_of)}")
    _advise(session, found.known)
    _print_blame(session, found)


def _print_blame(session: Session, found: Blame) -> None:
    from projections.audit import path_text

    if session.json:
        lines = [
            {"field": path_text(path), "path": list(path), "value": value, **_by(event)}
            for path, value, event in found.lines
        ]
        start = {"stream": found.stream, "known": found.known, "as_of": as_of_json(found.as_of)}
        json_line({**start, "fields": lines})
        return
    columns = [Column("field", keep=True), Column("value", keep=True), *BY]
    rows = ([path_text(path), _value(value), *_by_row(event)] for path, value, event in found.lines)
    table(columns, rows, color=session.color)


BY = [*titled("ver", "pos", number=True), *titled("topic", "actor", "time")]
"""Columns of the event that made a change."""


def _by(event: Recorded | None) -> dict[str, Any]:
    names = ("version", "position", "topic")
    known = {name: None if event is None else getattr(event, name) for name in names}
    at = None if event is None else iso(event.recorded_at)
    return known | {"actor": None if event is None else event.meta.actor, "recorded_at": at}


def _by_row(event: Recorded | None) -> list[Any]:
    if event is None:
        return [None] * len(BY)
    return [event.version, event.position, event.topic, event.meta.actor, event.recorded_at]


def _value(value: Any) -> str:
    """A value as JSON, so that text and numbers differ; empty if there is none."""
    from projections.audit.differences import ABSENT

    return "" if value is ABSENT else json.dumps(value, ensure_ascii=False)


def _advise(session: Session, known: bool) -> None:
    if not known:
        session.say("no imported domain folds this stream: these are the fields of its events; see --domain")


# Across streams


def why(
    context: typer.Context,
    stream: Name,
    version: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The version of the event. Default: the last.")
    ] = None,
    within: Annotated[
        str,
        typer.Option(metavar="SPAN", help="Search within this span around the event, such as 12h, or `all`."),
    ] = "1d",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Show at most N events.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Show the causes and consequences of an event, as a tree across streams.

    Above the event: its cause, the cause of that, and so on, in any stream. Below: the events that name it as
    their cause, and those with its correlation, within a span of time. The event itself is marked with *.

    JSON, one object per line, causes before consequences: depth, cause (position, null if its cause is not
    shown), asked, note, and stream, version, position, topic, recorded_at, actor, correlation, causation.
    """
    from projections.audit import why as chain
    from projections.audit.moments import parse_span

    session = session_of(context, as_json)
    span = None if within == "all" else parse_span(within)
    with session.ledger() as log:
        found = log.read(stream, upto=version, limit=1, backwards=True)
        if version is not None and (not found or found[0].version != version):
            of_stream(log, stream, moment_of(version=version))
            raise NotThere(f"{stream} has no version {version}", stream=stream)
        answer = chain(log, found[0], within=span, limit=limit)
    _print_why(session, answer)


def _print_why(session: Session, answer: Why) -> None:
    nodes = answer.nodes
    if session.json:
        for node in nodes:
            json_line(_node(node, answer.asked))
    elif is_terminal():
        columns = [Column("pos", number=True), Column("time"), Column("event", keep=True), Column("actor")]
        noted = any(node.note for node in nodes)
        columns += [Column("note", keep=True)] * noted
        rows = (_node_row(node, answer.asked)[: len(columns)] for node in nodes)
        table(columns, rows, color=session.color)
    else:
        table([], (_node_cells(node, answer.asked) for node in nodes), color=False)
    more = f"; there are more than {len(nodes)} events: see --limit" if answer.more else ""
    session.say(f"searched positions {answer.first} to {answer.last} (--within){more}")


def _node(node: Node, asked: Recorded) -> dict[str, Any]:
    event = node.event
    own = {"depth": node.depth, "cause": node.cause, "asked": event.position == asked.position}
    place = {"stream": event.stream, "version": event.version, "position": event.position}
    why = {"correlation": event.meta.correlation, "causation": event.meta.causation}
    return {
        **own, "note": node.note, **place, "topic": event.topic, "recorded_at": iso(event.recorded_at),
        "actor": event.meta.actor, **why,
    }  # fmt: skip


def _node_cells(node: Node, asked: Recorded) -> list[Any]:
    """Depth, position, time, stream, version, topic, actor, the mark and the note."""
    event = node.event
    place = [event.position, event.recorded_at, event.stream, event.version, event.topic]
    mark = "*" if event.position == asked.position else ""
    return [node.depth, *place, event.meta.actor, mark, node.note]


def _node_row(node: Node, asked: Recorded) -> list[Any]:
    event = node.event
    branch = "  " * (node.depth - 1) + "└ " if node.depth else ""
    mark = "* " if event.position == asked.position else ""
    text = f"{branch}{mark}{event.topic}  {event.stream}@{event.version}"
    return [event.position, event.recorded_at, text, event.meta.actor, node.note]
