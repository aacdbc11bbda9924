"""Which objects of a machine are in which state, how many, and how long they stayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ledger import BadInput, InvalidState, Ledger, SchemaMismatch
from ledger.domain.names import split_name, stream_name
from ledger.errors import shown
from ledger.log.sql import Statements

from ..audit.moments import NOW, AsOf, Moment
from ..audit.states import Axis, Dwell, Question, Stay, dwell, states, stays
from ..feeds import filling_of
from .info import MachineInfo, MachineRef, machine_info


class ObjectInState(NamedTuple):
    """An object in a state: since when, and the version and position of the move into it."""

    key: tuple[str, ...]
    state: str
    since: datetime
    version: int
    position: int


class Count(NamedTuple):
    """The number of objects in a state, and since when the first is there; declared: by the definition."""

    state: str
    objects: int
    longest: datetime | None
    declared: bool


def in_state(
    ledger: Ledger,
    machine: MachineRef,
    *states: Any,
    longer_than: timedelta | None = None,
    limit: int | None = None,
    after: ObjectInState | None = None,
) -> list[ObjectInState]:
    """The objects that are in one of these states, by the view in_state.

    They are ordered by state, as in the definition, then by the time of the move into it. longer_than: only
    those that are there for longer. limit, after: a page, after the last object of the previous one. Objects
    that never moved are not in the view (`InState` finds them). Raises UnknownMachine, InvalidState,
    SchemaMismatch without the view.
    """
    known, wanted = _meant(ledger, _asked(ledger, machine), *states)
    ordered = [state for state in (*known.states, *known.dropped) if state in wanted]
    return _page(ledger, known, ordered, longer_than, limit, after)


def not_in_state(
    ledger: Ledger,
    machine: MachineRef,
    *states: Any,
    longer_than: timedelta | None = None,
    limit: int | None = None,
    after: ObjectInState | None = None,
) -> list[ObjectInState]:
    """The objects that moved and are in none of these states; the rest as in `in_state`.

    longer_than: only those that are in another state for longer.
    """
    known, refused = _meant(ledger, _asked(ledger, machine), *states)
    held = dict.fromkeys((*known.states, *_held(ledger, known)))
    ordered = [state for state in held if state not in refused]
    return _page(ledger, known, ordered, longer_than, limit, after)


def counts(ledger: Ledger, machine: MachineRef) -> list[Count]:
    """The number of objects in each state: all states of the definition in order, then those of old
    histories.

    Objects that never moved are not counted. Raises UnknownMachine, SchemaMismatch.
    """
    known = _asked(ledger, machine)
    rows = ledger.query(SQL.counts, machine=known.name)
    found = {state: (objects, longest.astimezone(UTC)) for state, objects, longest in rows}
    others = sorted(found.keys() - set(known.states))
    return [
        Count(state, *found.get(state, (0, None)), state in known.states)
        for state in (*known.states, *others)
    ]


def _asked(ledger: Ledger, machine: MachineRef) -> MachineInfo:
    known = machine_info(ledger, machine)
    if filling_of(ledger, "in_state") is None:
        raise SchemaMismatch(
            "the view in_state does not exist yet: run `pledger views follow in_state`, or let appends "
            "keep it with `pledger views attach in_state`"
        )
    return known


def _meant(ledger: Ledger, known: MachineInfo, *states: Any) -> tuple[MachineInfo, tuple[str, ...]]:
    """The given states; also states that no definition has, but that an object is in (an import)."""
    try:
        return known, known.checked(*states)
    except InvalidState:
        more = [state for state in _held(ledger, known) if state not in (*known.states, *known.dropped)]
        known = replace(known, dropped=(*known.dropped, *more))
        return known, known.checked(*states)


def _held(ledger: Ledger, known: MachineInfo) -> list[str]:
    """The states that objects are in."""
    return [state for (state,) in ledger.query(SQL.states_held, machine=known.name)]


def _page(
    ledger: Ledger,
    known: MachineInfo,
    states: Sequence[str],
    longer_than: timedelta | None,
    limit: int | None,
    after: ObjectInState | None,
) -> list[ObjectInState]:
    if limit is not None and limit < 0:
        raise BadInput(f"limit {shown(limit)} must be 0 or more")
    if after is not None:
        if after.state not in states:
            raise BadInput(f"after {shown(after)} is not in one of the requested states")
        states = states[states.index(after.state) :]
    rows = ledger.query(
        SQL.objects, machine=known.name, states=list(states), longer=longer_than, limit=limit,
        since=after and after.since, stream=after and stream_name(known.name, *after.key),
    )  # fmt: skip
    return [
        ObjectInState(split_name(stream)[1], state, since.astimezone(UTC), version, position)
        for stream, state, since, version, position in rows
    ]


SQL = Statements(__package__, "queries")
Key = str | int | tuple[str | int, ...] | None


def stays_of(
    ledger: Ledger, machine: MachineRef, key: Key = None, *, moment: Moment = NOW, axis: Axis = Axis.RECORDED
) -> tuple[AsOf, list[Stay]]:
    """Every stay in a state, of every object or the one of this key, up to a moment.

    As `projections.audit.stays`, for one machine. Raises UnknownMachine, BadInput.
    """
    return stays(ledger, _question(ledger, machine, key, moment, axis))


def dwell_of(
    ledger: Ledger,
    machine: MachineRef,
    key: Key = None,
    *,
    moment: Moment = NOW,
    axis: Axis = Axis.RECORDED,
    each: bool = False,
) -> tuple[AsOf, list[Dwell]]:
    """How long objects stay in each state, up to a moment: stays, median, 95th percentile, longest.

    each: by object. As `projections.audit.dwell`. Raises UnknownMachine, BadInput.
    """
    return dwell(ledger, _question(ledger, machine, key, moment, axis), each=each)


def who_was_in(
    ledger: Ledger, machine: MachineRef, *wanted: Any, moment: Moment, axis: Axis = Axis.RECORDED
) -> tuple[AsOf, list[ObjectInState]]:
    """The objects that were in one of these states at a moment, by key; without states, all that had moved.

    As `projections.audit.states`: from the events, without a view. Raises UnknownMachine, InvalidState,
    BadInput.
    """
    known = machine_info(ledger, machine)
    meant = known.checked(*wanted) if wanted else None
    one = meant[0] if meant is not None and len(meant) == 1 else None
    found, rows = states(ledger, _question(ledger, known, None, moment, axis), status=one)
    return found, [
        ObjectInState(split_name(row.stream)[1], row.status, row.since, row.version, row.position)
        for row in rows
        if meant is None or row.status in meant
    ]


def _question(ledger: Ledger, machine: MachineRef, key: Key, moment: Moment, axis: Axis) -> Question:
    known: MachineInfo = machine_info(ledger, machine)
    if key is None:
        return Question(moment, category=known.name, axis=axis)
    parts = key if isinstance(key, tuple) else (key,)
    return Question(moment, stream=stream_name(known.name, *parts), axis=axis)
