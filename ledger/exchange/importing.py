"""Imports a file in bounded pieces, each an append, so that a killed import goes on where it stopped.

The command id of a piece is made of the options and of everything in the file up to its end. So the same
file records nothing twice, whether it is packed or not; and a file that was mended behind the place where its
import was refused goes on there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import tzinfo
from hashlib import sha256
from typing import Any, Final

from .. import canon
from ..append import Append, Body
from ..errors import BadFile, BadInput, LedgerError, StreamConflict
from ..expected import ANY, Exact
from ..names import checked
from ..store import reading
from ..store.declaring import Move, declare_moves
from ..store.delivery import Delivery
from ..store.ledger import Ledger
from .arriving import Arrival, Format, Source, shown
from .xes import body_of, is_twin

PIECE: Final = 1000
"""Events of one append. It decides on command ids: with another number, an import begun is another."""
PIECE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of bodies of one append, beyond which it takes no further event."""
Progress = Callable[[int, int], None]
"""Told after each piece: events so far, bytes of the file so far."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did. there: events that an earlier run had recorded. streams: those that were new."""

    events: int = 0
    recorded: int = 0
    there: int = 0
    streams: int = 0
    first_position: int | None = None
    last_position: int | None = None


def told_moves(ledger: Ledger) -> dict[str, Move]:
    """What topics lead to, as this ledger was told."""
    with ledger.reader() as connection:
        rows = reading.query(connection, ledger.schema, "moves")
    return {topic: Move(status, field) for topic, status, field in rows}


