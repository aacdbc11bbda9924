"""Adopts the transitions table of another system: each row becomes a move, in the order of `sort_key`.

    adopt(log, "payment", "payment_transitions", parent="payment_id")

Nothing is recorded twice. The moves in the ledger are compared with the rows of the table, and only the rows
after them are appended. So a run that was killed continues where it stopped, and a later run takes over the
rows that the other system has added since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from ..domain import canonical_json
from ..domain.frozen import FrozenDict, frozen
from ..domain.known import KNOWN
from ..errors import BadInput, BadTable, StreamConflict
from ..log import read
from ..log.append import Append, append_of, digest_of
from ..log.dsn import resolve
from ..log.ledger import Ledger
from ..log.recorded import Recorded
from ..log.retry import retry_conflicts
from ..log.sql import Statements
from ..roles import require_roles
from . import transitions_table
from .definition_stream import MachineDefinition, declare
from .machine import Machine
from .transition import MachineStream, Moved, stream_of
from .transitions_table import Row

SQL = Statements(__package__, "adoption")
BATCH: Final = 1000
"""Moves of one append."""
SHOWN: Final = 20
"""Maximum number of differing objects that are named; further ones are only counted."""
Progress = Callable[[int, int], None]
"""Called after each piece: rows so far, rows in all."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result of an adoption. rows: the rows of the table; skipped: rows that cannot become a move
    (`force`).

    parents: the objects. Each is new, continued, left (the ledger has all its rows) or differs (its first
    moves in the ledger are not those of the table; it was not changed). recorded: new moves; there: moves
    that the ledger had already. differing: the first objects that differ, each with the reason.
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
    """Record a transitions table as the moves of a machine: to_state, its time as the claimed time, and as
    metadata its `metadata` and all other columns except `id` and `updated_at`.

    machine: if this process has imported its class, states that it does not have are faults, and its
    definition is recorded. The first move of an object comes from the initial state, as the class or the
    ledger defines it; else from None. parent: the column or columns that name the object. source: the DSN of
    the table's database, by default the ledger's. columns: the names of the columns to_state, sort_key,
    most_recent, created_at, metadata and from_state where they differ; None where there is none. time_zone:
    of times without an offset. force: adopt a table that has faults. dry_run: record nothing, only return
    what would be recorded. Raises BadTable, BadInput, BadBody, NoPermission, ServerUnavailable.
    """
    _check_zone(time_zone)
    require_roles(ledger, "pledger machines adopt")
    known, kind = _known(machine)
    with transitions_table.table_snapshot(_conninfo(ledger, source)) as connection:
        there = transitions_table.find_table(connection, table, parent, columns, time_zone)
        many, faults = there.faults(connection, known.states if known else None)
        if many and not force:
            raise BadTable(table, many, map(str, faults))
        return _Adopting(ledger, kind, _initial(ledger, known, kind, dry_run=dry_run), dry_run=dry_run).run(
            there.rows(connection), there.size(connection), batch, progress
        )


def _check_zone(time_zone: str) -> None:
    from ..exchange.importer import zone_named  # imported late: adoptions are rare, and it is slow to import

    zone_named(time_zone)


def _conninfo(ledger: Ledger, source: str | None) -> str:
    return ledger.address.conninfo if source is None else resolve(source).conninfo


def _known(machine: str | type[Machine]) -> tuple[type[Machine] | None, type[MachineStream]]:
    """The class of a machine, if this process has imported it, and the class of its streams. Raises
    BadName.
    """
    known = KNOWN.machines.get(machine) if isinstance(machine, str) else machine
    return known, known.streams() if known else stream_of(str(machine))


def _initial(
    ledger: Ledger, machine: type[Machine] | None, kind: type[MachineStream], *, dry_run: bool
) -> str | None:
    """The initial state, if it is known. The definition of a class is recorded here, unless it is a
    dry run.
    """
    if machine is not None:
        if not dry_run:
            declare(ledger, machine.name, machine.definition)
        return machine.initial_state
    return ledger.load(MachineDefinition, kind.CATEGORY).state.initial_state


