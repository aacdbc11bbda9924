"""
Imports a file in bounded pieces, each an append, so that a killed import continues where it stopped.

The command id of a piece depends on everything in the file up to the piece's end (`Pieces` in record.py). So
the same file records nothing twice, compressed or not; a file that grew records what is new; and a file that
was corrected after the place where its import was refused continues there. Rows with ids of their own
(`RowsById`) are recorded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Final

from ..domain.topics import TopicStatus
from ..errors import BadInput, LedgerError
from ..log.announce import announce_statuses, announced_statuses
from ..log.ledger import Ledger
from ..roles import require_roles
from .record import DryRun, Outcome, Piece, Pieces, Recorder, Recording, RowsById, TraceNames
from .source import Arrival, Format, Source

PIECE: Final = 1000
"""Events of one append. It decides where pieces end: a change would break imports that were begun."""
PIECE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of bodies in one append, after which it takes no further event."""
Progress = Callable[[int, int], None]
"""Called after each piece: events so far, bytes of the file so far."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did. there: events that an earlier run had recorded. streams: the new ones.

    faults: how often the file violates its format; each is recorded as found. places: the first of them, each
    `trace 5, event 2, line 88: what is wrong`.
    """

    events: int = 0
    recorded: int = 0
    there: int = 0
    streams: int = 0
    first_position: int | None = None
    last_position: int | None = None
    faults: int = 0
    places: tuple[str, ...] = ()


def told_statuses(ledger: Ledger) -> dict[str, TopicStatus]:
    """The statuses of topics, as announced to this ledger."""
    with ledger.reader() as connection:
        return announced_statuses(connection, ledger.schema)


def import_file(
    ledger: Ledger,
    source: Source,
    format: Format,
    *,
    dry_run: bool = False,
    name: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Record the events of a file, once. dry_run: read all of it, and return what would be recorded.

    name: identifies the file in the ledger; by default its own name without `.gz`. A file of that name may
    have grown since it was imported; one with other changes is refused, unless its events have versions.
    Raises BadFile, StreamConflict and whatever an append raises; a note on the error contains the progress.
    """
    require_roles(ledger, "pledger import")
    importer = _Importer(ledger, source, format, dry_run=dry_run, name=name)
    try:
        importer.run(progress or (lambda events, done: None))
    except LedgerError as error:
        error.add_note(importer.so_far())
        raise
    faults = format.faults
    return replace(importer.imported, faults=faults.count, places=tuple(faults.places))


class _Importer:
    """One import. A second thread records a piece while this one reads on; at most one is under way."""

    def __init__(
        self, ledger: Ledger, source: Source, format: Format, *, dry_run: bool, name: str | None
    ) -> None:
        self.ledger, self.source, self.format, self.dry_run = ledger, source, format, dry_run
        self.imported = Imported()
        self._dry_run = DryRun(ledger, source.name) if dry_run else None
        self._recorder: Recording = self._dry_run or Recorder(ledger, source.name)
        self._pieces = Pieces(ledger, source.name, name or source.own_name, is_named=name is not None)
        self._rows = RowsById(ledger, source.name)
        self._traces = TraceNames(ledger)
        self._told = told_statuses(ledger)

    def run(self, progress: Progress) -> None:
        """Read and record all of it."""
        with ThreadPoolExecutor(1, "import") as other, self.source.told(self.source.name):
            pending: Future[None] | None = None
            try:
                for piece in _pieces(self.format.arrivals(self.source)):
                    done = self.source.done
                    if pending is not None:
                        pending.result()
                        progress(self.imported.events, done)
                    pending = other.submit(self._record, piece)
            finally:  # also if the file is wrong: what was read before is recorded
                if pending is not None:
                    pending.result()
            progress(self.imported.events, self.source.done)

    def so_far(self) -> str:
        """The progress, for whoever has to correct the file."""
        if self.dry_run:
            return "nothing was recorded: this was a dry run"
        if not self.imported.events:
            return "nothing of the file was recorded"
        return (
            f"the first {self.imported.events} events of the file are recorded; fix the rest and import "
            "the file again: the import continues there"
        )

    def _record(self, arrivals: list[Arrival]) -> None:
        """Record a thousand arrivals, or find that they are recorded."""
        if arrivals[0].command is not None:
            self._record_rows(arrivals)
            return
        while arrivals:
            piece = self._pieces.next(arrivals)
            if self._is_recorded(piece):
                self._pieces.pass_by(piece)
                arrivals = arrivals[len(piece.arrivals) :]

    def _is_recorded(self, piece: Piece) -> bool:
        """Record a piece unless it is recorded; False if another import recorded meanwhile: check again."""
        dry = self._dry_run.versions if self._dry_run else ()
        named = self._traces.named(piece.arrivals, dry)
        if piece.there is not None:
            self._count(len(named), Outcome(0, 0, *piece.there))
            return True
        self._declare()
        outcome = self._recorder.piece(piece, named)
        if outcome is not None:
            self._count(len(named), outcome)
        return outcome is not None

    def _record_rows(self, arrivals: list[Arrival]) -> None:
        rows = self._rows.sorted_out(arrivals)
        self._count(rows.there, Outcome(0, 0, None, None))
        if rows.new:
            self._declare()
            self._count(len(rows.new), self._recorder.rows(rows.new))

    def _count(self, many: int, outcome: Outcome) -> None:
        now = self.imported
        self.imported = Imported(
            now.events + many,
            now.recorded + outcome.recorded,
            now.there + many - outcome.recorded,
            now.streams + outcome.streams,
            outcome.first if now.first_position is None else now.first_position,
            now.last_position if outcome.last is None else outcome.last,
        )

    def _declare(self) -> None:
        """Announce the statuses of topics to the ledger, before their first events."""
        news = {
            topic: status
            for topic, status in dict(self.format.statuses).items()
            if self._told.get(topic) != status
        }
        for topic, status in news.items():
            if self.format.insists and topic in self._told:
                raise BadInput(
                    f"in this ledger {topic} leads to {_said(self._told[topic])}, and the import would "
                    f"change it to {_said(status)}: import it under another --category or --topic"
                )
        if news and not self.dry_run and (self.format.insists or not news.keys() <= self._told.keys()):
            announce_statuses(self.ledger, news)
            self._told |= news


def _pieces(arrivals: Iterator[Arrival]) -> Iterator[list[Arrival]]:
    """The arrivals by the thousand, or fewer if they are large; the bounds depend only on the file."""
    piece: list[Arrival] = []
    size = 0
    for arrival in arrivals:
        piece.append(arrival)
        size += len(arrival.data or arrival.raw or "")
        if len(piece) == PIECE or size > PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _said(status: TopicStatus) -> str:
    return (
        f"the status {status.status!r}"
        if status.field is None
        else f"the status in its field {status.field!r}"
    )


def zone_named(name: str | None) -> tzinfo | None:
    """The time zone of this name. Raises BadInput."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise BadInput(
            f"there is no time zone {name!r}; zones have names such as Europe/Zurich or UTC"
        ) from None
