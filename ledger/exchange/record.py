"""
Records the pieces and rows of a file, or returns in a dry run what would be recorded.

A file is recorded in pieces (`Pieces`), each an append under a command id of the file and its end, so that a
file that is imported again, or has grown, goes on where it ended. Rows that a column names (`RowsById`) are
recorded once each, whatever file they are in. Of several traces with one name the later ones get a number
(`TraceNames`).
"""

from __future__ import annotations

import json
import random
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Container, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ..domain import canonical_json
from ..domain.names import checked, stream_name
from ..errors import BadFile, BadInput, CommandReused, LedgerBusy, ServerUnavailable, StreamConflict
from ..log import read
from ..log.append import ANY, Append, Appended, Body, Exact
from ..log.appender import Appender, send
from ..log.ledger import Ledger
from ..log.read import SQL as READ
from ..log.recorded import Meta, Recorded
from ..log.server_errors import ledger_errors
from ..log.sql import run
from .source import Arrival, shown
from .sql import SQL
from .xes import body_of, is_twin

LONGEST_NAME: Final = 800
"""Bytes of the name of a file, so that there is room for the rest of a command id."""
START: Final = "-"
"""The digest of everything before the first row."""


class Piece(NamedTuple):
    """Arrivals of one append, its command id, and the positions at which they are recorded, if they are.

    after: the digest of the file up to its end. looked: the command ids that were looked up. seen: what was
    found.
    """

    arrivals: Sequence[Arrival]
    command: str
    there: tuple[int, int] | None
    after: str
    looked: Mapping[str, Any]
    seen: Sequence[tuple[Any, ...]]

    @property
    def has_versions(self) -> bool:
        """Whether the streams themselves see to it that nothing is recorded twice."""
        return _have_versions(self.arrivals)

    def is_still_new(self, connection: read.Connection, schema: str) -> bool:
        """Whether nobody has recorded anything in its place; nobody else can, until the transaction ends."""
        run(connection, schema, SQL.hold_import, place=self.looked["least"])
        return run(connection, schema, SQL.import_pieces, **self.looked) == self.seen


class _Recorded(NamedTuple):
    """A piece that is recorded, as its command id says it."""

    command: str
    first: int
    last: int
    after: str
    many: int
    file: str

    @classmethod
    def of(cls, command: str, first: int, last: int) -> _Recorded:
        _, _, _, after, count, file = command.split("/", 5)
        return cls(command, first, last, after, int(count), file)


