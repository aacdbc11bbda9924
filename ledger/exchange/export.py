"""Exports the log, or a part of it, page by page, to a file that is created only when it is complete."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from ..errors import BadInput, StreamNotFound
from ..log import read
from ..log.cursor import Checkpoint
from ..log.ledger import Ledger
from ..log.read import SQL as READ
from ..log.recorded import Recorded
from ..log.sql import run
from . import csv_files, json_lines, xes_write
from .importer import told_statuses
from .sql import SQL
from .xes import Topics

PAGE: Final = 1000
WIDEST: Final = 64
"""Maximum pages that one query skips if few events of the log are selected."""
TRACES: Final = 100
"""Streams that are read at a time for XES."""
FORMATS: Final = {"jsonl": (".jsonl", ".ndjson"), "csv": (".csv",), "xes": (".xes",)}
Progress = Callable[[int, int, int], None]
"""Called after each page: events so far, the position reached, the last position of the part."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the log: streams whose names start with a prefix, topics, positions in (after, upto]."""

    prefix: str = ""
    topics: Sequence[str] = ()
    after: int = 0
    upto: int | None = None


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. position: the last position of the log that it covers."""

    events: int
    position: int


class _Walk:
    """The events of a part, counted while they are read.

    The end is an event, whose presence each page checks: so all pages are of one history, even if a restore
    happens meanwhile.
    """

    def __init__(self, ledger: Ledger, part: Part, progress: Progress) -> None:
        self.ledger, self.part, self.progress = ledger, part, progress
        self.events = 0
        with ledger.reader() as connection:
            ((bound,),) = run(connection, ledger.schema, READ.bound, known=-1)
            self.bound = bound if part.upto is None else min(bound, part.upto)
            self.end = Checkpoint(ledger.identity.ledger, self.bound)
            self.end.settle(connection, ledger.schema, self.bound)

    def _rows(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """The rows of a page, of the history in which the walk began. Raises CursorMismatch."""
        with self.ledger.reader() as connection:
            rows = run(connection, self.ledger.schema, SQL[name], **parameters)
            self.end.confirm(connection, self.ledger.schema)
        return rows

    def pages(self, name: str, limit: int, **more: Any) -> Iterator[list[Recorded]]:
        """The pages of a statement that continues after a position.

        Each query reads a window of positions, wider if it finds few events: for a table that was just filled
        and never analyzed, the planner estimates that sorting the rest is cheaper than the index.
        """
        after, window, last = self.part.after, limit, self.end.position
        while after < last:
            end = min(after + window, last)
            parameters = {"after": after, "bound": end, "prefix": self.part.prefix, "limit": limit}
            rows = self._rows(name, **parameters, **more)
            if rows:
                yield [read.recorded(row) for row in rows]
            after, window = (rows[-1][0], limit) if len(rows) == limit else (end, window)
            if len(rows) < limit // 4:
                window = min(window * 2, limit * WIDEST)
            self.progress(self.events, after, last)

    def log(self) -> Iterator[Recorded]:
        """The events in the order of the log."""
        for page in self.pages("read_log_of", PAGE, topics=list(self.part.topics) or None):
            self.events += len(page)
            yield from page

    def traces(self, log: str | None) -> Iterator[tuple[Recorded, Iterator[Recorded]]]:
        """The first event of each stream, in log order, and the events after it; of one XES log."""
        for page in self.pages("first_events", TRACES):
            firsts = [first for first in page if log is None or _is_of(first, log)]
            streams = groupby(self._further([first.stream for first in firsts]), lambda event: event.stream)
            name, further = next(streams, (None, iter(())))
            for first in firsts:
                self.events += 1
                mine = first.stream == name
                yield first, self._wanted(further) if mine else iter(())
                if mine:
                    name, further = next(streams, (None, iter(())))

    def _wanted(self, events: Iterable[Recorded]) -> Iterator[Recorded]:
        for event in events:
            self.events += 1
            if not self.part.topics or event.topic in self.part.topics:
                yield event

    def _further(self, streams: list[str]) -> Iterator[Recorded]:
        """The events after the first of each stream, stream by stream."""
        afters, found = [1] * len(streams), PAGE
        while found == PAGE:
            bound = self.end.position
            rows = self._rows("events_of", streams=streams, afters=afters, bound=bound, limit=PAGE)
            found = len(rows)
            yield from map(read.recorded, rows)
            if rows:
                at = streams.index(rows[-1][1])
                streams, afters = streams[at:], [rows[-1][2], *afters[at + 1 :]]


def export_events(
    ledger: Ledger,
    target: str | Path | BinaryIO,
    format: str,
    part: Part = Part(),
    *,
    log: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write a part of the log. format: jsonl, csv or xes; xes needs a prefix of one category, `scan/`.

    log: the XES log whose traces to write, if a category has several (`incident.log/NAME`). A path that
    ends in .gz is compressed. Raises BadInput, StreamNotFound.
    """
    walk = _Walk(ledger, part, progress or (lambda events, position, last: None))
    texts = _texts(walk, format, log)
    with _opened(target) as file:
        for text in texts:
            file.write(text.encode())
    return Exported(walk.events, walk.bound)


