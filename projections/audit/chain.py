"""Chains: what caused an event, across streams, and what else came of it or of the same request."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

import psycopg

from ledger import Ledger, Recorded
from ledger.store.reading import recorded

from ..sql import query, statement

DAY: Final = timedelta(days=1)
HIGHEST: Final = 1000
"""Causes of causes that are looked up at most."""


class Node(NamedTuple):
    """One event of a tree: how deep it stands, the position of what caused it, and what is wrong with that.

    cause: None where there is none in the tree. note: a cause that is not recorded or not shown, a circle.
    """

    event: Recorded
    depth: int
    cause: int | None
    note: str


@dataclass(frozen=True, slots=True)
class Why:
    """The event that was asked for, and the tree around it, each event before what it caused.

    first, last: between these positions the log was searched for what came of it. more: there is more than
    was asked for.
    """

    asked: Recorded
    nodes: tuple[Node, ...]
    first: int
    last: int
    more: bool


def why(ledger: Ledger, asked: Recorded, *, within: timedelta | None = DAY, limit: int = 200) -> Why:
    """What caused an event, and what came of it and of its correlation.

    Upwards, causes are looked up one by one, wherever they are. Downwards the log is searched from `within`
    before the event to `within` after it (None: all of it), until there are `limit` events.
    """
    bound = max(ledger.bound(), asked.position)
    with ledger.reader() as connection:
        first, last = _window(connection, ledger.schema, asked, within, bound)
        causes = [
            p for (p,) in query(connection, ledger.schema, "chain", position=asked.position, limit=HIGHEST)
        ]
        below, more = _below(connection, ledger.schema, asked, first, last, limit)
        rows = query(connection, ledger.schema, "caused_events", positions=sorted({*causes, *below}))
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
    first, last = (query(connection, schema, "position_near", at=at)[0][0] for at in times)
    return min(first + 1, asked.position), min(max(last, asked.position), bound)


def _below(
    connection: psycopg.Connection[Any], schema: str, asked: Recorded, first: int, last: int, limit: int
) -> tuple[set[int], bool]:
    """Positions of what came of an event or carries its correlation; whether there were more.

    The log is read once, in order, as a cause stands before what it caused. Where an event names a later one
    as its cause, and that one is found, it is read again.
    """
    meta = asked.meta
    found = {asked.position}
    ours = {p for (p,) in query(connection, schema, "append_of", command=meta.command)}
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
    """Rows of `linked`, as they come: there may be as many as there are events."""
    with connection.transaction(), psycopg.ServerCursor(connection, "why") as cursor:
        cursor.itersize = 10_000
        yield from cursor.execute(statement("linked", schema), wanted, binary=True)


def _tree(events: Mapping[int, Recorded], causes: Mapping[int, int | None]) -> Iterator[Node]:
    """Each event before what it caused; those without a cause among them first, circles are cut open."""
    parents = {position: _parent(position, events, causes) for position in events}
    children: dict[int | None, list[int]] = {}
    for position, parent in sorted(parents.items()):
        children.setdefault(parent, []).append(position)
    seen: set[int] = set()
    roots = [(position, _missing(events[position], causes[position])) for position in children.get(None, [])]
    yield from _walk(roots, events, parents, children, seen)
    for position in sorted(events):  # what is left hangs below a circle, or is one
        if position not in seen:
            start = _on_circle(position, parents)
            note = f"a circle: its cause, position {parents[start]}, came of it"
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
    """What is to be said of an event whose cause is not shown."""
    named = event.meta.causation
    if named is None:
        return ""
    if cause is not None:
        return f"its cause, position {cause}, is not among these"
    if isinstance(named, str):
        return f"its cause, command {named!r}, is not recorded"
    return f"its cause, position {named}, is not recorded"


def _on_circle(position: int, parents: Mapping[int, int | None]) -> int:
    """The least position of the circle that one comes to by going up and up."""
    way: list[int] = []
    at: int | None = position
    while at is not None and at not in way:
        way.append(at)
        at = parents[at]
    return position if at is None else min(way[way.index(at) :])