class Pieces:
    """Reads along one file, piece by piece.

    file: its name for people. name: its name in the ledger, None if it has none. is_named: whether the caller
    gave that name; then other files are not checked.
    """

    def __init__(self, ledger: Ledger, file: str, name: str | None, *, is_named: bool) -> None:
        self.ledger, self.file, self.is_named = ledger, file, is_named
        self.name = None if name is None else _checked(name)
        self.at = 0
        self._before = START

    def next(self, arrivals: Sequence[Arrival]) -> Piece:
        """The next piece of the file, from these arrivals: recorded, or to be recorded.

        Raises BadFile where the file was changed.
        """
        digests = self._digests(arrivals)
        looked = self._looked(digests)
        seen = self.ledger.query(SQL.import_pieces, **looked)
        known = self._known(arrivals, digests, [_Recorded.of(*row) for row in seen])
        many = min(known.many, len(arrivals)) if known else len(arrivals)
        command = f"import/{self.at}/{self._before}/{digests[many - 1]}/{many}/{self.name or ''}"
        there = (known.first, known.first + many - 1) if known else None
        return Piece(
            arrivals[:many], known.command if known else command, there, digests[many - 1], looked, seen
        )

    def pass_by(self, piece: Piece) -> None:
        """Continue after a piece, which is recorded now."""
        self.at, self._before = self.at + len(piece.arrivals), piece.after

    def _digests(self, arrivals: Sequence[Arrival]) -> list[str]:
        """For each arrival, the digest of the file up to it."""
        last, found = self._before.encode(), []
        for a in arrivals:
            said = (a.stream, a.version, a.topic, a.schema, sorted(a.fields.items()), a.data, a.raw)
            last = urlsafe_b64encode(sha256(last + repr(said).encode()).digest()[:12])
            found.append(last.decode())
        return found

    def _known(
        self, arrivals: Sequence[Arrival], digests: Sequence[str], found: Sequence[_Recorded]
    ) -> _Recorded | None:
        """The piece that is recorded of the file from here; None if there is none."""
        fitting = [piece for piece in found if piece.after in digests[piece.many - 1 : piece.many]]
        if best := max(fitting, key=lambda piece: (piece.file == self.name, piece.many), default=None):
            if best.file == self.name or self.at or best.many == len(arrivals) or _have_versions(arrivals):
                return best
            raise self._perhaps(best, arrivals[best.many])
        changed = [piece for piece in found if self.at or piece.file == self.name]
        if not changed or _have_versions(arrivals):
            return None
        return self._shorter(changed[-1], arrivals)

    def _looked(self, digests: Sequence[str]) -> dict[str, Any]:
        """With what is looked for pieces from here: of the beginnings, for those that can be of this file."""
        prefix = f"import/{self.at}/{self._before}/"
        return {
            "least": prefix, "beyond": f"{prefix[:-1]}0", "file": self.name, "named": self.is_named,
            "afters": list(digests) if self._before == START else None,
        }  # fmt: skip

    def _shorter(self, piece: _Recorded, arrivals: Sequence[Arrival]) -> _Recorded:
        """The piece, if it contains the rest of the file. Raises BadFile if the file was changed."""
        rows = self.ledger.query(SQL.events_between, first=piece.first, last=piece.last)
        pairs = list(zip(arrivals, map(read.recorded, rows), strict=False))
        differ = [arrival for arrival, event in pairs if not is_as_recorded(arrival, event)]
        if not differ and len(arrivals) < piece.many:
            return piece
        at = differ[0] if differ else arrivals[-1]
        many = "1 row of it differs" if len(differ) == 1 else f"{len(differ)} rows of it differ"
        raise BadFile(
            self.file, shown(at.place),
            "the file was changed since it was imported: from here on it differs from what is recorded "
            f"({many}, of the {len(pairs)} rows compared). A file can only grow at its end; for any other "
            "change name the columns that identify a row (--id-column NAME); if it is another file of the "
            "same name, give it a name of its own (--file-name NAME)",
        )  # fmt: skip

    def _perhaps(self, piece: _Recorded, next_one: Arrival) -> BadFile:
        """The error that another file begins with all that a small one held."""
        if piece.file:
            said = f"from the file {piece.file!r}, all {piece.many} rows of it"
            same = f"If this is that file, grown and renamed, give its name (--file-name {piece.file})"
        else:
            said = f"from stdin, all {piece.many} rows"
            same = "If this is the same table, grown, import only the new rows"
        return BadFile(
            self.file, shown(next_one.place),
            f"the rows before are recorded {said}. {same}; if it is another table, give it a name of its "
            "own (--file-name NAME), or name the columns that identify a row (--id-column NAME)",
        )  # fmt: skip


def _checked(name: str) -> str:
    """The name of a file as part of a command id. Raises BadInput."""
    escaped = stream_name("file", name).partition("/")[2]
    if not escaped or len(escaped.encode()) > LONGEST_NAME:
        raise BadInput(f"the name of a file must be text of 1 to {LONGEST_NAME} bytes, not {name[:60]!r}")
    return escaped


def is_as_recorded(arrival: Arrival, event: Recorded) -> bool:
    """Whether an event is what this row would record."""
    meta = json.loads(event.meta_data or "{}")
    fields = {name: value for name, value in meta.items() if name != "command"}
    return (arrival.stream, arrival.topic, arrival.schema, arrival.raw, _exact(arrival.data)) == (
        event.stream, event.topic, event.schema, event.raw, _exact(event.data),
    ) and fields == dict(arrival.fields)  # fmt: skip


def _exact(data: str | None) -> Any:
    """A body with its numbers as written."""
    return None if data is None else json.loads(data, parse_float=str, parse_int=str)


def _have_versions(arrivals: Sequence[Arrival]) -> bool:
    """Whether the streams themselves see to it that nothing is recorded twice."""
    return all(arrival.version is not None for arrival in arrivals)


class SortedRows(NamedTuple):
    """Rows of a file: those that are to be recorded, and how many are."""

    new: list[Arrival]
    there: int


