"""Who is in which state of a machine now, and how many are: questions to the view in_state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ledger import BadInput, InvalidState, Ledger, SchemaMismatch
from ledger.errors import shown
from ledger.names import split_name, stream_name

from ..feeds import filling_of
from ..sql import query
from .known import Known, Which, known_machine


class Placed(NamedTuple):
    """An object in a state, since when, and the move that led there: its number, its position in the log."""

    key: tuple[str, ...]
    state: str
    since: datetime
    version: int
    position: int


class Count(NamedTuple):
    """How many objects are in a state, and since when the first of them is; declared: the machine has it."""

    state: str
    objects: int
    longest: datetime | None
    declared: bool


def in_state(
    ledger: Ledger,
    machine: Which,
    *states: Any,
    longer_than: timedelta | None = None,
    limit: int | None = None,
    after: Placed | None = None,
) -> list[Placed]:
    """The objects that are in one of these states, as far as the view in_state has come.

    They come by state, in the order of the definition, and in each by the time when they came to it, who is
    there longest first. longer_than: only those that are there for longer. limit, after: a page, after the
    last of the one before. Objects that never moved are not known here (`InState` finds them).
    Raises UnknownMachine, InvalidState, SchemaMismatch where the view is not made yet.
    """
    known, wanted = _meant(ledger, _asked(ledger, machine), *states)
    ordered = [state for state in (*known.states, *known.dropped) if state in wanted]
    return _page(ledger, known, ordered, longer_than, limit, after)


def not_in_state(
    ledger: Ledger,
    machine: Which,
    *states: Any,
    longer_than: timedelta | None = None,
    limit: int | None = None,
    after: Placed | None = None,
) -> list[Placed]:
    """The objects that moved and are in none of these states; all else as in `in_state`.

    longer_than: only those that are in another state for longer.
    """
    known, refused = _meant(ledger, _asked(ledger, machine), *states)
    held = dict.fromkeys((*known.states, *_held(ledger, known)))
    ordered = [state for state in held if state not in refused]
    return _page(ledger, known, ordered, longer_than, limit, after)


def counts(ledger: Ledger, machine: Which) -> list[Count]:
    """How many objects are in each state: every one of the definition in its order, also where none is there;
    then those that only old histories hold. Raises UnknownMachine, SchemaMismatch.

    Objects that never moved are not known here: who has a table of them counts them in the initial state.
    """
    known = _asked(ledger, machine)
    with ledger.reader() as connection:
        rows = query(connection, ledger.schema, "machine_counts", machine=known.name)
    found = {state: (objects, longest.astimezone(UTC)) for state, objects, longest in rows}
    others = sorted(found.keys() - set(known.states))
    return [
        Count(state, *found.get(state, (0, None)), state in known.states)
        for state in (*known.states, *others)
    ]


def _asked(ledger: Ledger, machine: Which) -> Known:
    known = known_machine(ledger, machine)
    if filling_of(ledger, "in_state") is None:
        raise SchemaMismatch(
            "the view in_state is not made yet: run `pledger views follow in_state`, or let appends keep it "
            "with `pledger views attach in_state`"
        )
    return known


def _meant(ledger: Ledger, known: Known, *states: Any) -> tuple[Known, tuple[str, ...]]:
    """The states that are asked for; also those that no definition has, but somebody is in (an import)."""
    try:
        return known, known.checked(*states)
    except InvalidState:
        more = [state for state in _held(ledger, known) if state not in (*known.states, *known.dropped)]
        known = replace(known, dropped=(*known.dropped, *more))
        return known, known.checked(*states)


def _held(ledger: Ledger, known: Known) -> list[str]:
    """The states in which somebody is."""
    with ledger.reader() as connection:
        rows = query(connection, ledger.schema, "machine_states_held", machine=known.name)
    return [state for (state,) in rows]


def _page(
    ledger: Ledger,
    known: Known,
    states: Sequence[str],
    longer_than: timedelta | None,
    limit: int | None,
    after: Placed | None,
) -> list[Placed]:
    if limit is not None and limit < 0:
        raise BadInput(f"limit {shown(limit)} must be 0 or more")
    if after is not None:
        if after.state not in states:
            raise BadInput(f"after {shown(after)} is in none of the states that are asked for")
        states = states[states.index(after.state) :]
    with ledger.reader() as connection:
        rows = query(
            connection, ledger.schema, "machine_objects", machine=known.name, states=list(states),
            longer=longer_than, limit=limit, since=after and after.since,
            stream=after and stream_name(known.name, *after.key),
        )  # fmt: skip
    return [
        Placed(split_name(stream)[1], state, since.astimezone(UTC), version, position)
        for stream, state, since, version, position in rows
    ]
