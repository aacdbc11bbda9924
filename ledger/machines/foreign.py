"""The history of one object in the table of another system, beside what the ledger holds of it."""

from __future__ import annotations

from collections.abc import Sequence

from ..append import Append, append_of
from ..errors import BadInput
from ..frozen import FrozenDict, frozen
from ..recorded import Recorded
from ..store.transitions_table import Row
from .transition import MachineStream, Moved


class History:
    """One object on its way. rows: those of the present piece; number: how many were done with before.

    found: how many of the rows the ledger has. there, recorded: the same of all pieces, and how many are
    new. whole: no further rows come. differs: in what the ledger holds another history.
    """

    def __init__(self, key: tuple[str | int, ...], stream: MachineStream) -> None:
        self.key, self.stream = key, stream
        self.rows: list[Row] = []
        self.number = self.found = self.recorded = self.there = 0
        self.last: str | None = None
        self.whole = False
        self.differs: str | None = None

    @property
    def outcome(self) -> str:
        """What became of it, as `Adopted` counts it."""
        if self.differs is not None:
            return "differ"
        return "left" if not self.recorded else "continued" if self.there else "new"

    @property
    def missing(self) -> list[Row]:
        """The rows that the ledger has not."""
        return [] if self.differs is not None else self.rows[self.found :]

    def compare(self, moves: Sequence[Recorded]) -> None:
        """See which of the rows the ledger has; the state goes along with them."""
        self.found = 0
        for recorded, row in zip(moves, self.rows, strict=False):
            self.differs = self.differs or difference(recorded, row)
            if self.differs is not None:
                return
            self.stream.replay(recorded.event, recorded.recorded_at)
            self.found += 1

    def append(self, initial: str | None) -> Append:
        """The append of the rows that the ledger has not. initial: the state that objects begin in.

        Raises BadInput for what cannot be recorded.
        """
        last = self.rows[self.found - 1].to_state if self.found else self.last
        for row in self.missing:
            first = None if row.to_state == initial else initial
            before = row.from_state or (last if self.stream.state.moves else first)
            said = FrozenDict(frozen(dict(row.metadata)))
            self.stream.record(self.stream.MOVED(from_state=before, to_state=row.to_state, metadata=said))
            last = row.to_state
        try:
            return append_of(self.stream)
        except BadInput as error:
            error.add_note(f"so a row of {self.stream.name} says, after {len(self.stream.news)} that do not")
            raise

    def done(self) -> None:
        """The piece is done with."""
        self.there += self.found
        self.number += len(self.rows)
        self.last = self.rows[-1].to_state
        self.rows.clear()


def difference(recorded: Recorded, row: Row) -> str | None:
    """In what a move of the ledger is another than a row of the table; None where it is that row.

    A move without a claimed time was made in the ledger itself, and has no time to compare.
    """
    moved, claimed = recorded.event, recorded.meta.claimed_at
    place, other = f"move {recorded.version} of the ledger", f"the row with sort_key {row.sort_key}"
    if not isinstance(moved, Moved):
        return f"{place} is no move of a machine, but {recorded.topic}"
    if moved.to_state != row.to_state:
        return f"{place} led to {moved.to_state}, {other} to {row.to_state}"
    if dict(moved.metadata) != dict(frozen(dict(row.metadata))):
        return f"{place} says other metadata than {other}"
    if claimed is not None and claimed != row.at:
        return f"{place} was at {claimed.isoformat()}, {other} at {row.at and row.at.isoformat()}"
    return None
