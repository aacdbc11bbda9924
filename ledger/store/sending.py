"""Sending an append: one function call, one round trip, on whichever connection it is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import psycopg

from ..append import Append, Appended, digest_of, versions_after
from ..errors import BadInput, CommandReused, GuardFailed, StreamConflict
from ..expected import Exact, Guard
from ..frozen import FrozenDict
from . import sql as statements

Connection = psycopg.Connection[Any]


def send(connection: Connection, schema: str, appends: Sequence[Append], meta: str, command: str | None) -> Appended:
    """Record the appends, all or nothing, in the connection's transaction; autocommit makes it one of its own.

    Raises StreamConflict, GuardFailed or CommandReused with the transaction still usable, and psycopg's errors.
    """
    if len(appends) == 1 and len(appends[0].events) == 1:
        append = appends[0]
        if isinstance(append.expected, Exact) and append.set_token is None:
            return _send_one(connection, schema, append, append.expected.version, meta, command)
    return _send_many(connection, schema, sorted(appends, key=lambda a: a.stream.encode()), appends, meta, command)


def _send_one(
    connection: Connection, schema: str, append: Append, expected: int, meta: str, command: str | None
) -> Appended:
    body = append.events[0]
    row = connection.execute(
        statements.text("append_one", schema),
        (
            append.stream, expected, body.topic, body.schema, body.data, body.raw, body.meta or meta,
            append.head, append.status, append.state if append.base == expected else None, append.state_schema,
            command, digest_of((append,)) if command else None,
        ),
        prepare=True,
        binary=True,
    ).fetchone()  # fmt: skip
    assert row is not None
    outcome, position, version, at = row
    if outcome == "conflict":
        raise StreamConflict(append.stream, str(append.expected), version)
    if outcome == "reused":
        raise CommandReused(command or "")
    after = FrozenDict({append.stream: version})
    return Appended(position, position, at.astimezone(UTC), after, outcome == "repeated")


def _send_many(
    connection: Connection, schema: str, ordered: Sequence[Append], given: Sequence[Append], meta: str, command: str | None
) -> Appended:
    place = {append.stream: i for i, append in enumerate(ordered, 1)}
    if len(place) < len(ordered):
        raise BadInput("a stream is named twice in one append: put its events in one Append")
    bodies = [(place[a.stream], nth, body) for a in given for nth, body in enumerate(a.events, 1)]
    if not bodies:
        raise BadInput("nothing to append: no stream has an event")
    parameters = (
        json.dumps([_spec(append) for append in ordered]),
        [append.state for append in ordered],
        [of for of, _, _ in bodies],
        [nth for _, nth, _ in bodies],
        [body.topic for _, _, body in bodies],
        [body.schema for _, _, body in bodies],
        _column([body.data for _, _, body in bodies]),
        _column([body.raw for _, _, body in bodies]),
        _column([body.meta for _, _, body in bodies]),
        meta,
        command,
        digest_of(ordered) if command else None,
    )
    row = connection.execute(statements.text("append_many", schema), parameters, prepare=True, binary=True).fetchone()
    assert row is not None
    outcome, first, at, before, *found = row
    if outcome in ("recorded", "repeated"):
        after = versions_after(ordered, before)
        return Appended(first, first + len(bodies) - 1, at.astimezone(UTC), after, outcome == "repeated")
    raise _refusal(outcome, {append.stream: append for append in ordered}, command, *found)


def _refusal(
    outcome: str, appends: dict[str, Append], command: str | None, stream: str, version: int, status: str | None, token: int | None
) -> Exception:
    match outcome:
        case "reused":
            return CommandReused(command or "")
        case "guard":
            lease = "no lease" if token is None else f"lease token {token}"
            return GuardFailed(stream, str(appends[stream].expected), f"status {status or 'unknown'} and {lease}")
        case _:
            return StreamConflict(stream, str(appends[stream].expected), version)


def _spec(append: Append) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "stream": append.stream, "expected": append.expected_number, "head": append.head, "count": len(append.events),
        "status": append.status, "base": append.base, "schema": append.state_schema, "set_token": append.set_token,
    }  # fmt: skip
    if isinstance(append.expected, Guard):
        wanted = append.expected.statuses
        spec |= {"wanted": None if wanted is None else sorted(wanted), "token": append.expected.token}
    return spec


def _column(values: list[Any]) -> list[Any] | None:
    """None where no row has a value: an array of nulls has no element type of its own."""
    return values if any(value is not None for value in values) else None
