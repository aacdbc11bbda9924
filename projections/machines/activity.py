"""How much was moved in each machine: objects, moves, and when the last move was."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from ledger import Ledger

from ..feeds import filling_of
from ..sql import query


class Activity(NamedTuple):
    """What objects did in a machine. last_move: None where none ever moved."""

    objects: int = 0
    moves: int = 0
    last_move: datetime | None = None


def activity(ledger: Ledger, machines: Sequence[str]) -> dict[str, Activity]:
    """The activity of machines by name, as far as the view in_state has come; of the events without it."""
    made = filling_of(ledger, "in_state") is not None
    statement = "machine_activity" if made else "machine_activity_of_events"
    with ledger.reader() as connection:
        rows = query(connection, ledger.schema, statement, machines=list(machines))
    found = {name: Activity(objects, moves, at.astimezone(UTC)) for name, objects, moves, at in rows}
    return {name: found.get(name, Activity()) for name in machines}
