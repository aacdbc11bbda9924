"""What was recorded together: the events of one append."""

from __future__ import annotations

from ..recorded import Recorded
from . import reading
from .ledger import Ledger


def recorded_with(ledger: Ledger, event: Recorded) -> list[Recorded]:
    """The events of the append that recorded this one, by position; the first time and ever after the same.

    They stand side by side and carry one time, which is how they are known. Two appends of the same
    microsecond that stand side by side are taken for one.
    """
    with ledger.reader() as connection:
        rows = reading.query(
            connection, ledger.schema, "recorded_with", position=event.position, at=event.recorded_at
        )
    return [reading.recorded(row) for row in rows]
