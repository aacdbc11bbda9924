"""A move in one round trip, where a machine's table alone decides: its states go along, the append looks.

The append finds the state in the head, compares it with those that the table allows the move from, and
appends at exactly that version: what opening the stream, deciding here and appending would do, with the same
conflicts.
Where something of the user's is asked or called, where the head does not show the state, or shows one that
does not allow the move, nothing happens, and the object is opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..append import Append, Appended, Body
from ..errors import BadInput, BadMetadata, LedgerBusy, StreamConflict, TransitionConflict
from ..expected import StandsIn
from ..state import Pending, dump
from ..store.beaten import beaten
from ..store.ledger import Ledger
from ..store.sending import NotThere
from .defining import number_of
from .definition import Definition, Edge
from .keeping import proposed
from .moving import fitting
from .transition import MachineStream, Moved, Standing, Transition

_WAS, _NUMBER = "\x03", "\x02"


def move_straight(
    ledger: Ledger,
    name: str,
    definition: Definition,
    stream: MachineStream,
    to_state: str,
    metadata: Mapping[str, Any],
    meta: Mapping[str, Any],
) -> Transition | None:
    """The move, recorded, with the fresh stream object brought to it; None where the object must be opened.

    Raises TransitionConflict, LedgerBusy, AppendUncertain, ServerUnavailable.
    """
    number, edges = number_of(ledger, name, definition), definition.straight.get(to_state)
    if not edges or not number:  # the first move of a process records the definition, if it is allowed
        return None
    try:
        said = fitting(edges[0], metadata)
        append = _append(stream, edges, said, number, definition.initial_state)
        appended = _appended(ledger, stream, append, meta)
    except (BadMetadata, BadInput, NotThere):
        return None
    before: dict[str, Any] = {"status": definition.initial_state, "moves": 0}
    if appended.before:
        before = json.loads(appended.before)
    now = Standing(to_state, before["moves"] + 1, before["status"], appended.recorded_at, said, number)
    stream.restore(now, appended.version)
    return proposed(stream, claimed_at=meta.get("claimed_at"))


def _appended(ledger: Ledger, stream: MachineStream, append: Append, meta: Mapping[str, Any]) -> Appended:
    try:
        return ledger.append_all([append], **meta)
    except StreamConflict as error:
        raise TransitionConflict(error.stream, error.expected, error.found, append.status) from error
    except LedgerBusy as error:
        conflict = beaten(ledger, [stream], error.__cause__, inside=False)
        if conflict is None:
            raise
        raise conflict from error


def _append(
    stream: MachineStream,
    edges: tuple[Edge, ...],
    said: Mapping[str, Any],
    number: int,
    initial: str | None,
) -> Append:
    to_state = edges[0].to_state
    texts = _texts_of_nothing_said if not said else _texts
    body, state = texts(stream.MOVED, to_state, said, number)
    return Append(
        stream.name,
        [Body(stream.MOVED.topic, stream.MOVED.schema_number, body)],
        _standing_in(tuple(edge.from_state for edge in edges), initial),
        status=to_state,
        state=state,
        state_schema=stream.state_schema(),
    )


def _texts(moved: type[Moved], to_state: str, said: Mapping[str, Any], number: int) -> tuple[str, str]:
    """The event and the state after it, with the marks for what the append knows."""
    # Neither can stand in what comes before them: a number, and a text in which a quote would be escaped.
    body = moved(to_state=to_state, metadata=said, definition=number).body()
    state = dump(Standing(to_state, 0, None, Pending.clock(), said, number))
    return (
        body.replace('"from_state":null', f'"from_state":{_WAS}', 1),
        state.replace('"moves":0,"from_state":null', f'"moves":{_NUMBER},"from_state":{_WAS}', 1),
    )


_texts_of_nothing_said = lru_cache(1000)(_texts)
"""Most moves say nothing, and then these are the same each time; they cost a third of a move."""


@lru_cache(1000)
def _standing_in(states: tuple[str, ...], initial: str | None) -> StandsIn:
    return StandsIn(json.dumps(states), initial if initial in states else None)