def _texts(walk: _Walk, format: str, log: str | None) -> Iterator[str]:
    identity, statuses = walk.ledger.identity.ledger, told_statuses(walk.ledger)
    match format:
        case "jsonl":
            return json_lines.lines(walk.log(), identity, statuses)
        case "csv":
            return csv_files.rows(walk.log(), identity)
        case "xes":
            category = walk.part.prefix.partition("/")[0]
            if not category or "/" not in walk.part.prefix or walk.part.after:
                raise BadInput(
                    "XES exports one category from its beginning: give --category, without --after"
                )
            name, head = _log_of(walk.ledger, category, log)
            return xes_write.text(category, head, walk.traces(name), statuses)
        case _:
            raise BadInput(f"unknown format {format!r}; give one of {', '.join(FORMATS)}")


def format_of(name: str) -> str | None:
    """The format by the ending of a file's name; None if it has no known one."""
    plain = name.lower().removesuffix(".gz")
    return next((format for format, ends in FORMATS.items() if plain.endswith(ends)), None)


def _log_of(ledger: Ledger, category: str, log: str | None) -> tuple[str | None, Any]:
    """The imported log of a category and its own attributes; None if none was imported."""
    found = [info.stream for info in ledger.streams(f"{category}.log/", limit=20)]
    if log is not None and log not in found:
        raise StreamNotFound(log)
    if log is None and len(found) > 1:
        raise BadInput(f"{category} has several logs: choose one with --log: {', '.join(found)}")
    name = log or (found[0] if found else None)
    if name is None:
        return None, xes_write.PLAIN_LOG
    topics, (began, *further) = Topics.of(category), ledger.read(name, limit=2)
    if began.topic != topics.began or began.data is None:
        return None, xes_write.PLAIN_LOG
    ended = [event.data for event in further if event.topic == topics.ended and event.data is not None]
    late = json.loads(ended[0]).get("attributes", []) if ended else []
    return log, json.loads(began.data) | {"late": late}


def _is_of(first: Recorded, log: str) -> bool:
    body = json.loads(first.data) if first.data is not None else None
    return isinstance(body, dict) and body.get("log") == log


@contextmanager
def _opened(target: str | Path | BinaryIO) -> Iterator[BinaryIO]:
    """The file to write to; a path gets its new content only when it is complete."""
    if not isinstance(target, str | Path):
        yield target
        return
    path = Path(target)
    if path.exists() and not path.is_file():  # a pipe, or a device: nothing to be renamed
        with path.open("wb") as file:
            yield file
        return
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise BadInput(f"{target} cannot be written: {error.strerror or error}") from error
    try:
        with os.fdopen(number, "wb") as file:
            with _packed(file) if path.suffix.lower() == ".gz" else _as_is(file) as writing:
                yield writing
            file.flush()
            os.fsync(number)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


@contextmanager
def _as_is(file: BinaryIO) -> Iterator[BinaryIO]:
    yield file


@contextmanager
def _packed(file: BinaryIO) -> Iterator[BinaryIO]:
    """Compress without name and time, so that the same events give the same bytes."""
    with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        yield cast("BinaryIO", packed)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