def import_file(
    ledger: Ledger,
    source: Source,
    format: Format,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Record what a file says. dry_run: read all of it, and say what would be recorded.

    Raises BadFile, StreamConflict and whatever an append raises; a note on the error says how far it came.
    """
    importer = _Importer(ledger, source, format, dry_run=dry_run)
    try:
        importer.run(progress or (lambda events, done: None))
    except LedgerError as error:
        error.add_note(importer.so_far())
        raise
    return importer.imported


class _Importer:
    """One import. One other thread records a piece while this one reads on; at most one is under way."""

    def __init__(self, ledger: Ledger, source: Source, format: Format, *, dry_run: bool) -> None:
        self.ledger, self.source, self.format, self.dry_run = ledger, source, format, dry_run
        self.imported = Imported()
        self._delivery = Delivery(ledger.connections, ledger.schema)
        self._chain = sha256(json.dumps(format.options).encode()).digest()
        self._number = 0
        self._trace = (0, "")  # the trace that the last piece ended in, and the name that it got
        self._told = told_moves(ledger)

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
            finally:  # also where the file is wrong: what was read before it is recorded
                if pending is not None:
                    pending.result()
            progress(self.imported.events, self.source.done)

    def so_far(self) -> str:
        """How far it came, for whoever has to mend the file."""
        if self.dry_run:
            return "nothing was recorded, because this was a dry run"
        if not self.imported.events:
            return "nothing of the file was recorded"
        return (
            f"the first {self.imported.events} events of the file are recorded; when it is mended behind "
            "them, importing it again goes on there"
        )

    def _record(self, piece: list[Arrival]) -> None:
        """Record one piece, or find that it is recorded."""
        placed = self._named(piece)
        command = self._command(placed)
        appends, order = _arranged(self.source.name, placed, command)
        if self.dry_run:
            self._rehearse(placed, appends, command)
            return
        self._declare()
        try:
            appended = self._delivery.deliver(appends, self.ledger.meta(command=command), order)
        except StreamConflict as error:
            error.add_note(self._why(placed, error))
            raise
        self.ledger.wakeup.appended()
        new = sum(appended.versions[append.stream] == len(append.events) for append in appends)
        many, is_new = len(placed), not appended.repeated
        now = self.imported
        self.imported = Imported(
            now.events + many,
            now.recorded + many * is_new,
            now.there + many * (not is_new),
            now.streams + new * is_new,
            appended.first_position if now.first_position is None else now.first_position,
            appended.last_position,
        )

    def _command(self, piece: Sequence[Arrival]) -> str:
        """The id of this piece: it stands for all that came up to its end."""
        parts = [
            f"{a.stream}\t{a.version}\t{a.topic}\t{a.schema}\t{a.fields}\t{a.data}\t{a.raw!r}" for a in piece
        ]
        self._chain = sha256(self._chain + "\n".join(parts).encode()).digest()
        self._number += 1
        return f"import/{self._number}/{self._chain.hex()[:24]}"

    # Names of traces

    def _named(self, piece: list[Arrival]) -> list[Arrival]:
        """The piece, with the traces of a name that an earlier trace of the log has named NAME/NUMBER."""
        starts = [arrival for arrival in piece if arrival.trace and arrival.version == 1]
        begun = self._begun([arrival.stream for arrival in starts])
        names = dict([self._trace])
        here: set[str] = set()
        for arrival in starts:
            there = begun.get(arrival.stream)
            is_second = arrival.stream in here or (there is not None and is_twin(arrival, there))
            names[arrival.trace] = f"{arrival.stream}/{arrival.trace}" if is_second else arrival.stream
            here.add(arrival.stream)
        if piece[-1].trace:
            self._trace = (piece[-1].trace, names[piece[-1].trace])
        if all(names[a.trace] == a.stream for a in piece if a.trace):
            return piece
        return [a._replace(stream=checked(names[a.trace])) if a.trace else a for a in piece]

    def _begun(self, streams: list[str]) -> dict[str, tuple[str, str | None]]:
        """Topic and body of the first event of those streams that are there."""
        if not streams:
            return {}
        with self.ledger.reader() as connection:
            rows = reading.query(connection, self.ledger.schema, "begun_streams", streams=streams)
        return {stream: (topic, data) for stream, topic, data in rows}

    # What stands around the events

    def _declare(self) -> None:
        """Tell the ledger what the topics lead to, before it has events of theirs."""
        news = {
            topic: move for topic, move in dict(self.format.moves).items() if self._told.get(topic) != move
        }
        for topic, move in news.items():
            if self.format.insists and topic in self._told:
                raise BadInput(
                    f"this ledger was told that {topic} leads to {_said(self._told[topic])}, and the import "
                    f"would say {_said(move)}: import it under another --category or --topic"
                )
        if news and (self.format.insists or not news.keys() <= self._told.keys()):
            declare_moves(self.ledger, news)
            self._told |= news

    def _rehearse(self, piece: list[Arrival], appends: Sequence[Append], command: str) -> None:
        """Count what `_record` would do; refuse what it would find at the streams' first events."""
        with self.ledger.reader() as connection:
            is_there = bool(
                reading.query(connection, self.ledger.schema, "recorded_command", command=command)
            )
        starts = [append.stream for append in appends if append.expected == Exact(0)]
        if not is_there:
            for stream in self._begun(starts):
                conflict = StreamConflict(stream, "a new stream", 1)
                conflict.add_note(self._why(piece, conflict))
                raise conflict
        now, many = self.imported, len(piece)
        self.imported = replace(
            now,
            events=now.events + many,
            recorded=now.recorded + many * (not is_there),
            there=now.there + many * is_there,
            streams=now.streams + len(starts) * (not is_there),
        )

    def _why(self, piece: Sequence[Arrival], conflict: StreamConflict) -> str:
        """Where in the file the stream is that does not go on, and what helps."""
        place = shown(next(arrival.place for arrival in piece if arrival.stream == conflict.stream))
        return (
            f"{self.source.name}, {place}: the file goes on where the stream of this ledger does not stand; "
            "it was changed there, or imported from another file or with other options: import into another "
            "ledger, category or log"
        )


def _pieces(arrivals: Iterator[Arrival]) -> Iterator[list[Arrival]]:
    """The arrivals by the thousand, or fewer where they are large; the bounds depend on the file alone."""
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


def _arranged(file: str, piece: Sequence[Arrival], command: str) -> tuple[list[Append], list[int]]:
    """An append for each stream, and for each event, in the file's order, the index of its append."""
    grouped: dict[str, list[Arrival]] = {}
    for arrival in piece:
        grouped.setdefault(arrival.stream, []).append(arrival)
    appends = [_append(file, arrivals, command) for arrivals in grouped.values()]
    index = {stream: nth for nth, stream in enumerate(grouped)}
    return appends, [index[arrival.stream] for arrival in piece]


def _append(file: str, arrivals: Sequence[Arrival], command: str) -> Append:
    first, last = arrivals[0], None
    for arrival in arrivals:
        if last is not None and arrival.version is not None and arrival.version != last + 1:
            wrong = f"version {arrival.version} of {arrival.stream} follows version {last}; it should be"
            raise BadFile(file, shown(arrival.place), f"{wrong} {last + 1}")
        last = arrival.version
    statuses = [arrival.status for arrival in arrivals if arrival.status is not None]
    return Append(
        first.stream,
        [_body(file, arrival, command) for arrival in arrivals],
        ANY if first.version is None else Exact(first.version - 1),
        status=statuses[-1] if statuses else None,
        head=any(arrival.data is not None for arrival in arrivals),
    )


def _body(file: str, arrival: Arrival, command: str) -> Body:
    fields: dict[str, Any] = {**arrival.fields, "command": command}
    try:
        meta = body_of(fields) if arrival.trace else canon.body(fields)
    except BadInput as error:
        raise BadFile(file, shown(arrival.place), f"meta: {error}") from error
    return Body(arrival.topic, arrival.schema, arrival.data, arrival.raw, meta)


def _said(move: Move) -> str:
    return f"the status {move.status!r}" if move.field is None else f"the status in its field {move.field!r}"


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
