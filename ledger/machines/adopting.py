"""
Adopts the table of transitions of another system: each of its rows is a move, in the order of `sort_key`.

    adopt(log, "payment", "payment_transitions", parent="payment_id")

Nothing is recorded twice: what the ledger holds of an object is compared with the table, row by row, and only
what comes after it is appended, exactly there. So a run that was killed goes on where it stopped, and a later
run takes what the other system has added since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from .. import canon
from ..append import Append, digest_of
from ..errors import BadInput, BadTable, StreamConflict
from ..frozen import FrozenDict
from ..recorded import Recorded
from ..store import reading, transitions_table
from ..store.declaring import Move, declare_moves
from ..store.dsn import resolve
from ..store.ledger import Ledger
from ..store.transitions_table import Row
from .defining import MachineDefinition
from .foreign import History
from .machine import MACHINES, Machine
from .transition import MachineStream, stream_of

BATCH: Final = 1000
"""Moves of one append."""
TRIES: Final = 5
"""How often a piece is looked at again, where others move its objects meanwhile."""
SHOWN: Final = 20
"""Objects that differ and are named; the others are counted."""
Progress = Callable[[int, int], None]
"""Told after each piece: rows so far, rows in all."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """What was adopted. rows: those of the table; skipped: those of which no move can be made (`force`).

    parents: the objects, each either new, continued, left (the ledger held all its rows), or differing (its
    first moves in the ledger are others, and it was left as it is). recorded, there: moves, those that are
    new and those that the ledger held. differing: the first of those that differ, each with the reason.
    """

    rows: int = 0
    skipped: int = 0
    parents: int = 0
    new: int = 0
    continued: int = 0
    left: int = 0
    differ: int = 0
    recorded: int = 0
    there: int = 0
    differing: tuple[tuple[str, str], ...] = ()


def adopt(
    ledger: Ledger,
    machine: str | type[Machine],
    table: str,
    *,
    parent: str | Sequence[str],
    source: str | None = None,
    columns: Mapping[str, str | None] = FrozenDict(),
    time_zone: str = "UTC",
    batch: int = BATCH,
    dry_run: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Adopted:
    """Record a table of transitions as the moves of a machine: of each row to_state, its time as the claimed
    one, and as metadata its `metadata` and all columns that say nothing else (but `id` and `updated_at`).

    machine: where it is known to this process, states that it has not are faults. The first move of an
    object comes from the initial state, of the machine or of what the ledger knows of it, else from nothing.
    parent: the column, or columns, that name the object. source: the DSN of the database of the table, else
    that of the ledger. columns: of to_state, sort_key, most_recent, created_at, metadata, from_state, the
    names of those that have others; None where there is none. time_zone: of times without one. force: adopt
    although rows contradict each other. dry_run: say what would be recorded.
    Raises BadTable, BadInput, BadBody, NoPermission, ServerUnavailable.
    """
    _check_zone(time_zone)
    known, kind = _known(machine)
    with transitions_table.looking_at(_conninfo(ledger, source)) as connection:
        there = transitions_table.found(connection, table, parent, columns, time_zone)
        many, faults = there.faults(connection, known.states if known else None)
        if many and not force:
            raise BadTable(table, many, map(str, faults))
        return _Adopting(ledger, kind, _initial(ledger, known, kind), dry_run=dry_run).run(
            there.rows(connection), there.size(connection), batch, progress
        )


def _check_zone(time_zone: str) -> None:
    from ..exchange.importing import zone_named  # late: most of that room is not needed

    zone_named(time_zone)


def _conninfo(ledger: Ledger, source: str | None) -> str:
    return ledger.target.conninfo if source is None else resolve(source).conninfo


def _known(machine: str | type[Machine]) -> tuple[type[Machine] | None, type[MachineStream]]:
    """The machine, where this process knows it, and the class of its streams. Raises BadName."""
    known = MACHINES.get(machine) if isinstance(machine, str) else machine
    return known, known.streams() if known else stream_of(str(machine), __name__)


def _initial(ledger: Ledger, machine: type[Machine] | None, kind: type[MachineStream]) -> str | None:
    """The state that all objects begin in, as far as one knows."""
    if machine is not None:
        return machine.initial_state
    return ledger.load(MachineDefinition, kind.CATEGORY).state.initial_state


class _Adopting:
    """One run over one table."""

    def __init__(
        self, ledger: Ledger, kind: type[MachineStream], initial: str | None, *, dry_run: bool
    ) -> None:
        self.ledger, self.kind = ledger, kind
        self.initial, self.dry_run = initial, dry_run
        self.adopted = Adopted()
        self._differing: list[tuple[str, str]] = []

    def run(self, rows: Iterable[Row], size: int, batch: int, progress: Progress | None) -> Adopted:
        """All of it, piece by piece; no more than a piece is in memory. Raises BadInput."""
        if batch < 1:
            raise BadInput(f"a batch of {batch} moves must be 1 or more")
        if not self.dry_run:
            declare_moves(self.ledger, {self.kind.MOVED.topic: Move(field="to_state")})
        done = 0
        for piece in self._pieces(rows, batch):
            self._take(piece)
            done += sum(len(one.rows) for one in piece)
            self._count(piece)
            if progress is not None:
                progress(done, size)
        return replace(self.adopted, rows=size, skipped=size - done, differing=tuple(self._differing))

    def _pieces(self, rows: Iterable[Row], batch: int) -> Iterator[list[History]]:
        """The objects of about so many rows. A history of more rows goes on in the next piece; any other is
        in one, so that nobody sees half of it."""
        piece: list[History] = []
        size = 0
        for row in rows:
            is_new = not piece or piece[-1].key != row.key
            if is_new and piece:
                piece[-1].whole = True
            if size >= batch and (is_new or len(piece[-1].rows) >= batch):
                yield piece
                piece, size = ([] if is_new else piece[-1:]), 0
            if is_new:
                piece.append(History(row.key, self.kind(*row.key)))
            piece[-1].rows.append(row)
            size += 1
        if piece:
            piece[-1].whole = True
            yield piece

    def _take(self, piece: list[History]) -> None:
        """Record what the ledger lacks of a piece. Raises StreamConflict where others never let go."""
        at, tries = datetime.now(UTC), 0
        while (appends := self._missing(piece)) and not self.dry_run:
            try:
                told, command = self._told(piece, appends)
                at = self.ledger.append_all(told, command=command).recorded_at
                break
            except StreamConflict:
                tries += 1
                if tries == TRIES:
                    raise
                self._again(piece)
        for one in piece:
            one.recorded += len(one.stream.news)
            one.stream.settle(at)

    def _again(self, piece: list[History]) -> None:
        """Somebody moved one of these objects just now: look at them all as they were before the piece."""
        for one in piece:
            one.stream = self.ledger.load(self.kind, *one.key, version=one.number)

    def _missing(self, piece: list[History]) -> list[Append]:
        """Compare the rows of a piece with the ledger; the appends of those that it has not."""
        appends = []
        for one, moves in zip(piece, self._recorded(piece), strict=True):
            one.compare(moves)
            if one.missing:
                appends.append(one.append(self.initial))
        return appends

    def _recorded(self, piece: list[History]) -> list[list[Recorded]]:
        """What the ledger holds in the place of each object's rows."""
        found: list[list[Recorded]] = [[] for _ in piece]
        span = {
            "streams": [one.stream.name for one in piece],
            "afters": [one.number for one in piece],
            "uptos": [one.number + len(one.rows) for one in piece],
        }
        with self.ledger.reader() as connection:
            rows = reading.query(connection, self.ledger.schema, "versions_between", **span)
        for nth, *row in rows:
            found[nth].append(reading.recorded(row))
        return found

    def _told(self, piece: Sequence[History], appends: Sequence[Append]) -> tuple[list[Append], str]:
        """The appends, each event with the time that its row claims; and the command id of the piece.

        The id stands for what is appended, and where: a piece that was lost on its way is sent again.
        """
        places = [part for append in appends for part in (append.stream, append.base)]
        command = f"adopt/{self.kind.CATEGORY}/{canon.digest(digest_of(appends), *places).hex()[:32]}"
        meta, told = self.ledger.meta(command=command), []
        rows = {one.stream.name: one.missing for one in piece}
        for append in appends:
            metas = [replace(meta, claimed_at=row.at).body() for row in rows[append.stream]]
            events = [body._replace(meta=text) for body, text in zip(append.events, metas, strict=True)]
            told.append(append._replace(events=events))
        return told, command

    def _count(self, piece: list[History]) -> None:
        """The piece is done with."""
        for one in piece:
            one.done()
            if not one.whole:
                continue
            if one.differs is not None and len(self._differing) < SHOWN:
                self._differing.append((one.stream.name, one.differs))
            now = self.adopted
            self.adopted = replace(
                now,
                parents=now.parents + 1,
                recorded=now.recorded + one.recorded,
                there=now.there + one.there,
                **{one.outcome: getattr(now, one.outcome) + 1},
            )


__all__ = ["Adopted", "adopt"]