class RowsById:
    """Finds which rows of a file are recorded."""

    def __init__(self, ledger: Ledger, file: str) -> None:
        self.ledger, self.file = ledger, file

    def sorted_out(self, arrivals: Sequence[Arrival]) -> SortedRows:
        """Which of these rows to record; of equal rows, only the first.

        Raises BadFile for a row whose id stands for other content.
        """
        recorded = self._recorded([arrival.command or "" for arrival in arrivals])
        here: dict[str, Arrival] = {}
        new = []
        for arrival in arrivals:
            command = arrival.command or ""
            event, before = recorded.get(command), here.get(command)
            if event is None and before is None:
                here[command] = arrival
                new.append(arrival)
            elif not (is_as_recorded(arrival, event) if event else is_equal(arrival, before)):
                raise self.changed(arrival)
        return SortedRows(new, len(arrivals) - len(new))

    def _recorded(self, commands: list[str]) -> dict[str, Recorded]:
        rows = self.ledger.query(SQL.events_of_commands, commands=commands)
        return {command: read.recorded(row) for command, *row in rows}

    def changed(self, arrival: Arrival) -> BadFile:
        """The error for a row whose id was used for other content."""
        _, _, ids = (arrival.command or "").rpartition("/")
        return BadFile(
            self.file,
            shown(arrival.place),
            f"the row with the id {ids!r} is recorded already with other content, which cannot change. If "
            "several rows have this id, name a further column that distinguishes them (a second "
            "--id-column); another row needs another id",
        )


def is_equal(arrival: Arrival, other: Arrival | None) -> bool:
    """Whether two rows have the same content, wherever they are."""
    return other is not None and arrival._replace(place=()) == other._replace(place=())