class _Adopting:
    """One adoption of one table."""

    def __init__(
        self, ledger: Ledger, kind: type[MachineStream], initial: str | None, *, dry_run: bool
    ) -> None:
        self.ledger, self.kind = ledger, kind
        self.initial, self.dry_run = initial, dry_run
        self.adopted = Adopted()
        self._differing: list[tuple[str, str]] = []

    def run(self, rows: Iterable[Row], size: int, batch: int, progress: Progress | None) -> Adopted:
        """Adopt all rows, piece by piece; only one piece is in memory. Raises BadInput."""
        if batch < 1:
            raise BadInput(f"a batch of {batch} moves must be 1 or more")
        done = 0
        for piece in self._pieces(rows, batch):
            self._take(piece)
            done += sum(len(one.rows) for one in piece)
            self._count(piece)
            if progress is not None:
                progress(done, size)
        return replace(self.adopted, rows=size, skipped=size - done, differing=tuple(self._differing))

    def _pieces(self, rows: Iterable[Row], batch: int) -> Iterator[list[History]]:
        """The objects of about `batch` rows. A history with more rows continues in the next piece; every
        other history is in one piece, so that readers never see a part of it.
        """
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
        """Record the rows of a piece that the ledger does not have. Raises StreamConflict."""
        at = retry_conflicts(partial(self._record, piece))
        for one in piece:
            one.recorded += len(one.stream.news)
            one.stream.settle(at)

    def _record(self, piece: list[History]) -> datetime:
        """One attempt. A conflict resets the objects to their state before the piece."""
        appends = self._missing(piece)
        if not appends or self.dry_run:
            return datetime.now(UTC)
        told, command = self._told(piece, appends)
        try:
            return self.ledger.append_all(told, command=command).recorded_at
        except StreamConflict:
            for one in piece:
                one.stream = self.ledger.load(self.kind, *one.key, version=one.number)
            raise

    def _missing(self, piece: list[History]) -> list[Append]:
        """Compare a piece with the ledger, and return the appends of the rows that it does not have."""
        appends = []
        for one, moves in zip(piece, self._recorded(piece), strict=True):
            one.compare(moves)
            if one.missing:
                appends.append(one.append(self.initial))
        return appends

    def _recorded(self, piece: list[History]) -> list[list[Recorded]]:
        """The moves in the ledger at the places of each object's rows."""
        found: list[list[Recorded]] = [[] for _ in piece]
        span: dict[str, Any] = {
            "streams": [one.stream.name for one in piece],
            "afters": [one.number for one in piece],
            "uptos": [one.number + len(one.rows) for one in piece],
        }
        for nth, *row in self.ledger.query(SQL.moves_between, **span):
            found[nth].append(read.recorded(row))
        return found

    def _told(self, piece: Sequence[History], appends: Sequence[Append]) -> tuple[list[Append], str]:
        """The appends with the claimed times of their rows, and the command id of the piece.

        The id is a digest of the contents and places, so a piece can be sent again after a lost connection.
        """
        places = [part for append in appends for part in (append.stream, append.base)]
        command = (
            f"adopt/{self.kind.CATEGORY}/{canonical_json.digest(digest_of(appends), *places).hex()[:32]}"
        )
        meta, told = self.ledger.meta(command=command), []
        rows = {one.stream.name: one.missing for one in piece}
        for append in appends:
            metas = [replace(meta, claimed_at=row.at).body() for row in rows[append.stream]]
            events = [body._replace(meta=text) for body, text in zip(append.events, metas, strict=True)]
            told.append(append._replace(events=events))
        return told, command

    def _count(self, piece: list[History]) -> None:
        """Add a piece to the result."""
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


class History:
    """One object during an adoption.

    rows: the rows of the present piece; number: how many rows came before them. found: how many of the rows
    are in the ledger. there, recorded: the moves of all pieces that were in the ledger, and that are new.
    whole: no further rows come. differs: how the ledger's history differs.
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
        """The field of `Adopted` that counts this object."""
        if self.differs is not None:
            return "differ"
        return "left" if not self.recorded else "continued" if self.there else "new"

    @property
    def missing(self) -> list[Row]:
        """The rows that are not in the ledger."""
        return [] if self.differs is not None else self.rows[self.found :]

    def compare(self, moves: Sequence[Recorded]) -> None:
        """Find out which rows are in the ledger, and apply their moves to the stream."""
        self.found = 0
        for recorded, row in zip(moves, self.rows, strict=False):
            self.differs = self.differs or difference(recorded, row)
            if self.differs is not None:
                return
            self.stream.replay(recorded.event, recorded.recorded_at)
            self.found += 1

    def append(self, initial: str | None) -> Append:
        """The append of the rows that are not in the ledger. initial: the initial state of the machine.

        Raises BadInput for a row that cannot be recorded.
        """
        last = self.rows[self.found - 1].to_state if self.found else self.last
        for row in self.missing:
            first = None if row.to_state == initial else initial
            before = row.from_state or (last if self.stream.version + len(self.stream.news) else first)
            metadata = FrozenDict(frozen(dict(row.metadata)))
            self.stream.record(self.stream.MOVED(from_state=before, to_state=row.to_state, metadata=metadata))
            last = row.to_state
        try:
            return append_of(self.stream)
        except BadInput as error:
            error.add_note(f"in one of the {len(self.stream.news)} new rows of {self.stream.name}")
            raise

    def done(self) -> None:
        """Finish the present piece."""
        self.there += self.found
        self.number += len(self.rows)
        self.last = self.rows[-1].to_state
        self.rows.clear()


def difference(recorded: Recorded, row: Row) -> str | None:
    """How a move in the ledger differs from a row of the table; None if it does not.

    A move without a claimed time was made in the ledger, and its time is not compared.
    """
    moved, claimed = recorded.event, recorded.meta.claimed_at
    place, other = f"move {recorded.version} of the ledger", f"the row with sort_key {row.sort_key}"
    if not isinstance(moved, Moved):
        return f"{place} is not a move of a machine but {recorded.topic}"
    if moved.to_state != row.to_state:
        return f"{place} led to {moved.to_state}, {other} to {row.to_state}"
    if dict(moved.metadata) != dict(frozen(dict(row.metadata))):
        return f"{place} has other metadata than {other}"
    if claimed is not None and claimed != row.at:
        return f"{place} was at {claimed.isoformat()}, {other} at {row.at and row.at.isoformat()}"
    return None
