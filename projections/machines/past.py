"""The past of a machine: how long objects stay in each state, and who was where when. Asked of the audit."""

from __future__ import annotations

from typing import Any

from ledger import Ledger
from ledger.names import split_name, stream_name

from ..audit.moments import NOW, AsOf, Moment
from ..audit.states import Axis, Dwell, Question, Stay, dwell, states, stays
from .known import Known, Which, known_machine
from .queries import Placed

Key = str | int | tuple[str | int, ...] | None


def stays_of(
    ledger: Ledger, machine: Which, key: Key = None, *, moment: Moment = NOW, axis: Axis = Axis.RECORDED
) -> tuple[AsOf, list[Stay]]:
    """Every stay of every object in a state, or of the one of this key, up to a moment.

    As `projections.audit.stays`: of the streams of this machine. Raises UnknownMachine, BadInput.
    """
    return stays(ledger, _question(ledger, machine, key, moment, axis))


def dwell_of(
    ledger: Ledger,
    machine: Which,
    key: Key = None,
    *,
    moment: Moment = NOW,
    axis: Axis = Axis.RECORDED,
    each: bool = False,
) -> tuple[AsOf, list[Dwell]]:
    """How long objects stay in each state, up to a moment: stays, median, 95th of a hundred, longest.

    each: by object. As `projections.audit.dwell`. Raises UnknownMachine, BadInput.
    """
    return dwell(ledger, _question(ledger, machine, key, moment, axis), each=each)


def who_was_in(
    ledger: Ledger, machine: Which, *wanted: Any, moment: Moment, axis: Axis = Axis.RECORDED
) -> tuple[AsOf, list[Placed]]:
    """The objects that were in one of these states at a moment, by key; of no state named, in any.

    As `projections.audit.states`: from the events, so without a view. Objects that had not moved by then are
    not known. Raises UnknownMachine, InvalidState, BadInput.
    """
    known = known_machine(ledger, machine)
    meant = known.checked(*wanted) if wanted else None
    one = meant[0] if meant is not None and len(meant) == 1 else None
    found, rows = states(ledger, _question(ledger, known, None, moment, axis), status=one)
    return found, [
        Placed(split_name(row.stream)[1], row.status, row.since, row.version, row.position)
        for row in rows
        if meant is None or row.status in meant
    ]


def _question(ledger: Ledger, machine: Which, key: Key, moment: Moment, axis: Axis) -> Question:
    known: Known = known_machine(ledger, machine)
    if key is None:
        return Question(moment, category=known.name, axis=axis)
    parts = key if isinstance(key, tuple) else (key,)
    return Question(moment, stream=stream_name(known.name, *parts), axis=axis)