class TraceNames:
    """Names the traces of one log, piece by piece."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._last = (0, "")  # the last trace of the last piece, and its name

    def named(self, piece: Sequence[Arrival], dry: Container[str] = ()) -> Sequence[Arrival]:
        """The piece, with new names for traces whose name an earlier trace of the log has.

        dry: the streams that a dry run would have begun before this piece.
        """
        starts = [arrival for arrival in piece if arrival.trace and arrival.version == 1]
        begun = self._begun([arrival.stream for arrival in starts])
        names = dict([self._last])
        here: set[str] = set()
        for arrival in starts:
            name, there = arrival.stream, begun.get(arrival.stream)
            is_second = name in here or name in dry or (there is not None and is_twin(arrival, there))
            names[arrival.trace] = f"{name}/{arrival.trace}" if is_second else name
            here.add(name)
        if piece[-1].trace:
            self._last = (piece[-1].trace, names[piece[-1].trace])
        if all(names[a.trace] == a.stream for a in piece if a.trace):
            return piece
        return [a._replace(stream=checked(names[a.trace])) if a.trace else a for a in piece]

    def _begun(self, streams: list[str]) -> dict[str, tuple[str, str | None]]:
        """Topic and body of the first event of each stream that exists."""
        if not streams:
            return {}
        rows = self.ledger.query(SQL.begun_streams, streams=streams)
        return {stream: (topic, data) for stream, topic, data in rows}


R = TypeVar("R")


class Outcome(NamedTuple):
    """The result for some arrivals: how many were recorded, new streams, all positions."""

    recorded: int
    streams: int
    first: int | None
    last: int | None


class Recording(Protocol):
    """What an import does with what is not recorded yet."""

    def piece(self, piece: Piece, arrivals: Sequence[Arrival]) -> Outcome | None:
        """All of a piece, in one append, with its named arrivals; None if another append came between.

        Raises StreamConflict, BadFile.
        """
        ...

    def rows(self, arrivals: Sequence[Arrival]) -> Outcome:
        """Rows that have command ids of their own. Raises BadFile if one was used for other content."""
        ...


class Recorder:
    """Records in the ledger."""

    def __init__(self, ledger: Ledger, file: str) -> None:
        self.ledger, self.file = ledger, file
        self._appender = Appender(ledger.pool, ledger.schema)

    def piece(self, piece: Piece, arrivals: Sequence[Arrival]) -> Outcome | None:
        """Append a piece, unless another import has recorded it meanwhile."""
        appends, order = _arranged(self.file, arrivals, piece.command)
        meta = self.ledger.meta(command=piece.command)
        if piece.has_versions:
            try:
                appended = self._appender.append(appends, meta, order)
            except StreamConflict as error:
                error.add_note(_why(self.file, arrivals, error))
                raise
        else:
            found = self._patiently(lambda: self._if_still_new(piece, appends, meta, order))
            if found is None:
                return None
            appended = found
        self.ledger.wakeup.appended()
        is_new = not appended.repeated
        begun = sum(appended.versions[append.stream] == len(append.events) for append in appends)
        return Outcome(
            len(arrivals) * is_new, begun * is_new, appended.first_position, appended.last_position
        )

    def _if_still_new(
        self, piece: Piece, appends: Sequence[Append], meta: Meta, order: Sequence[int]
    ) -> Appended | None:
        """Append a piece; None if another import recorded something in its place."""
        schema = self.ledger.schema
        with ledger_errors(), self.ledger.pool.connection() as connection, connection.transaction():
            if not piece.is_still_new(connection, schema):
                return None
            return send(connection, schema, appends, meta.body(), meta.command, order)

    def rows(self, arrivals: Sequence[Arrival]) -> Outcome:
        """Append rows in one transaction, each by itself."""
        outcome = self._patiently(lambda: self._rows(arrivals))
        self.ledger.wakeup.appended()
        return outcome

    def _patiently(self, act: Callable[[], R]) -> R:
        """Call it, and again if that fails: a command id is recorded once."""
        deadline = time.monotonic() + self.ledger.pool.timeout
        while True:
            try:
                return act()
            except (LedgerBusy, ServerUnavailable, StreamConflict):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2 * random.random())

    def _rows(self, arrivals: Sequence[Arrival]) -> Outcome:
        done, schema, streams = [], self.ledger.schema, list({arrival.stream for arrival in arrivals})
        with ledger_errors(), self.ledger.pool.connection() as connection, connection.transaction():
            versions = dict(run(connection, schema, READ.stream_versions, streams=streams))
            for arrival in arrivals:
                at = versions[arrival.stream]
                (append,), _ = _arranged(self.file, [arrival._replace(version=at + 1)], arrival.command or "")
                meta = self.ledger.meta(command=arrival.command)
                try:
                    appended = send(connection, schema, [append], meta.body(), meta.command)
                except CommandReused as error:  # another import came between
                    raise RowsById(self.ledger, self.file).changed(arrival) from error
                done.append(appended)
                versions[arrival.stream] += not appended.repeated
        new = [appended for appended in done if not appended.repeated]
        begun = sum(appended.version == 1 for appended in new)
        return Outcome(len(new), begun, done[0].first_position, done[-1].last_position)


class DryRun:
    """Records nothing, and returns the results that recording would have. It tracks each stream's version."""

    def __init__(self, ledger: Ledger, file: str) -> None:
        self.ledger, self.file = ledger, file
        self.versions: dict[str, int] = {}
        self._rows: dict[str, Arrival] = {}

    def piece(self, piece: Piece, arrivals: Sequence[Arrival]) -> Outcome:
        """What appending a piece would do."""
        return self._would_record(arrivals, piece.command)

    def _would_record(self, arrivals: Sequence[Arrival], command: str) -> Outcome:
        appends, _ = _arranged(self.file, arrivals, command)
        self._look_up([append.stream for append in appends])
        begun = 0
        for append in appends:
            version = self.versions[append.stream]
            if isinstance(append.expected, Exact) and append.expected.version != version:
                conflict = StreamConflict(append.stream, str(append.expected), version)
                conflict.add_note(_why(self.file, arrivals, conflict))
                raise conflict
            begun += version == 0
            self.versions[append.stream] = version + len(append.events)
        return Outcome(len(arrivals), begun, None, None)

    def rows(self, arrivals: Sequence[Arrival]) -> Outcome:
        """What appending rows would do."""
        new = []
        for arrival in arrivals:
            before = self._rows.setdefault(arrival.command or "", arrival)
            if before is arrival:
                new.append(arrival)
            elif not is_equal(arrival, before):
                raise RowsById(self.ledger, self.file).changed(arrival)
        return self._would_record(new, "")

    def _look_up(self, streams: Sequence[str]) -> None:
        unknown = [stream for stream in streams if stream not in self.versions]
        if unknown:
            rows = self.ledger.query(READ.stream_versions, streams=unknown)
            self.versions |= dict(rows)


def _why(file: str, arrivals: Sequence[Arrival], conflict: StreamConflict) -> str:
    """The place in the file of the stream in conflict, and the remedy."""
    place = shown(next(arrival.place for arrival in arrivals if arrival.stream == conflict.stream))
    return (
        f"{file}, {place}: the stream in this ledger is not at the version where the file continues; it "
        "was changed there, or imported from another file or with other options: import into another "
        "ledger, category or log"
    )


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
        meta = body_of(fields) if arrival.trace else canonical_json.body(fields)
    except BadInput as error:
        raise BadFile(file, shown(arrival.place), f"meta: {error}") from error
    return Body(arrival.topic, arrival.schema, arrival.data, arrival.raw, meta)
