"""Chains: what caused an event, across streams, and what else that event or the same request caused."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

import psycopg

from ledger import Ledger, Recorded
from ledger.log.read import recorded
from ledger.log.sql import Statements, run

SQL = Statements(__package__, "chain")


DAY: Final = timedelta(days=1)
HIGHEST: Final = 1000
"""Maximum number of causes that are looked up, one from the other."""


class Node(NamedTuple):
    """One event of a tree: its depth, the position of its cause, and a note if something is wrong with that.

    cause: None if there is none in the tree. note: a cause that is not recorded or not shown, a circle.
    """

    event: Recorded
    depth: int
    cause: int | None
    note: str


@dataclass(frozen=True, slots=True)
class Why:
    """The requested event, and the tree around it, each event before those it caused.

    first, last: the positions between which the log was searched for its effects. more: whether there are
    more than the limit.
    """

    asked: Recorded
    nodes: tuple[Node, ...]
    first: int
    last: int
    more: bool


def why(ledger: Ledger, asked: Recorded, *, within: timedelta | None = DAY, limit: int = 200) -> Why:
    """What caused an event, what it caused, and the events of its correlation.

    Upwards, causes are looked up one by one, wherever they are. Downwards the log is searched from `within`
    before the event to `within` after it (None: all of it), until there are `limit` events.
    """
    bound = max(ledger.bound(), asked.position)
    with ledger.reader() as connection:
        first, last = _window(connection, ledger.schema, asked, within, bound)
        causes = [
            p for (p,) in run(connection, ledger.schema, SQL.chain, position=asked.position, limit=HIGHEST)
        ]
        below, more = _below(connection, ledger.schema, asked, first, last, limit)
        rows = run(connection, ledger.schema, SQL.caused_events, positions=sorted({*causes, *below}))
    events = {row[1]: recorded(row[1:]) for row in rows}
    return Why(asked, tuple(_tree(events, {row[1]: row[0] for row in rows})), first, last, more)


def _window(
    connection: psycopg.Connection[Any], schema: str, asked: Recorded, within: timedelta | None, bound: int
) -> tuple[int, int]:
    """The positions between which to search."""
    if within is None:
        return 0, bound
    try:
        times = (asked.recorded_at - within, asked.recorded_at + within)
    except OverflowError:
        return 0, bound
    first, last = (run(connection, schema, SQL.position_near, at=at)[0][0] for at in times)
    return min(first + 1, asked.position), min(max(last, asked.position), bound)


def _below(
    connection: psycopg.Connection[Any], schema: str, asked: Recorded, first: int, last: int, limit: int
) -> tuple[set[int], bool]:
    """Positions of events that it caused or that carry its correlation; whether there were more.

    The log is read once, in order, because a cause comes before its effect. If an event names a later one as
    its cause, and that one is found, the log is read again.
    """
    meta = asked.meta
    found = {asked.position}
    ours = {p for (p,) in run(connection, schema, SQL.append_of, command=meta.command)}
    wanted = {"correlation": meta.correlation, "first": first, "last": last}
    while True:
        early = []
        with closing(_linked(connection, schema, wanted)) as linked:
            for position, cause, same in linked:
                if same or cause in found or cause in ours:
                    if len(found) >= limit and position not in found:
                        return found, True
                    found.add(position)
                elif cause is not None and cause > position:
                    early.append((position, cause))
        if not (late := {position for position, cause in early if cause in found}):
            return found, False
        found |= late


def _linked(
    connection: psycopg.Connection[Any], schema: str, wanted: Mapping[str, Any]
) -> Generator[tuple[int, int | None, bool], None, None]:
    """Rows of `linked`, streamed: there may be as many as there are events."""
    with connection.transaction(), psycopg.ServerCursor(connection, "why") as cursor:
        cursor.itersize = 10_000
        yield from cursor.execute(SQL.linked.filled(schema), wanted, binary=True)


def _tree(events: Mapping[int, Recorded], causes: Mapping[int, int | None]) -> Iterator[Node]:
    """Each event before those it caused, beginning with those without a cause here; circles are cut."""
    parents = {position: _parent(position, events, causes) for position in events}
    children: dict[int | None, list[int]] = {}
    for position, parent in sorted(parents.items()):
        children.setdefault(parent, []).append(position)
    seen: set[int] = set()
    roots = [(position, _missing(events[position], causes[position])) for position in children.get(None, [])]
    yield from _walk(roots, events, parents, children, seen)
    for position in sorted(events):  # the rest is a circle, or below one
        if position not in seen:
            start = _on_circle(position, parents)
            note = f"a circle: its cause, position {parents[start]}, was caused by it"
            yield from _walk([(start, note)], events, parents, children, seen)


def _walk(
    roots: Sequence[tuple[int, str]],
    events: Mapping[int, Recorded],
    parents: Mapping[int, int | None],
    children: Mapping[int | None, list[int]],
    seen: set[int],
) -> Iterator[Node]:
    """The events at and below some, depth first; each once."""
    left = [(position, 0, note) for position, note in reversed(roots)]
    while left:
        position, depth, note = left.pop()
        if position not in seen:
            seen.add(position)
            yield Node(events[position], depth, parents[position], note)
            left += [(child, depth + 1, "") for child in reversed(children.get(position, []))]


def _parent(position: int, events: Mapping[int, Recorded], causes: Mapping[int, int | None]) -> int | None:
    """The event that caused this one, if it is among them: by its position, or the first of its command."""
    cause = causes[position]
    if cause is None or cause in events:
        return cause
    command = events[position].meta.causation
    return next((p for p in sorted(events) if events[p].meta.command == command), None)


def _missing(event: Recorded, cause: int | None) -> str:
    """The note for an event whose cause is not shown."""
    named = event.meta.causation
    if named is None:
        return ""
    if cause is not None:
        return f"its cause, position {cause}, is not among these"
    if isinstance(named, str):
        return f"its cause, command {named!r}, is not recorded"
    return f"its cause, position {named}, is not recorded"


def _on_circle(position: int, parents: Mapping[int, int | None]) -> int:
    """The lowest position of the circle that is reached by going up."""
    way: list[int] = []
    at: int | None = position
    while at is not None and at not in way:
        way.append(at)
        at = parents[at]
    return position if at is None else min(way[way.index(at) :])
